"""A roofline told in sections, and in the few lines that other reports have of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from traceprobe.formatting import NOT_OBSERVED, number, percent
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.roofline import Limit, Peaks, Roofline, RooflineRecord
from traceprobe.render.charts import Line, curves
from traceprobe.render.colours import OTHER_COLOUR, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Chart, Document, Piece, Section, Table, Tone
from traceprobe.render.pages.comparison import capitalized
from traceprobe.render.pages.flop_numbers import flops
from traceprobe.render.pages.roofline_operators import operator_lines, operators_section

LIMIT_WORDS: dict[Limit, str] = {
    "math": "math-bound kernels",
    "memory": "memory-bound kernels",
    "neither": "kernels below both roofs",
}
LIMIT_MEANINGS: dict[Limit, str] = {
    "math": "their math explains most of their time; a lower precision makes them faster",
    "memory": "their memory traffic explains most of their time; fusing them makes them faster",
    "neither": "neither math nor traffic explains their time: they are small, badly shaped or "
    "waiting",
}
_TONES: dict[Limit, Tone] = {"math": "good", "memory": "plain", "neither": "bad"}
_BEYOND = 4.0
"""The picture goes so much farther than its outermost points, and than the ridge."""
_HELP = (
    "A phase is a point: how many operations it does for each byte it moves, and how many a "
    "second. It cannot lie above the roofs: left of the ridge the bandwidth of the memory limits "
    "it, right of it the peak of the precision. A point far below both has kernels that are small, "
    "badly shaped or waiting. Operations and bytes are those of the model as written, counted "
    "before training; what a cache saves is not known."
)
_WHY_THREE = (
    "of the step a kernel runs: nvidia-smi calls this utilisation, and one thread is enough for it",
    "of the multiprocessors have work, over the step: a kernel may be too small to reach all",
    "of the threads that the GPU can hold are there, over the step: fewer can be enough",
    "of the operations that the GPU could do are done for the model (MFU): only this one says how "
    "well the hardware is used",
)


def document(record: RooflineRecord) -> Document:
    """The roofline for all outputs."""
    found = record.roofline
    return Document(
        kind=record.kind,
        title=_title(found),
        tone="plain" if found.limit is None else _TONES[found.limit],
        headline=_distance(found) or record.headline,
        points=_points(record),
        cautions=[capitalized(note) for note in found.notes],
        sections=sections(found),
        inputs=record.inputs,
        version=record.traceprobe_version,
        json=record.to_json(),
    )


def _title(found: Roofline) -> str:
    if found.mfu is not None:
        return f"MFU {percent(found.mfu)}"
    if found.achieved_tflops is not None:
        return f"{flops(found.achieved_tflops * 1e12)}/s"
    return "MFU unknown"


def _distance(found: Roofline) -> str:
    """How far the run is from its hardware, in a sentence."""
    device = found.device or "the device"
    if found.achieved_tflops is None:
        busy = found.utilisation.busy
        if busy is None:
            return ""
        return (
            f"A kernel runs for {percent(busy)} of the step on {device}. That does not say how "
            "well the kernels use it."
        )
    rate = f"{flops(found.achieved_tflops * 1e12)}/s"
    step = f"{number(found.step_ms)} ms of the step"
    if found.mfu is None:
        return f"The model does {rate} on {device}, whose peak is not known."
    return (
        f"The model does {rate} on {device}: at its peak rate the operations would take "
        f"{number(found.mfu * found.step_ms)} of the {step}."
    )


def _points(record: RooflineRecord) -> list[str]:
    """The kernels' limit, what is called utilisation, and the verdict of the run."""
    found = record.roofline
    limit = "" if found.limit is None else f"The kernels: {LIMIT_MEANINGS[found.limit]}"
    return [line for line in (limit, capitalized(_utilisation(found)), record.headline) if line]


def lines(found: Roofline) -> list[str]:
    """What Markdown and terminal say, a line each: MFU, the step, operators, utilisation."""
    of_operators = [] if found.operators is UNSET else operator_lines(found.operators)[:1]
    told = (_rate(found), _split(found), _sampled(found), *of_operators, _utilisation(found))
    return [line for line in told if line]


def _rate(found: Roofline) -> str:
    if found.flops_per_step is None or found.achieved_tflops is None:
        return ""
    timed = "without a profiler" if found.unprofiled else "in the trace"
    work = (
        f"{flops(found.flops_per_step)} in {number(found.step_ms)} ms {timed}: "
        f"{flops(found.achieved_tflops * 1e12)}/s a device"
    )
    if found.mfu is None:
        return work
    hfu = f", HFU {percent(found.hfu)}" if found.hfu is not None else ""
    return f"MFU {percent(found.mfu)}{hfu}: {work}"


def _split(found: Roofline) -> str:
    """T = T_math + T_mem + the rest."""
    if found.math_ms is None:
        return ""
    parts = [f"math at peak {_of(found.math_ms, found)}"]
    if found.memory_ms is not None:
        parts.append(f"traffic that it does not hide {_of(found.memory_ms, found)}")
    if found.rest_ms is not None:
        parts.append(f"rest {_of(found.rest_ms, found)}")
    words = "" if found.limit is None else f"; {LIMIT_WORDS[found.limit]}"
    return f"of the step: {', '.join(parts)}{words}"


def _sampled(found: Roofline) -> str:
    """What counters say of the kernels."""
    if found.sampled is UNSET:
        return ""
    tensor, memory = percent(found.sampled.tensor_active), percent(found.sampled.dram)
    return f"counters while kernels run: tensor cores active {tensor}, memory {memory}"


def _of(ms: float, found: Roofline) -> str:
    return f"{percent(ms / found.step_ms)} ({number(ms)} ms)"


def _utilisation(found: Roofline) -> str:
    used = found.utilisation
    named = {
        "with a kernel": used.busy,
        "of the multiprocessors": used.covered,
        "of their threads": used.occupancy,
        "MFU": used.mfu,
    }
    parts = [f"{percent(value)} {name}" for name, value in named.items() if value is not None]
    return f"utilisation: {', '.join(parts)}" if used.busy is not None else ""


def sections(found: Roofline) -> list[Section]:
    """The roofline with its picture, and the three utilisations."""
    roof = Section(
        "roofline",
        "Roofline",
        text=[line for line in (_rate(found), _split(found)) if line],
        blocks=[*_bars(found), *_picture(found), *_phases(found), *_peaks_section(found)],
        help=_HELP,
    )
    called = [] if found.operators is UNSET else operators_section(found.operators)
    told = (roof, *called, _three(found))
    return [section for section in told if section.text or section.blocks]


def _peaks_section(found: Roofline) -> list[Section]:
    """Settings of the computation, folded."""
    sources = _source(found)
    return [Section("", "Peaks of the hardware", text=sources, folded=True)] if sources else []


def _source(found: Roofline) -> list[str]:
    """The peaks of the precisions that ran, and where they are from."""
    used = {name for phase in found.phases for name in phase.flops}
    sources = [
        f"peaks: {_peaks(peaks, used)} ({peaks.source})"
        for peaks in (found.published, found.measured)
        if peaks is not None and found.flops_per_step is not None
    ]
    if len(sources) == 2:
        sources[0] += ", for MFU and HFU"
        sources[1] += ", for the floors"
    return sources


def _peaks(peaks: Peaks, used: set[str]) -> str:
    shown = {name: rate for name, rate in peaks.tflops.items() if not used or name in used}
    rates = [f"{name} {number(rate)}" for name, rate in sorted(shown.items())]
    bandwidth = "" if peaks.bandwidth_gbps is None else f"; {number(peaks.bandwidth_gbps)} GB/s"
    return f"{', '.join(rates)} TFLOP/s{bandwidth}"


def _bars(found: Roofline) -> list[Bars]:
    if found.math_ms is None or found.memory_ms is None or found.rest_ms is None:
        return []
    pieces = [
        Piece("math at peak", SHARE_COLOURS["compute"], found.math_ms),
        Piece("traffic that math does not hide", SHARE_COLOURS["io"], found.memory_ms),
        Piece("the rest", OTHER_COLOUR, found.rest_ms),
    ]
    bar = Bar("step", pieces, f"{number(found.step_ms)} ms")
    return [Bars("The step: math, memory and the rest", "ms", [bar])]


def _picture(found: Roofline) -> list[Chart | Table]:
    """Roofs, dashed, and a point for each phase; empty where no phase has both coordinates."""
    points = [p for p in found.phases if p.intensity and p.tflops]
    peaks = _taken(found)
    bandwidth = peaks.bandwidth_gbps if peaks is not None else None
    precisions = sorted({name for p in points for name in p.flops})
    roofs = {name: found_peak for name in precisions if (found_peak := peak(found, name))}
    if not points or not bandwidth or not roofs:
        return []
    ridges = {name: 1e3 * tflops / bandwidth for name, tflops in roofs.items()}
    reached = [p.intensity for p in points if p.intensity]
    low = min([*reached, *ridges.values()]) / _BEYOND
    high = max([*reached, *ridges.values()]) * _BEYOND
    drawn = [
        Line(
            f"roof of {name}",
            [(low, low * bandwidth / 1e3), (ridges[name], roofs[name]), (high, roofs[name])],
            dashed=True,
        )
        for name in precisions
        if name in roofs
    ]
    drawn += [Line(_word(p.phase), [(p.intensity or 0.0, p.tflops or 0.0)]) for p in points]
    axes = ("operations per byte", "TFLOP/s")
    return [curves("chart-roofline", "Roofline", *axes, drawn, log=True)]


def _taken(found: Roofline) -> Peaks | None:
    """The peaks that bandwidth is taken from."""
    measured = found.measured
    return measured if measured is not None and measured.bandwidth_gbps else found.published


def peak(found: Roofline, precision: str) -> float | None:
    """The peak that floors are computed with, TFLOP/s."""
    both = [peaks.tflops.get(precision) for peaks in (found.measured, found.published) if peaks]
    return next((rate for rate in both if rate), None)


def _word(phase: str) -> str:
    return BUSY_LABELS.get(phase, phase)


def _phases(found: Roofline) -> list[Table]:
    if not found.phases:
        return []
    rows = [
        [
            _word(p.phase),
            number(p.ms),
            flops(sum(p.flops.values())) if p.flops else "",
            ", ".join(sorted(p.flops)),
            NOT_OBSERVED if p.bytes is None else number(p.bytes / 1e9),
            f"{flops(p.tflops * 1e12)}/s" if p.tflops is not None else "",
            number(p.gbps),
            number(p.intensity) if p.flops else "",
            number(p.math_ms),
            number(p.memory_ms),
        ]
        for p in found.phases
    ]
    head = ["", "ms", "work", "in", "GB", "rate", "GB/s", "FLOP/byte", "T_math ms", "T_mem ms"]
    shown = [n for n in range(len(head)) if {row[n] for row in rows} - {"", NOT_OBSERVED}]
    numeric = frozenset(place for place, n in enumerate(shown) if n not in (0, 3))
    cells = [[row[n] for n in shown] for row in rows]
    return [Table("Phases beside their floors", [head[n] for n in shown], cells, numeric)]


def _three(found: Roofline) -> Section:
    used = found.utilisation
    values: Sequence[float | None] = (used.busy, used.covered, used.occupancy, used.mfu)
    text = [
        f"{percent(value)} {words}"
        for value, words in zip(values, _WHY_THREE, strict=True)
        if value is not None
    ]
    return Section(
        "utilisation",
        "What is called utilisation",
        text=text if used.busy is not None else (),
        help="All of them are parts of the step, and none is wrong: they ask different questions.",
        folded=True,
        brief=False,
    )
