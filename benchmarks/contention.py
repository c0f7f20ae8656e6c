"""What runs beside each other slows each other: tables of what `contention_runs` measured.

    python benchmarks/contention.py summarize DIR [--traces DIR]     # contention.json
    python benchmarks/contention.py hidden DIR      # what is hidden, to contention.json
    python benchmarks/contention.py page            # contention.md beside it

`DIR` holds what `contention_runs/measure.py` left; of its recordings, steps without communication
are predicted and held against those without DDP. The numbers that predictions use are in
`traceprobe/model/contention.py`; the page shows them beside what they come from.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace
from numpy import ones

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from traceprobe.model import contention  # noqa: E402
from traceprobe.model.kernel_classes import kernel_class  # noqa: E402
from traceprobe.replay.predict import predict, prepare  # noqa: E402
from traceprobe.replay.scenario import Changes  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
LINKS = {"link": "NVLink", "wire": "sockets"}
HIDDEN_LINKS = {"link": "NVLink", "few": "NVLink, 4 channels", "wire": "sockets"}
HIDDEN_WAYS = (("DDP", "one bucket", "buckets"), ("FSDP", "one unit", "units"))
"""What hides nothing, and what hides as much as it can."""
STEADY = 1.1
"""Ratio of the longest block to the shortest above which the host sets the pace."""
COPY = "copy"
"""Instead of the class of a kernel: the copy engine, or a copy of PyTorch that is none."""


def summarize(folder: Path) -> dict[str, Any]:
    """Medians of what the ranks measured."""
    found: dict[str, Any] = {"contention": [], "ddp": []}
    for link in LINKS:
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{link}.rank*.json"))]
        if not ranks:
            continue
        found["gpu"], found["nccl"], found["torch"] = (
            ranks[0][k] for k in ("gpu", "nccl", "torch")
        )
        found["contention"] += _pairs(link, ranks)
        for name, run in ranks[0]["ddp"].items():
            steps = {which: round(median(ms), 3) for which, ms in run["step_ms"].items()}
            found["ddp"].append({"link": link, "model": name, "step_ms": steps})
        found["graphs"] = found.get("graphs") or [_rounded(row) for row in ranks[0]["graphs"]]
        if "tiny_mlp" in ranks[0]:
            times = ranks[0]["tiny_mlp"]
            found["tiny_mlp"] = {k: round(median(times[k]), 3) for k in ("eager_ms", "graph_ms")}
    loaders = json.loads((folder / "loaders.json").read_text())
    found["loaders"] = [_rounded(row) for row in loaders["rows"]]
    return found


def hidden(folder: Path) -> dict[str, Any]:
    """Steps whose collectives are hidden, and are not, with what hiding them costs.

    That is how much longer than the step without exposed collectives the one with hidden ones is,
    over what the collectives take alone: as long as on the rank where each was shorter.
    """
    rows = []
    about: dict[str, Any] = {}
    for link in HIDDEN_LINKS:
        files = [folder / "hidden" / f"{link}.rank{n}.json" for n in range(2)]
        ranks = [json.loads(file.read_text()) for file in files]
        about = {name: ranks[0][name] for name in ("gpu", "nccl", "torch")}
        for model, run in ranks[0]["hidden"].items():
            other = ranks[1]["hidden"][model]
            for kind, plain, hiding in HIDDEN_WAYS:
                blocks = run["step_ms"]
                if not run["collectives_ms"].get(plain):
                    continue
                pairs = zip(
                    run["collectives_ms"][plain], other["collectives_ms"][plain], strict=True
                )
                alone = sum(map(min, pairs)) / run["recorded"]
                before, after = median(blocks[plain]), median(blocks[hiding])
                spread = max(max(blocks[way]) / min(blocks[way]) for way in (plain, hiding))
                row = {
                    "link": link,
                    "model": model,
                    "kind": kind,
                    "megabytes": run["gradients_mb"],
                    "collectives_ms": alone,
                    "before_ms": before,
                    "after_ms": after,
                    "cost": (after - before + alone) / alone,
                    "steady": spread <= STEADY,
                    "mhz": sorted(set(run["clock"][hiding])),
                }
                rows.append(_rounded(row))
    return {**about, "rows": rows}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}


def _pairs(link: str, ranks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each kernel beside each collective, over the ranks."""
    for rows in zip(*(rank["contention"] for rank in ranks), strict=True):
        yield {
            "link": link,
            "kernel": rows[0]["kernel"],
            "class": _class_of(ranks[0]["kernels"][rows[0]["kernel"]]),
            "collective": rows[0]["collective"],
            "alone_us": round(1e3 * ranks[0]["per_call_ms"][rows[0]["kernel"]], 1),
            "kernel_slowdown": _ratio(rows, "beside", "alone"),
            "collective_slowdown": _ratio(rows, "coll_beside", "coll_alone")
            if all(all(row["coll_inside"]) for row in rows)
            else None,
            "mhz": sorted({clock for row in rows for clock in row["clock"]}),
        }


def _ratio(rows: Iterable[dict[str, Any]], beside: str, alone: str) -> float:
    return round(median(median(row[beside]) / median(row[alone]) for row in rows), 3)


def predictions(folder: Path, steps: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Steps without communication, from recordings LINK-MODEL-ddp.rank*.json.gz and the samples.

    Args:
        steps: what was measured, as in `ddp`.
    """
    for row in steps:
        files = sorted(folder.glob(f"{row['link']}-{row['model']}-ddp.rank*.json.gz"))
        if files:
            ms = row["step_ms"]
            yield _prediction(row["link"], row["model"], "torch", files, ms["ddp"], ms["none"])
    wide = json.loads((FOLDER / "results.json").read_text())["wide2"]["ablation"]["variants"]
    ms = {found["name"]: found["step_ms"]["median"] for found in wide}
    for recording, pattern in (("torch", "*.rank*.json.gz"), ("nsys", "*.sqlite.gz")):
        files = sorted((ROOT / "sample_traces").glob(f"profile_wide_mlp{pattern[1:]}"))
        yield _prediction("link", "wide", recording, files, ms["full"], ms["full-no-comm"])


def _prediction(
    link: str, model: str, recording: str, files: Sequence[Path], now: float, measured: float
) -> dict[str, Any]:
    options = traceprobe.Options(unprofiled_step_ms=now)
    run = prepare(traceprobe.analyze([traceprobe.load(file) for file in files], options))
    alone = Changes(removed=frozenset({"communication"}))
    told = predict(run, alone)
    # Before: collectives are left out, and what they cost others stays.
    kept = [
        replace(p, tasks=replace(p.tasks, alone=ones(len(p.tasks)), alone_host=ones(len(p.tasks))))
        for p in run.base.schedules
    ]
    before = predict(replace(run, base=replace(run.base, schedules=kept)), alone)
    return _rounded(
        {
            "link": link,
            "model": model,
            "recording": recording,
            "now_ms": run.now,
            "before_ms": before.predicted,
            "predicted_ms": told.predicted,
            "low_ms": told.low,
            "high_ms": told.high,
            "measured_ms": measured,
        }
    )


def _class_of(kernels: dict[str, list[float]]) -> str:
    """The class that most of the time is of."""
    times: dict[str, float] = defaultdict(float)
    for name, (count, ns) in kernels.items():
        times[COPY if name.startswith("Mem") else kernel_class(name)] += count * ns
    return max(times, key=lambda name: times[name])


def serial_part(workers: int, speedup: float) -> float:
    """The part of a worker's time that more of them did not shorten, by Amdahl's law."""
    return (1 / speedup - 1 / workers) / (1 - 1 / workers)


def page(found: dict[str, Any]) -> str:
    """contention.md."""
    lines = [
        "# What runs beside each other, measured",
        "",
        "Made by `python benchmarks/contention.py page` from [`contention.json`](contention.json),",
        "measured on 2026-11-22 by an earlier form of `benchmarks/contention_runs`, with the same",
        f"blocks: two {found['gpu']} of one host, NCCL {found['nccl']}, PyTorch {found['torch']},",
        "NVLink multicast off. Predictions use",
        "[these numbers](../../traceprobe/model/contention.py) where a trace itself",
        "[does not tell](../whatif.md#how-it-works).",
        "",
        "## Kernels beside collectives",
        "",
        "How many times as long a chain of kernels takes while a collective runs, on both GPUs, as",
        "alone: medians of four or five blocks that alternate with blocks of the other kind. Over",
        "NVLink the clock stood at 1,980 MHz; beside sockets it was 1,860 to 1,980 MHz, so that",
        "1.05 there may be the clock. Several gigabytes a second cross sockets, 240 GB/s NVLink.",
        "",
        *_classes(found["contention"]),
        "",
        *_kernels(found["contention"]),
        "",
        "A small matrix product may take twice as long (`mm-bf16-1024`), as one would whose blocks",
        "fill the GPU just once, when a few multiprocessors belong to NCCL. That depends on the",
        "size, not on the class, and is why a trace is asked before this table.",
        "",
        "## Collectives beside kernels",
        "",
        *_collectives(found["contention"]),
        "",
        "## DistributedDataParallel",
        "",
        "Steps in ms, medians of four blocks of up to twelve steps each, in turns. `view` is with",
        "`gradient_as_bucket_view=True`. The host of this machine was slow and varied by a tenth",
        "from block to block, so that the steps of GPT-2 are mostly those of the host.",
        "",
        *_ddp(found["ddp"]),
        "",
        "With communication go the copies of all gradients into buckets and back: 4.7 ms a step in",
        "the wide MLP with its 4.3 GB. In a Kineto trace their launches are in",
        "`torch::distributed::reducer::mul_out` and",
        "`torch.distributed.ddp.reducer::copy_bucket_to_grad`.",
        "",
        "Predicted from recordings with DDP (both ranks), against the step without it; `before` is",
        "without these copies and slowdowns:",
        "",
        *_predictions(found["predicted"]),
        "",
        "What is missing of GPT-2 with one sample is host time: without a profiler DDP cost the",
        "host of this machine more than the launches that go.",
        "",
        *(_hidden(found["hidden"]) if "hidden" in found else []),
        "## Gaps of CUDA graphs",
        "",
        "ns per kernel without a profiler (220 kernels less 20), and what the profiler says of the",
        "same kernels launched one by one. The gap is the difference; the profiler itself shows",
        "0.25 µs in a graph, since it makes the kernels of a graph longer.",
        "",
        *_graphs(found["graphs"]),
        "",
        f"Predictions count {contention.GRAPH_GAP_NS} ns per operation.",
        "",
        "## More workers",
        "",
        "ms of a batch from a DataLoader with pinned memory and nothing else to do, on 32 cores.",
        "`memory` cuts, turns and copies 8 MB a sample, `compute` needs the interpreter. The part",
        "that more workers do not shorten is that of Amdahl's law, against one worker.",
        "",
        *_loaders(found["loaders"]),
        "",
        f"Predictions count {contention.LOADER_SERIAL:g}, between 0 and 0.2.",
    ]
    return "\n".join(lines) + "\n"


def _hidden(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Communication that is hidden",
        "",
        f"Measured on 2026-11-28 with `contention_runs/measure.py --hidden`: two {found['gpu']} of",
        f"one host, NCCL {found['nccl']}, PyTorch {found['torch']}. With one bucket, or one unit",
        "of FSDP, nothing runs beside the collectives; with buckets of the usual size, or a unit",
        "for each layer, as much as can. Steps in ms, medians of four blocks in turns. The cost is",
        "how much longer the step is than it would be without exposed collectives, over what those",
        "take. Units gather most parameters twice, which is part of their cost. Rows without one",
        "are of steps whose blocks differ by more than a tenth: the host sets their pace. Over",
        "sockets the collectives take longer than the backward pass that could hide them.",
        "",
        "| model | link | MB | way | collectives | not hidden | hidden | cost | MHz |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found["rows"]:
        cost = f"{row['cost']:.2f}" if row["steady"] else ""
        lines.append(
            f"| `{row['model']}` | {HIDDEN_LINKS[row['link']]} | {row['megabytes']:,.0f} | "
            f"{row['kind']} | {row['collectives_ms']:.2f} | {row['before_ms']:.2f} | "
            f"{row['after_ms']:.2f} | {cost} | {' to '.join(_ends(row['mhz']))} |"
        )
    used = contention.HIDDEN_COST
    lines += [
        "",
        "Seven recordings of a compiled transformer on two H100s, four channels (`one-big-bucket` "
        "of [slowbench](../slowbench.md): what a step took longer, over the collectives in its "
        "report), have 0.54 to 0.65. Predictions count "
        f"{used['fast'][1]:g}, between {used['fast'][0]:g} and {used['fast'][2]:g}; of shards "
        f"{used['shards'][1]:g}, between {used['shards'][0]:g} and {used['shards'][2]:g}.",
        "",
    ]
    return lines


def _ends(clocks: Sequence[int]) -> list[str]:
    """The lowest and the highest clock, once if they are the same."""
    return [f"{mhz:,}" for mhz in sorted({clocks[0], clocks[-1]})]


def _classes(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| class | link | kernels | median | least | most | used |",
        "| --- | --- " + "| ---: " * 5 + "|",
    ]
    for name in dict.fromkeys(row["class"] for row in rows):
        for column, link in enumerate(LINKS):
            mine = [r for r in rows if r["class"] == name and r["link"] == link]
            if not mine:
                continue
            ratios = sorted(r["kernel_slowdown"] for r in mine)
            used = contention.SLOWDOWN.get(name)
            lines.append(
                f"| {name} | {LINKS[link]} | {len({r['kernel'] for r in mine})} | "
                f"{median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} | "
                f"{'' if used is None else f'{used[column]:.2f}'} |"
            )
    return lines


def _columns(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["link"], row["collective"]) for row in rows))


def _kernels(rows: Sequence[dict[str, Any]]) -> list[str]:
    columns = _columns(rows)
    head = ["kernel", "class", "alone, µs", *(f"{c}, {LINKS[link]}" for link, c in columns)]
    lines = [f"| {' | '.join(head)} |", "| --- | --- " + "| ---: " * (len(head) - 2) + "|"]
    for name in dict.fromkeys(row["kernel"] for row in rows):
        mine = {(r["link"], r["collective"]): r for r in rows if r["kernel"] == name}
        first = next(iter(mine.values()))
        cells = [f"`{name}`", first["class"], f"{first['alone_us']:g}"]
        cells += [
            f"{mine[column]['kernel_slowdown']:.2f}" if column in mine else "" for column in columns
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _collectives(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| collective | link | median | least | most |", "| --- | --- | ---: | ---: | ---: |"]
    for link, name in _columns(rows):
        ratios = sorted(
            r["collective_slowdown"]
            for r in rows
            if (r["link"], r["collective"]) == (link, name) and r["collective_slowdown"]
        )
        cells = " | ".join(f"{ratio:.2f}" for ratio in (median(ratios), ratios[0], ratios[-1]))
        lines.append(f"| {name} | {LINKS[link]} | {cells} |")
    return [*lines, "", "Of those that ran beside kernels from beginning to end, in all blocks."]


def _ddp(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| model | link | without DDP | DDP | view |", "| --- | --- | ---: | ---: | ---: |"]
    for row in rows:
        steps = [row["step_ms"].get(which) for which in ("none", "ddp", "view")]
        cells = " | ".join("" if ms is None else f"{ms:.2f}" for ms in steps)
        lines.append(f"| `{row['model']}` | {LINKS[row['link']]} | {cells} |")
    return lines


def _predictions(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| model | link | from | with DDP | before | predicted | between | measured | error |",
        "| --- | --- | --- " + "| ---: " * 6 + "|",
    ]
    lines += [
        f"| `{row['model']}` | {LINKS[row['link']]} | {row['recording']} | "
        f"{row['now_ms']:.2f} | {row['before_ms']:.2f} | {row['predicted_ms']:.2f} | "
        f"{row['low_ms']:.2f} to {row['high_ms']:.2f} | {row['measured_ms']:.2f} | "
        f"{row['predicted_ms'] / row['measured_ms'] - 1:+.1%} |"
        for row in rows
    ]
    return lines


def _graphs(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| kernel | bytes | graph | one by one | by the profiler | gap in a graph | one by one |",
        "| --- " + "| ---: " * 6 + "|",
    ]
    for row in rows:
        count = round(row["eager_count"] / 200)
        graph, eager = (row[f"{mode}_ns_per_kernel"] / count for mode in ("graph", "eager"))
        kernel = row["eager_duration_ns"]
        lines.append(
            f"| {row['kind']} | {row['bytes']:,} | {graph:,.0f} | {eager:,.0f} | {kernel:,.0f} | "
            f"{graph - kernel:,.0f} | {eager - kernel:,.0f} |"
        )
    return lines


def _loaders(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| samples | workers | ms | times one | not shared |", "| --- " + "| ---: " * 4 + "|"]
    one = {row["kind"]: row["batch_ms"] for row in rows if row["workers"] == 1}
    for row in rows:
        gain = one[row["kind"]] / row["batch_ms"]
        part = "" if row["workers"] == 1 else f"{max(serial_part(row['workers'], gain), 0):.0%}"
        lines.append(
            f"| {row['kind']} | {row['workers']} | {row['batch_ms']:.1f} | {gain:.2f} | {part} |"
        )
    return lines


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "contention.json").read_text())
    return found


def _write(found: dict[str, Any]) -> None:
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    (FOLDER / "contention.json").write_text(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("summarize")
    making.add_argument("folder", type=Path)
    making.add_argument("--traces", type=Path, help="recordings (default: those in the folder)")
    commands.add_parser("hidden").add_argument("folder", type=Path)
    commands.add_parser("page")
    arguments = parser.parse_args()
    if arguments.command == "summarize":
        found = {**_read(), **summarize(arguments.folder)}
        traces = arguments.traces or arguments.folder
        found["predicted"] = list(predictions(traces, found["ddp"]))
        _write(found)
        return
    found = _read()
    if arguments.command == "hidden":
        _write({**found, "hidden": hidden(arguments.folder)})
        return
    (FOLDER / "contention.md").write_text(page(found))


if __name__ == "__main__":
    main()
