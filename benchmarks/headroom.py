"""Hold the bounds of the shortest step against the shortest steps that anybody measured.

    python benchmarks/headroom.py score [-o docs/validation/headroom.json]
    python benchmarks/headroom.py score --injected DIR
    python benchmarks/headroom.py score --tuned DIR
    python benchmarks/headroom.py page              # headroom.md beside it

Four kinds of evidence, all from H200s:

- *matrix*: the runs of `results.json` that compute the same: the same workload at the same
  precision and batch, on as many GPUs. The floor, from the work that PyTorch counts of the model on
  a CPU, must not be above the shortest of them.
- *samples*: recordings of such runs in `sample_traces/`, as their first report tells it: the
  shortest known step must be inside of both bounds.
- *injected*: programs with a line that costs time, by `benchmarks/injections.py`; `DIR` holds the
  recordings as NAME/rank0.json.gz and `rows.jsonl` with what was measured. The same program without
  that line is a step that software can reach: no floor may be above it.
- *tuned*: the programs of `benchmarks/savings.py`, tuned by hand at the same precision and batch as
  far as we could; `DIR` holds PROGRAM/recording/rank0.json.gz of the program as it was, and its
  times as PROGRAM.json. The tuned step must be inside of both bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads")]

import traceprobe  # noqa: E402
from benchmarks.saving.catalog import CATALOG  # noqa: E402
from benchmarks.saving.scores import Times  # noqa: E402
from traceprobe.model.taxonomy import BOUND_LABELS  # noqa: E402
from traceprobe.options import Options  # noqa: E402
from traceprobe.pipeline.merge import merge  # noqa: E402
from traceprobe.pipeline.trace_part import part_of  # noqa: E402
from traceprobe.records.headroom import Headroom  # noqa: E402
from traceprobe.records.report import Report  # noqa: E402
from traceprobe.verdict.headroom import floors_of  # noqa: E402
from traceprobe.verdict.roofline import roofline  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
SAMPLES = {
    "gpt2-bf16": ["profile_gpt2.sqlite.gz"],
    "unet-io": ["profile_unet.json.gz"],
    "mlp": ["profile_tiny_mlp.json.gz"],
}
"""Recordings of runs of the matrix of which a shorter one computes the same."""
OTHER_WORK = ("unet2-uneven", "wide2-alone")
"""Runs whose ranks have different batches, or do not share their gradients."""


def score(arguments: argparse.Namespace) -> None:
    """Write what the bounds and the measurements are."""
    before = json.loads(arguments.output.read_text()) if arguments.output.is_file() else {}
    if arguments.injected is not None:
        found = {**before, "injected": [*_injected(arguments.injected)]}
    elif arguments.tuned is not None:
        found = {**before, "tuned": [*_tuned(arguments.tuned)]}
    else:
        results = json.loads((FOLDER / "results.json").read_text())
        found = {"matrix": [*_matrix(results)], "samples": [*_samples(results)]}
        found |= {name: before.get(name, []) for name in ("injected", "tuned")}
    arguments.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _groups(results: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Steps of the runs that compute the same, ms, by what they have in common."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for name, row in results.items():
        told = row["ablation"]["workload"]
        key = (told["name"], told["settings"]["precision"], told["batch_size"], row["ranks"])
        (full,) = (v for v in row["ablation"]["variants"] if v["name"] == "full")
        if name not in OTHER_WORK:
            groups.setdefault(key, {})[name] = full["step_ms"]["median"]
    return groups


def _matrix(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    carrier = traceprobe.analyze(traceprobe.load(ROOT / "sample_traces" / SAMPLES["unet-io"][0]))
    (rank,) = carrier.ranks
    summary = msgspec.structs.replace(rank.summary, kernel_ns=None)  # its precision is not theirs
    ranks = [msgspec.structs.replace(rank, summary=summary)]
    for (name, precision, batch, count), steps in _groups(results).items():
        work = counted(name, precision, batch)
        told = roofline(ranks, carrier.quality, work)
        floors = floors_of(ranks, told, work, None, None)
        best = min(steps, key=lambda run: steps[run])
        yield {
            "workload": name,
            "precision": precision,
            "batch": batch,
            "ranks": count,
            "runs": sorted(steps),
            "best": best,
            "best_ms": round(steps[best], 3),
            "worst_ms": round(max(steps.values()), 3),
            "floors": {floor.name: round(floor.ms, 4) for floor in floors},
        }


@cache
def counted(name: str, precision: str, batch: int) -> dict[str, Any]:
    """What a recording would say of the work of a step."""
    import torch

    from traceprobe.capture import work

    module = __import__(name.replace("-", "_"))

    def as_it_is(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor  # nothing is computed, so nothing need be in it

    with (
        patch.object(torch.Tensor, "normal_", as_it_is),
        patch.object(torch.Tensor, "uniform_", as_it_is),
    ):
        model, loss, inputs = _program(module, name, batch)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def loss_of(model: Any, *batch: Any) -> Any:
        with torch.autocast("cpu", half, enabled=half is not None):
            return loss(model, *batch)

    kind = torch.optim.SGD if name in ("pointwise", "resnet50") else torch.optim.AdamW
    found = work(model, loss_of, *inputs, optimizer=kind(model.parameters()))
    if precision == "tf32":  # the CPU has none
        for phase in ("forward", "backward", "recompute"):
            for table in ("flops", "model_flops", "least_flops"):
                tally = found["work"][phase][table]
                if "fp32" in tally:
                    tally["tf32"] = tally.pop("fp32")
    return found


def _program(module: Any, name: str, batch: int) -> tuple[Any, Any, list[Any]]:
    """Model, loss and batch of a workload."""
    import torch

    def rows(width: int, count: int) -> list[Any]:
        return [torch.empty(count, width)]

    if name in ("gpt2", "bert"):
        size = module.SIZES["full"]
        ids = torch.zeros(batch, size.length, dtype=torch.long)
        model = (module.GPT2 if name == "gpt2" else module.BERT)(size)
        return model, module.loss_of, [ids, ids]
    if name == "resnet50":
        size = module.SIZES["full"]
        images = torch.empty(batch, 3, size.crop, size.crop)
        return module.ResNet(size), module.loss_of, [images, torch.zeros(batch, dtype=torch.long)]
    if name == "unet":
        size = module.SIZES["full"]
        cubes = [
            torch.empty(batch, channels, size.cube, size.cube, size.cube)
            for channels in (module.INPUTS, module.TARGETS)
        ]
        return module.UNet(size), module.loss_of, cubes
    if name == "tiny-mlp":
        return module.build(module.LAYERS["full"]), module.loss_of, rows(module.WIDTH, module.ROWS)
    width = module.WIDTH["full"]
    model = module.Chain() if name == "pointwise" else module.build(width)
    return model, module.loss_of, rows(width, batch)


def _samples(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    groups = _groups(results)
    for name, files in SAMPLES.items():
        told = results[name]["ablation"]["workload"]
        work = counted(told["name"], told["settings"]["precision"], told["batch_size"])
        parts = []
        for file in files:
            part = part_of(traceprobe.load(ROOT / "sample_traces" / file), Options())
            assert part.sidecar is not None
            workload = {**(part.sidecar.workload or {}), **work}
            sidecar = msgspec.structs.replace(part.sidecar, workload=workload)
            parts.append(replace(part, sidecar=sidecar))
        (steps,) = (steps for steps in groups.values() if name in steps)
        best = min(steps, key=lambda run: steps[run])
        told = _bounds(merge(parts, Options()))
        yield {"run": name, "best": best, "best_ms": round(steps[best], 3), **told}


def _injected(folder: Path) -> Iterator[dict[str, Any]]:
    rows = {row["id"]: row for row in map(json.loads, (folder / "rows.jsonl").open())}
    for path in sorted(folder.glob("*/rank0.json.gz")):
        row = rows.get(path.parent.name)
        if row is None or row.get("failed"):
            continue
        told = _bounds(traceprobe.analyze(traceprobe.load(path)))
        if told["floor_ms"] is not None:
            yield {"id": row["id"], "without_ms": round(row["step_ms"], 3), **told}


def _tuned(folder: Path) -> Iterator[dict[str, Any]]:
    for program in CATALOG:
        file, trace = (folder / f"{program.name}.json"), folder / program.name / "recording"
        if not file.is_file() or not (trace / "rank0.json.gz").is_file():
            continue
        times = Times(json.loads(file.read_text())["blocks"])
        tuned = [each.name for each in program.variants if each.tuned and each.name in times]
        if not tuned:
            continue
        best = min(tuned, key=times.step)
        # The machine that made the recording may have had another CPU than that of the times.
        options = Options(unprofiled_step_ms=times.step("base"))
        told = _bounds(traceprobe.analyze(traceprobe.load(trace / "rank0.json.gz"), options))
        yield {
            "program": program.name,
            "best": best,
            "best_ms": round(times.step(best), 3),
            **told,
        }


def _bounds(report: Report) -> dict[str, Any]:
    found = report.headroom
    known = found if isinstance(found, Headroom) else None
    return {
        "bound": BOUND_LABELS[report.verdict.bound],
        "now_ms": None if report.step_ms is None else round(report.step_ms, 3),
        "floor_ms": None if known is None else round(known.floor_ms, 4),
        "reachable_ms": None if known is None else round(known.reachable_ms, 3),
        "floor": None if known is None else known.floors[0].name,
    }


def page(arguments: argparse.Namespace) -> None:
    """Write the page."""
    found = json.loads(arguments.output.read_text())
    text = "\n".join(_page(found)) + "\n"
    arguments.output.with_suffix(".md").write_text(text)


def _page(found: dict[str, Any]) -> Iterator[str]:
    matrix, injected = found["matrix"], found["injected"]
    samples = [*found["samples"], *found["tuned"]]
    floored = [row for row in matrix if row["floors"]]
    under = [row for row in floored if max(row["floors"].values()) <= row["best_ms"]]
    known = [row for row in samples if row["floor_ms"] is not None]
    inside = [row for row in known if row["floor_ms"] <= row["best_ms"] <= row["reachable_ms"]]
    kept = [row for row in injected if row["floor_ms"] <= row["without_ms"]]
    yield from (
        "# The bounds of the shortest step, measured",
        "",
        "Made by `python benchmarks/headroom.py page` from [`headroom.json`](headroom.json). A",
        "floor ([how](../roofline.md#how-much-can-go)) must not be above any step that somebody",
        "reached at the same precision and batch, and no such step should be above what is said to",
        "be within reach.",
        "",
        "## In short",
        "",
        f"- {len(under)} of {len(floored)} floors of the [matrix](README.md) are below the",
        "  shortest measured step of the same work.",
        f"- {len(inside)} of {len(known)} recordings have the shortest known step inside of both",
        f"  bounds; of {len(found['tuned'])} of them that is a step that we tuned by hand.",
        f"- {len(kept)} of {len(injected)} floors of [programs with a slow line](injections.md)",
        "  are below the step of the same program without it.",
        "",
        "## Runs of the matrix that compute the same",
        "",
        "Steps in ms. The floor is the longest of the floors of math (operations that no algorithm",
        "leaves out, at the published peak) and memory (weights and optimizer state).",
        "",
        "| workload | precision | batch | GPUs | runs | longest | shortest | which | floor | by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |",
    )
    for row in matrix:
        name = max(row["floors"], key=lambda key: row["floors"][key], default="")
        floor = f"{row['floors'][name]:.2f}" if name else "–"
        yield (
            f"| `{row['workload']}` | {row['precision']} | {row['batch']} | {row['ranks']} | "
            f"{len(row['runs'])} | {row['worst_ms']:.2f} | {row['best_ms']:.2f} | "
            f"`{row['best']}` | {floor} | {name or '–'} |"
        )
    yield from (
        "",
        "## Recordings",
        "",
        "The first are those of slow runs of the matrix, from `sample_traces/`, with the work that",
        "was counted of them. The others are programs of `benchmarks/saving/`, whose shortest step",
        "is one that we tuned by hand as far as we could, at the same precision and batch. Where",
        "it is above what is in reach, the replay promised more than we got.",
        "",
        "| run | now | floor | in reach | shortest known | which | inside |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    )
    for row in samples:
        name = row.get("run") or row["program"]
        if row["floor_ms"] is None:
            yield (
                f"| `{name}` | {row['now_ms']:.1f} | – | – | {row['best_ms']:.2f} | "
                f"`{row['best']}` | – |"
            )
            continue
        is_inside = "yes" if row in inside else "**no**"
        yield (
            f"| `{name}` | {row['now_ms']:.1f} | {row['floor_ms']:.2f} | "
            f"{row['reachable_ms']:.1f} | {row['best_ms']:.2f} | `{row['best']}` | {is_inside} |"
        )
    if injected:
        yield from (
            "",
            "## Programs with a slow line",
            "",
            "*Without* is the same program without that line: a step that is known to be reached.",
            "",
            "| program | now | floor | in reach | without | floor is below |",
            "| --- | ---: | ---: | ---: | ---: | --- |",
        )
    for row in injected:
        below = "yes" if row in kept else "**no**"
        yield (
            f"| `{row['id']}` | {row['now_ms']:.2f} | {row['floor_ms']:.3f} | "
            f"{row['reachable_ms']:.2f} | {row['without_ms']:.2f} | {below} |"
        )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for command in (score, page):
        each = commands.add_parser(command.__name__)
        each.set_defaults(run=command)
        each.add_argument("-o", "--output", type=Path, default=FOLDER / "headroom.json")
        if command is score:
            each.add_argument("--injected", type=Path)
            each.add_argument("--tuned", type=Path)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
