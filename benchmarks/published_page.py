"""docs/published-results.md: published numbers, beside what was measured.

    python benchmarks/published_page.py           # writes the page from docs/validation
    python benchmarks/published_page.py REPORT    # with the phases of the tutorial's own profile

It also makes the pages of the records there again, which must be done when a page changes.
Published numbers are copied from their sources; ours are read from the files under
docs/validation, which say on what they were measured. Nothing is computed from both but ratios.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FOLDER = ROOT / "docs" / "validation"
PAGE = ROOT / "docs" / "published-results.md"
PROFILE = FOLDER / "tutorial-profile.json"
NONE = "–"

LADDER = (
    ("2 loader processes (ours: 1)", 84.1, "one-worker"),
    ("8 loader processes (ours: 6)", 198.0, "six-workers"),
    ("16 loader processes (ours: 8)", 209.5, "eight-workers"),
    ("loader out of the way: DALI (ours: batch in host memory)", 577.2, "in-host-memory"),
    ("the same, copies hidden", None, "copied-ahead"),
    ("autocast to fp16", 774.3, "fp16"),
)
"""Change, samples/s on an A100 with 40 GB, rung of ladders/unet.json."""
BENCHY = (
    ("2 loader processes (ours: 1)", (84.468, 481.618, 83.212), "unet-io"),
    ("16 loader processes (ours: 8)", (234.450, 415.428, 166.868), "unet-workers-8"),
    ("DALI, TF32", (943.632, 592.984, 578.118), None),
    ("DALI, fp16", (929.612, 820.332, 665.790), None),
    ("DALI, fp16, fused Adam, JIT", (936.818, 893.160, 683.573), None),
)
"""Configuration, samples/s of IO, SYNTHETIC, FULL on an A100, case of results.json."""
GPT2 = (
    ("fp32", 1000, "fp32"),
    ("TF32", 333, "tf32"),
    ("bf16 autocast", 300, "bf16"),
    ("torch.compile", 130, "compile"),
    ("flash attention", 96, "flash"),
    ("vocabulary 50257 → 50304", 93, "vocab-50304"),
    ("fused AdamW", 90, "fused-adamw"),
)
"""Change, ms a step on an A100 (batch 16 × 1024 tokens), rung of ladders/gpt2.json."""
PHASES = (("host-to-device copy", 22.66, "h2d"), ("forward pass", 42.18, "forward"))
"""Phase, ms read off the tutorial's picture of step 27, key of the busy time."""


@cache
def recorded(name: str) -> Any:
    """A file of docs/validation."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first hold numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits; a dash for what is not known."""
    if value is None:
        return NONE
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}"


def times(after: float | None, before: float | None) -> str:
    """A ratio."""
    return NONE if not after or not before else f"{number(after / before)}×"


def rungs(name: str) -> dict[str, Any]:
    """Runs of a ladder by label."""
    return {rung["run"]["label"]: rung["run"] for rung in recorded(f"ladders/{name}")["rungs"]}


def unet_rows() -> Iterable[Sequence[str]]:
    """Samples per second, and each change's gain."""
    runs = rungs("unet.json")
    before = ours_before = None
    for change, published, label in LADDER:
        ours = runs[label]["samples_per_second"]
        gain = times(published, before)
        yield change, number(published), gain, number(ours), times(ours, ours_before)
        before, ours_before = published or before, ours


def rates(case: str) -> list[float]:
    """Samples/s of the loader alone, of training on one batch from host memory, of both."""
    found = {v["name"]: v for v in recorded("results.json")[case]["ablation"]["variants"]}
    names = ("io", "synthetic-host", "full")
    return [found[name]["samples_per_second"]["median"] for name in names]


def position(io: float, synthetic: float, full: float) -> str:
    """Where FULL lies between one after the other (0) and all at once (1)."""
    serial, parallel = 1 / (1 / io + 1 / synthetic), min(io, synthetic)
    return f"{(full - serial) / (parallel - serial):.2f}"


def benchy_rows() -> Iterable[Sequence[str]]:
    """IO / SYN / FULL and overlap."""
    for name, published, case in BENCHY:
        cells = [name, " / ".join(number(v) for v in published), position(*published)]
        ours = rates(case) if case else None
        cells += [" / ".join(number(v) for v in ours), position(*ours)] if ours else [NONE, NONE]
        yield cells


def gpt2_rows() -> Iterable[Sequence[str]]:
    """Step times and gains."""
    runs = rungs("gpt2.json")
    before = ours_before = None
    for change, published, label in GPT2:
        ours = runs[label]["step_ms"]
        yield (
            change,
            number(published),
            times(before, published),
            number(ours),
            times(ours_before, ours),
        )
        before, ours_before = published, ours


def phase_rows() -> Iterable[Sequence[str]]:
    """GPU time of a step's phases in the tutorial's profile."""
    found = recorded(PROFILE.name)
    for name, published, key in PHASES:
        yield name, number(published, 4), number(found["busy_ms"][key], 4)


def change_of(name: str, quantity: str) -> tuple[str, str]:
    """A class or measure of a comparison, in base and new run."""
    found = recorded(f"comparisons/{name}")
    change = next(c for c in (*found["classes"], *found["measures"]) if c["name"] == quantity)
    return number(change["base"]), number(change["new"])


def bucket_rows() -> Iterable[Sequence[str]]:
    """DDP's buckets."""
    found = recorded("comparisons/unet2-bucket.json")
    step = found["step"]
    yield "all-reduces a step", "8", "5", *change_of("unet2-bucket.json", "collectives")
    yield (
        "communication hidden, %",
        NONE,
        NONE,
        *change_of("unet2-bucket.json", "communication hidden"),
    )
    yield (
        "exposed communication, ms",
        NONE,
        NONE,
        *change_of("unet2-bucket.json", "communication"),
    )
    yield "step, ms", "30.84", "29.49", number(step["base"], 4), number(step["new"], 4)


def scaling_rows() -> Iterable[Sequence[str]]:
    """Weak scaling."""
    published = {"unet": ("128 A100s: 78 to 87 %", "13 to 25 %"), "wide-mlp": (NONE, NONE)}
    for name, (efficiency, cost) in published.items():
        found = recorded(f"scaling/{name}.json")
        last = found["points"][-1]
        yield (
            name,
            efficiency,
            f"{last['world_size']} H200s: {100 * last['efficiency']:.1f} %",
            cost,
            _synchronisation(found),
        )


def _synchronisation(found: dict[str, Any]) -> str:
    """What gradient synchronisation costs of a step at the largest scale, by ablation."""
    whole = next(s for s in found["points"][-1]["synchronisation"] if s["loop"] == "full")
    return f"{100 * (1 - whole['without_ms'] / whole['with_ms']):.1f} %"


TEXT = """# Published numbers, and ours

traceprobe began with four sources that each measured training runs by hand: the tutorial ["Deep
Learning at Scale" of SC22](https://github.com/NERSC/sc22-dl-tutorial), notes on choosing a GPU, on
the memory of BERT and on optimising GPT-2. Here is what they published, row by row, beside what
traceprobe measured. The hardware differs (A100s there, H200s here), so the shape is to be compared,
not the values. Made by `benchmarks/published_page.py` from the files in
[`validation/`](validation/README.md); `traceprobe render` makes pages of the ladders, curves and
comparisons there, e.g. `traceprobe render docs/validation/ladders/gpt2.json -o gpt2.html`.

## The tutorial's U-Net on one GPU

Samples per second at batch 64. Ours: [the ladder](validation/ladders/unet.md) of recordings from
the [validation](validation/README.md), 16 CPUs a GPU. TF32 unless said; switching it off costs
3.9× there, {tf32} here.

{unet}

As there, the loader decides first, workers help until the CPUs are used up, and what is then left
is copying, precision and the optimizer. [A sweep of the tutorial's own
order](validation/ladders/sc22.md) (2 to 16 workers, augmentation on the GPU, hidden copies, fp16,
fused Adam, `torch.compile`), alone on a machine with 16 CPUs, stays bound by its loader to the
last rung: 101 samples/s with two workers, 192 with four, and from eight on between 230 and 450,
with more drift inside a run than gain between rungs, as the ladder says. What comes after the
loader can be measured only with the loader out of the way, as in the table.

## Loader, training, and both

What `traceprobe bench` does was done by `benchy` there. *Overlap* is 0 where loading and training
take turns and 1 where the shorter of them is free.

{benchy}

Sixteen workers on an A100 are the pathological case of the source: faster alone, and in the way of
training. Here the whole loop exceeds the bound (above 1) where the loader is so slow that its queue
is still full from the trial before.

## Buckets of DistributedDataParallel

Of the tutorial: 4 A100s at batch 16 each, buckets of 25 MB and 100 MB with PyTorch 1.13. Ours:
2 H200s at batch 64, default and 1,000 MB with PyTorch 2.11,
[compared](validation/comparisons/unet2-bucket.md).

{buckets}

Fewer collectives are no gain by themselves: one bucket cannot begin before the last gradient is
there, so all of it is exposed.

## Weak scaling

Efficiency against one GPU, and what gradient synchronisation costs of a step by ablation.

{scaling}

The tutorial's text and its later plots differ (78 % and 25 %, 87 % and 13 %). Within one node with
NVLink the U-Net hides nearly all of its communication. `wide-mlp` is made to be bound by it. The
[U-Net's](validation/scaling/unet.md) and [its](validation/scaling/wide-mlp.md) losses, and what
more ranks would give, are on their pages.

## GPT-2, change by change

Milliseconds a step of 16 × 1024 tokens. The source published no times; those of the A100 are the
chapter titles of the lecture that it follows. Ours: [the ladder](validation/ladders/gpt2.md).

{gpt2}

The shape is the source's. fp32, TF32, bf16 and accumulation were recorded earlier, on another
machine with the same GPU. A first measurement of flash attention had run the kernels of the rung
before: PyTorch's compiler keeps compiled graphs, and the choice of attention is no part of their
key. The workloads compile without that cache.

## Phases in the tutorial's profile

GPU time of a step of the run with two workers, read off a picture of one step there; here the mean
of {steps} steps that traceprobe found in the same Nsight Systems profile ({marker}).

{phases}

## Not measured yet

- DALI, Apex and `torch.jit.script` themselves; their counterparts in PyTorch are used.
- More than one node, and strong scaling.
- The GPU comparison of the second source (K80 to A100): `traceprobe gpus` is there, the devices are
  not.
- The memory of BERT-large in the third source.
"""


def page() -> str:
    """The whole page."""
    profile = recorded(PROFILE.name)
    device, plain = (
        recorded("results.json")[name]["recordings"]["torch"]["unprofiled_step_ms"]
        for name in ("unet-device", "unet-fp32")
    )
    return TEXT.format(
        tf32=times(plain, device),
        unet=table(("change", "A100", "gain", "H200", "gain"), unet_rows()),
        benchy=table(
            ("samples/s", "A100: IO / SYN / FULL", "overlap", "H200", "overlap"), benchy_rows()
        ),
        buckets=table(("", "A100, 25 MB", "100 MB", "H200, default", "one"), bucket_rows()),
        scaling=table(
            ("", "efficiency there", "here", "synchronisation there", "here"), scaling_rows()
        ),
        gpt2=table(("change", "A100", "gain", "H200", "gain"), gpt2_rows()),
        phases=table(("ms a step", "picture", "traceprobe"), phase_rows()),
        steps=profile["steps"],
        marker=profile["input"],
    )


def take(report: Path) -> None:
    """Keep the mean busy times of a report's first rank."""
    content = json.loads(report.read_text(encoding="utf-8"))
    summary = content["ranks"][0]["summary"]
    steps = summary["iterations_used"]
    busy = {k: round(v / steps / 1e6, 4) for k, v in summary["busy_ns"].items() if v}
    found = {"input": content["inputs"][0]["name"], "steps": steps, "busy_ms": busy}
    PROFILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def render() -> None:
    """The pages beside the records."""
    from traceprobe.records import kinds

    for path in sorted(FOLDER.glob("*/*.json")):
        record = kinds.read(path.read_text(encoding="utf-8"))
        path.with_suffix(".md").write_text(record.to_markdown(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]))
    render()
    PAGE.write_text(page(), encoding="utf-8")
