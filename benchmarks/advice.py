"""Hold findings against what their advice saved: each rule before and after a change.

    python benchmarks/advice.py run --out DIR [--cases NAME,…]  # records, on a machine with a GPU
    python benchmarks/advice.py collect DIR …                   # recordings to advice.json
    python benchmarks/advice.py page                            # advice.md from that

A recording has the time of the same loop without a profiler, so that a pair of recordings is both
the prediction and the measurement. `collect` analyses them with the code as it is now. Folders are
those that `validate.py run` leaves; most pairs are of its cases.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from benchmarks import matrix, validate  # noqa: E402
from benchmarks.advice_page import page  # noqa: E402
from benchmarks.matrix import Case  # noqa: E402

RESULTS = ROOT / "docs" / "validation" / "advice.json"
PAGE = RESULTS.with_suffix(".md")
COMPUTE = ("compute",)
BEST = "--precision bf16 --compile default --sdpa flash --vocab 50304"
MORE = [
    Case("gpt2-math", "gpt2 --precision bf16 --sdpa math", COMPUTE, backends=("torch",)),
    Case("gpt2-aligned", "gpt2 --precision bf16 --vocab 50304", COMPUTE, backends=("torch",)),
    Case(
        "gpt2-best",
        f"gpt2 {BEST}",
        COMPUTE,
        backends=("torch",),
    ),
    Case("gpt2-best-fused", f"gpt2 {BEST} --fused", COMPUTE, backends=("torch",)),
    Case(
        "gpt2-one-graphs",
        "gpt2 --precision bf16 --batch-size 1 --cuda-graphs",
        ("overhead", "compute"),
        backends=("torch",),
    ),
    Case("gpt2-two", "gpt2 --precision bf16 --batch-size 2", COMPUTE, backends=("torch",)),
    Case(
        "gpt2-two-item",
        "gpt2 --precision bf16 --batch-size 2 --item-every 1",
        COMPUTE,
        backends=("torch",),
    ),
    Case(
        "gpt2-one-item",
        "gpt2 --precision bf16 --batch-size 1 --item-every 1",
        ("overhead",),
        backends=("torch",),
    ),
    Case("gpt2-loop", "gpt2 --precision bf16 --no-foreach", COMPUTE, backends=("torch",)),
    Case(
        "resnet-nchw",
        "resnet50 --data cached-device --precision bf16",
        COMPUTE,
        backends=("torch",),
    ),
    Case(
        "resnet-nhwc",
        "resnet50 --data cached-device --precision bf16 --memory-format channels_last",
        COMPUTE,
        backends=("torch",),
    ),
    Case(
        "unet-nhwc",
        "unet --data cached-device --precision fp16 --memory-format channels_last",
        COMPUTE,
        backends=("torch",),
    ),
    Case("resnet-workers-1", "resnet50 --workers 1", ("io",), backends=("torch",)),
    Case("resnet-workers-3", "resnet50 --workers 3", ("compute", "io"), backends=("torch",)),
]
"""Runs that only advice asks for, beside those of the matrix."""


@dataclass(frozen=True)
class Pair:
    """A rule, a run in which it should fire, and the run in which its advice was followed."""

    rule: str
    before: str
    after: str
    change: str


PAIRS = (
    Pair("attention-unfused", "gpt2-math", "gpt2-bf16", "fused attention"),
    Pair("communication-exposed", "unet2-wire", "unet2-few", "NVLink"),
    Pair("communication-exposed", "wide2", "wide2-alone", "no synchronisation"),
    Pair("communication-skew", "unet2-uneven", "unet2-even", "even batches"),
    Pair("data-wait", "unet-io", "unet-pinned", "batch in memory"),
    Pair("h2d-exposed", "unet-pinned", "unet-prefetch", "copied ahead"),
    Pair("h2d-pageable", "unet-pageable", "unet-pinned", "pinned memory"),
    Pair("host-overhead", "gpt2-one", "gpt2-one-graphs", "CUDA graphs"),
    Pair("lower-precision", "unet-device", "unet-bf16", "bf16"),
    Pair("lower-precision", "gpt2-tf32", "gpt2-bf16", "bf16"),
    Pair("memory-format", "unet-fp16", "unet-nhwc", "channels last"),
    Pair("memory-format", "resnet-nchw", "resnet-nhwc", "channels last"),
    Pair("optimizer-cost", "gpt2-best", "gpt2-best-fused", "fused optimizer"),
    Pair("optimizer-launches", "gpt2-bf16", "gpt2-fused", "fused optimizer"),
    Pair("optimizer-launches", "gpt2-loop", "gpt2-fused", "fused optimizer"),
    Pair("recomputation", "gpt2-recompute", "gpt2-bf16", "kept activations"),
    Pair("small-kernels", "mlp", "mlp-graphs", "CUDA graphs, fused optimizer"),
    Pair("synchronization", "gpt2-two-item", "gpt2-two", "no `.item()`"),
    Pair("synchronization", "gpt2-one-item", "gpt2-one", "no `.item()`"),
    Pair("tf32-off", "unet-fp32", "unet-device", "TF32"),
    Pair("tf32-off", "gpt2-fp32", "gpt2-tf32", "TF32"),
    Pair("unaligned-matmul", "gpt2-bf16", "gpt2-aligned", "vocabulary of 50304"),
    Pair("unfused-kernels", "pointwise", "pointwise-compile", "`torch.compile`"),
)


RULES = frozenset(pair.rule for pair in PAIRS)


def cases() -> dict[str, Case]:
    """The runs of all pairs by name."""
    known = {case.name: case for case in (*matrix.GPU, *MORE)}
    names = {name: None for pair in PAIRS for name in (pair.before, pair.after)}
    workers = {case.name: None for case in MORE}
    return {name: known[name] for name in (*names, *WORKERS, *workers)}


WORKERS = (
    "unet-io",
    "unet-raw",
    "unet-workers-8",
    "resnet-workers-1",
    "resnet-io",
    "resnet-workers-3",
    "resnet-workers-12",
)
"""Runs with a loader of their own, of which the findings say how many workers would hide it."""


def collect(folders: list[Path]) -> dict[str, Any]:
    """What is compared, by case: step, samples, machine and findings."""
    found: dict[str, Any] = {}
    for name, case in cases().items():
        for folder in (root / name / "torch" for root in folders):
            paths = sorted(folder.glob("rank*.json.gz"))
            if paths:
                found[name] = {
                    "arguments": case.arguments,
                    "ranks": case.ranks,
                    "environment": case.environment,
                    "uncertain_ms": uncertainty(folder.parent / "bench" / "bench.json"),
                    **extract([traceprobe.load(path) for path in paths]),
                }
    return found


def uncertainty(bench: Path) -> float | None:
    """Half of the 95 % interval of the whole loop's step by ablation, ms; None without one."""
    if not bench.is_file():
        return None
    variants = json.loads(bench.read_text())["variants"]
    step = next(v["step_ms"] for v in variants if v["name"] == "full")
    return float(round((step["high"] - step["low"]) / 2, 4))


def extract(traces: list[traceprobe.Trace]) -> dict[str, Any]:
    """Of one run."""
    report = traceprobe.analyze(traces)
    effect, recorded = report.quality.observer_effect, traces[0].metadata["traceprobe"]
    assert effect is not None
    assert report.workload is not None
    step = effect.unprofiled_step_ms
    wait = next(f for f in report.findings if f.id == "data-wait")
    return {
        "step_ms": step,
        "rest_ms": round(step * (1 - report.verdict.shares["io"]), 4),
        "samples_per_step": report.workload["samples_per_step"],
        "workers": report.workload["settings"]["workers"],
        "hardware": recorded["hardware"],
        "libraries": recorded["libraries"],
        "findings": {
            f.id: {"status": f.status, "saving_ms": f.saving_ms_per_step}
            for f in report.findings
            if f.id in RULES
        },
        "needed": next((line for line in wait.evidence if "hide the loader" in line), None),
    }


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--work", type=Path, help="recordings (default: OUT/work)")
    runs.add_argument("--gpus", type=int, default=1)
    runs.add_argument("--cases", default=",".join(case.name for case in MORE))
    runs.add_argument("--deadline", type=float, default=1e9, help="seconds to start jobs in")
    collects = commands.add_parser("collect")
    collects.add_argument("folders", type=Path, nargs="+")
    collects.add_argument("--to", type=Path, default=RESULTS, help="file that it adds to")
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "run":
        given.out.mkdir(parents=True, exist_ok=True)
        todo = validate.jobs([cases()[name] for name in given.cases.split(",")], ["torch"])
        work = given.work or given.out / "work"
        left = validate.run(todo, given.out, work, given.gpus, given.deadline)
        for job in left:
            print(f"{job.case.name}: not started", flush=True)
    if given.command == "collect":
        known = json.loads(given.to.read_text()) if given.to.is_file() else {}
        text = json.dumps(known | collect(given.folders), indent=1, sort_keys=True)
        given.to.write_text(text + "\n")
    if given.command == "page":
        PAGE.write_text(page(json.loads(RESULTS.read_text()), PAIRS, WORKERS))


if __name__ == "__main__":
    main()
