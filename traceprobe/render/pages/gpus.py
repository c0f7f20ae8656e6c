"""GPUs beside each other, in sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from traceprobe.formatting import NOT_OBSERVED, counted, number, percent, significant, times
from traceprobe.records.gpus import PEAKS, Contender, GpuComparison, device_scale
from traceprobe.render.charts import Line, curves
from traceprobe.render.document import Chart, Document, Section, Table
from traceprobe.render.pages.comparison import (
    capitalized,
    named_inputs,
    phase_bars,
    runs_section,
    shares,
)

PEAK_HEADS = {
    "fp32": "fp32",
    "tf32": "TF32",
    "half": "16-bit",
    "bandwidth": "memory bandwidth",
}
PEAK_COLUMNS = {**PEAK_HEADS, "bandwidth": "memory GB/s"}
NOTHING = {NOT_OBSERVED, "0.0 %"}
"""A column of these says nothing."""
RAN_WORDS = {"fp32": "fp32", "tf32": "TF32", "half": "16-bit"}


def document(comparison: GpuComparison) -> Document:
    """The comparison for all outputs."""
    contenders = comparison.contenders
    several, title = len(contenders) > 1, _title(comparison)
    return Document(
        kind=comparison.kind,
        title=title,
        secondary=counted(len(contenders), "run") if several else "",
        headline=capitalized(comparison.headline.removeprefix(f"{title}: ")),
        points=_points(comparison) if several else comparison.points,
        cautions=[caution.message for caution in comparison.cautions],
        sections=list(_sections(comparison)),
        inputs=named_inputs([c.run for c in contenders]),
        version=comparison.traceprobe_version,
        json=comparison.to_json(),
    )


def _title(comparison: GpuComparison) -> str:
    """The fastest; a lead within the noise is none."""
    first = comparison.contenders[0]
    if len(comparison.contenders) == 1:
        return "One run, nothing to rank"
    if "equally fast" in comparison.headline:
        return "No clear winner"
    return f"{first.title} is fastest"


def _points(comparison: GpuComparison) -> list[str]:
    """Costs first, where there are prices; then what explains the order."""
    costs = 1 if any(c.usd_per_million is not None for c in comparison.contenders) else 0
    points = comparison.points
    return [*points[:costs], comparison.explanation, *points[costs:]]


def _sections(comparison: GpuComparison) -> Iterator[Section]:
    contenders = comparison.contenders
    runs = [replace(c.run, label=c.title) for c in contenders]
    scales = [device_scale(run, comparison.per) for run in runs]
    yield Section(
        "ranking",
        "Throughput of one device",
        blocks=[_ranking(comparison)],
        help="Runs of several devices count for one of them.",
    )
    yield Section(
        "phases",
        f"Where the time of a {comparison.per} goes",
        blocks=[phase_bars(runs, scales, f"ms per {comparison.per}")],
        help="Each bar is the time that one device takes for one "
        f"{comparison.per}, as traced. Its pieces are exclusive: at each instant the GPU is in one "
        "of them, so they add up to the step. Times that are taken on the host do not: a range "
        "contains all that runs inside it. An optimizer step that is given a closure contains "
        "forward and backward, and a range that ends with a synchronisation contains the wait for "
        "all work before it; add such times up, and the same milliseconds count twice.",
    )
    if explained := list(_explained(comparison)):
        yield Section(
            "peaks",
            "Speed against the peaks of the hardware",
            blocks=explained,
            help="A workload that one resource limits is as fast as its peak is high: its points "
            "lie on the dashed line. Compute is the time in kernels, communication left out. Where "
            "there is no TF32, its column has the fp32 peak, which then counts.",
        )
    yield Section(
        "hardware",
        "The devices and their peaks",
        blocks=[_hardware(comparison), *([found] if (found := _sources(contenders)).rows else [])],
        help="Peaks are dense, at boost clock, from the table of GPUs; a MIG slice or a die of a "
        "package has its part of them: of the multiprocessors for the rates, of the memory for "
        "the bandwidth. So a slice of a large GPU can be as fast as a smaller GPU as a whole. "
        "Matrices ran in the precision that the names of most of their kernels tell.",
        folded=True,
        brief=False,
    )
    yield Section(
        "shares", "What holds the runs back", blocks=[shares(runs)], folded=True, brief=False
    )
    yield runs_section(runs)


def _ranking(comparison: GpuComparison) -> Table:
    """Rates where samples are known, else times; what no run has has no column."""
    contenders, per = comparison.contenders, comparison.per
    sampled = per == "sample"
    columns = {
        "samples/s" if sampled else "ms per step": [
            significant(c.rate if sampled else 1e3 / c.rate) for c in contenders
        ],
        "of the fastest": [percent(c.relative) for c in contenders],
        "waits for data": [percent(c.data_wait) for c in contenders],
        "$ per hour": [number(c.usd_per_hour) for c in contenders],
        f"$ per million {per}s": [number(c.usd_per_million) for c in contenders],
    }
    known = {name: cells for name, cells in columns.items() if not {*cells} <= NOTHING}
    rows = [[c.title, *(cells[n] for cells in known.values())] for n, c in enumerate(contenders)]
    numeric = frozenset(range(1, len(known) + 1))
    caption = "Runs by throughput of one device"
    return Table(caption, ["run", *known], rows, numeric, most=len(rows))


def _precision(contender: Contender) -> str:
    ran = NOT_OBSERVED if contender.ran is None else RAN_WORDS[contender.ran]
    return ran if contender.precision is None else f"{ran} (asked: {contender.precision})"


def _hardware(comparison: GpuComparison) -> Table:
    """What ran and how fast, beside the peaks of the device."""
    contenders = comparison.contenders
    columns = {
        "SMs or CUs": [c.part or NOT_OBSERVED for c in contenders],
        "compute ms": [number(c.compute_ms) for c in contenders],
        "matrices in": [_precision(c) for c in contenders],
        "TFLOP/s": [number(c.achieved_tflops) for c in contenders],
        "of peak": [percent(c.efficiency) for c in contenders],
        **{PEAK_COLUMNS[name]: [number(c.peaks.get(name)) for c in contenders] for name in PEAKS},
    }
    known = {name: cells for name, cells in columns.items() if not {*cells} <= NOTHING}
    rows = [[c.title, *(cells[n] for cells in known.values())] for n, c in enumerate(contenders)]
    numeric = frozenset(n for n, name in enumerate(known, 1) if name != "matrices in")
    caption = "Compute time beside dense peaks, TFLOP/s"
    return Table(caption, ["run", *known], rows, numeric, most=len(rows))


def _explained(comparison: GpuComparison) -> Iterator[Table | Chart]:
    if comparison.fits:
        yield Table(
            "How well each peak explains the compute times, best first",
            ("peak", "pairs in its order", "time × peak differs by", "slope", "r²"),
            [
                [
                    PEAK_HEADS[fit.peak],
                    f"{50 * (1 + fit.agreement):.0f} %",
                    times(fit.spread),
                    f"{fit.slope:.2f}",
                    f"{fit.r2:.2f}",
                ]
                for fit in comparison.fits
            ],
            frozenset({1, 2, 3, 4}),
        )
        yield _curves(comparison)
    elif comparison.ratios:
        yield Table(
            "Fastest over slowest",
            ("", "ratio"),
            [
                [PEAK_HEADS.get(name, "compute speed"), times(comparison.ratios[name])]
                for name in ("compute", *PEAKS)
                if name in comparison.ratios
            ],
            frozenset({1}),
        )


def _curves(comparison: GpuComparison) -> Chart | Table:
    """Speed by peak, both relative to the slowest device."""
    lines, most = [], 1.0
    for fit in comparison.fits:
        known = [
            (peak, 1 / c.compute_ms)
            for c in comparison.contenders
            if c.compute_ms and (peak := c.peaks.get(fit.peak)) is not None
        ]
        first = min(known, key=lambda point: point[1])
        points = sorted((peak / first[0], speed / first[1]) for peak, speed in known)
        lines.append(Line(PEAK_HEADS[fit.peak], points))
        most = max(most, *(value for point in points for value in point))
    lines.append(Line("proportional", [(1.0, 1.0), (most, most)], dashed=True))
    return curves(
        "chart-peaks",
        "Compute speed against each peak, relative to the slowest device",
        "peak, relative",
        "compute speed, relative",
        lines,
        log=True,
    )


def _sources(contenders: Sequence[Contender]) -> Table:
    rows = dict.fromkeys(
        (c.device, c.hardware.name, c.hardware.matched, c.hardware.source)
        for c in contenders
        if c.hardware is not None
    )
    head = ("device", "in the table", "recognised by", "source")
    return Table("Sources of the peaks", head, [*rows])
