"""One record of every kind that traceprobe saves, and all types of records inside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from tests.analyses import report_of
from tests.causal_records import make_causal
from tests.conftest import ROOT
from tests.hang_records import make_hang
from tests.memory_records import make_memory
from tests.report_factory import make_ablation
from tests.scaling_runs import run_of
from tests.watch_records import make_watch
from traceprobe import __version__
from traceprobe.compare.compare import compare
from traceprobe.compare.gpus import compare_gpus
from traceprobe.compare.ladder import ladder
from traceprobe.compare.run import observe, summarize
from traceprobe.compare.scaling import scale
from traceprobe.records.ablation import Ablation
from traceprobe.records.diagnosis import Diagnosis, Outcome, Section
from traceprobe.records.kinds import KINDS
from traceprobe.records.memory import Memory
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.report import LostInput, Message, Report
from traceprobe.records.roofline import RooflineRecord
from traceprobe.records.sweep import RungResult, Sweep
from traceprobe.replay.scenario import Changes
from traceprobe.whatif.summary import what_if

ROOTS = (
    *(Report, Ablation, Memory, Sweep, Diagnosis),
    *KINDS.values(),
)
VERSIONS = {"schema_version": "1.0", "traceprobe_version": __version__}


@cache
def record_types() -> tuple[type[msgspec.Struct], ...]:
    """All records and the records inside them."""
    found: dict[type[msgspec.Struct], None] = {}

    def visit(kind: object) -> None:
        if isinstance(kind, inspect.StructType):
            if kind.cls in found:
                return
            found[kind.cls] = None
            for field in kind.fields:
                visit(field.type)
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(kind, name):
                visit(getattr(kind, name))
        for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
            visit(inner)

    for root in ROOTS:
        visit(inspect.type_info(root))
    return tuple(found)


@cache
def report() -> Report:
    """Of two ranks, with everything that a report can have."""
    names = ("profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz")
    whole = report_of(*(ROOT / "sample_traces" / name for name in names))
    lost = [LostInput(name="c.json", reason="c.json: no GPU work in the trace")]
    warning = Message(
        code="rank-lost", message="1 inputs could not be read: c.json: no GPU work in the trace"
    )
    quality = replace(whole.quality, lost=lost, warnings=[*whole.quality.warnings, warning])
    return replace(
        whole, quality=quality, ablation=make_ablation("io"), memory=make_memory(input=0)
    )


RECORD_NAMES = (
    *("report", "ablation", "memory", "comparison", "ladder", "scaling"),
    *("gpus", "watch", "whatif", "roofline", "peaks", "causal", "hang", "sweep", "doctor"),
)
"""Of what `records` makes, without making it."""


@cache
def records() -> dict[str, msgspec.Struct]:
    """A record of every kind."""
    one = ROOT / "sample_traces" / "profile_unet.json.gz"
    two = observe(report(), "after")
    before = observe(report_of(one), "before")
    summary = summarize(two)
    rung = RungResult(
        name="01-tf32",
        change="TF32",
        side=False,
        base="",
        ranks=1,
        arguments=["--precision", "tf32"],
        environment_digest="5a17:b10b",
        state="measured",
        reason="none",
        run=summary,
    )
    outcome = Outcome(id="trace-cut", status="fail", found="cut", meaning="", fix="")
    told = {"device": "NVIDIA H200", "torch": "2.11.0", "copy_gbps": 4000.0, "h2d_gbps": 50.0}
    size = {"device_kind": "gpu", "matrix_side": 8192, "repetitions": 5, "tflops": {"fp32": 50.0}}
    roofline = report().roofline
    assert not isinstance(roofline, msgspec.UnsetType)
    made = {
        "report": report(),
        "ablation": make_ablation("io"),
        "memory": make_memory(),
        "comparison": compare(before, two, 0.05),
        "ladder": ladder([before, two], name="of mine"),
        "scaling": scale([run_of(1), run_of(2, transfer=9)], "weak", [4]),
        "gpus": compare_gpus([before, two], {"before": 2.0, "after": 3.0}),
        "watch": make_watch(),
        "whatif": what_if(two, Changes()),
        "roofline": RooflineRecord(
            **VERSIONS, headline="Half of the peak.", inputs=["a.json"], roofline=roofline
        ),
        "peaks": MeasuredPeaks(**VERSIONS, **told, **size),
        "causal": make_causal(),
        "hang": make_hang(),
        "sweep": Sweep(
            schema_version="1.0",
            traceprobe_version=__version__,
            ladder="mine",
            workload="unet",
            backend="torch",
            warmup=1,
            calibrate=1,
            active=1,
            rungs=[rung],
        ),
        "doctor": Diagnosis(**VERSIONS, sections=[Section(subject="a.json", checks=[outcome])]),
    }
    assert tuple(made) == RECORD_NAMES
    return made


def container_of(content: Any, path: Sequence[str | int]) -> Any:
    """What holds the last key of a path."""
    for step in path[:-1]:
        content = content[step]
    return content


def tampered(text: str, *path: str | int, to: object) -> str:
    """The JSON with another value at a place; a function gets the old one."""
    content = json.loads(text)
    place = container_of(content, path)
    place[path[-1]] = to(place[path[-1]]) if callable(to) else to
    return json.dumps(content, sort_keys=True)
