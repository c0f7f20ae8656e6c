"""GPUs beside each other, in sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from traceprobe.formatting import NOT_OBSERVED, number, percent, significant
from traceprobe.records.gpus import PEAKS, Contender, GpuComparison, device_scale
from traceprobe.render.charts import Line, curves
from traceprobe.render.document import Chart, Document, Section, Table
from traceprobe.render.pages.comparison import named_inputs, phase_bars, runs_section, shares

PEAK_HEADS = {
    "fp32": "fp32",
    "tf32": "TF32",
    "half": "16-bit",
    "bandwidth": "memory bandwidth",
}
RAN_WORDS = {"fp32": "fp32", "tf32": "TF32", "half": "16-bit"}


def document(comparison: GpuComparison) -> Document:
    """The comparison for all outputs."""
    first = comparison.contenders[0]
    return Document(
        kind=comparison.kind,
        title=f"{len(comparison.contenders)} runs, fastest {first.run.label}",
        headline=comparison.headline,
        points=[comparison.explanation, *comparison.points],
        cautions=[caution.message for caution in comparison.cautions],
        sections=list(_sections(comparison)),
        inputs=named_inputs([c.run for c in comparison.contenders]),
        version=comparison.traceprobe_version,
        json=comparison.to_json(),
    )


def _sections(comparison: GpuComparison) -> Iterator[Section]:
    contenders = comparison.contenders
    runs = [replace(c.run, label=c.title) for c in contenders]
    scales = [device_scale(run, comparison.per) for run in runs]
    yield Section(
        "ranking",
        "Throughput of one device",
        blocks=[_ranking(comparison)],
        help="Runs of several devices count for one of them. Compute is the time in kernels, "
        "communication left out. Matrices ran in the precision that the names of most of their "
        "kernels tell.",
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
    yield Section(
        "peaks",
        "Speed against the peaks of the hardware",
        blocks=list(_peaks(comparison)),
        help="Peaks are dense, at boost clock, from the table of GPUs; a MIG slice or a die of a "
        "package has its part of them: of the multiprocessors for the rates, of the memory for "
        "the bandwidth. So a slice of a large GPU can be as fast as a smaller GPU as a whole. A "
        "workload that one resource limits is as fast as its peak is high: its points lie on the "
        "dashed line. Where there is no TF32, its column has the fp32 peak, which then counts.",
    )
    yield Section("shares", "What holds the runs back", blocks=[shares(runs)])
    yield runs_section(runs)
    sources = _sources(contenders)
    if sources.rows:
        title = "Where the peaks are from"
        yield Section("sources", title, blocks=[sources], folded=True, brief=False)


def _ranking(comparison: GpuComparison) -> Table:
    rate = "samples/s" if comparison.per == "sample" else "steps/s"
    priced = any(c.usd_per_million is not None for c in comparison.contenders)
    counted = any(c.achieved_tflops is not None for c in comparison.contenders)
    head = ["run", "device", rate, "of the fastest", "compute ms", "waits for data", "matrices in"]
    head += ["TFLOP/s", "of peak"] if counted else []
    head += ["$ per hour", f"$ per million {comparison.per}s"] if priced else []
    rows = [
        [
            c.run.label,
            c.device,
            significant(c.rate),
            percent(c.relative),
            number(c.compute_ms),
            percent(c.data_wait),
            _precision(c),
            *([number(c.achieved_tflops), percent(c.efficiency)] if counted else []),
            *([number(c.usd_per_hour), number(c.usd_per_million)] if priced else []),
        ]
        for c in comparison.contenders
    ]
    numeric = frozenset({2, 3, 4, 5, *range(7, len(head))})
    return Table("Runs by throughput of one device", head, rows, numeric, most=len(rows))


def _precision(contender: Contender) -> str:
    ran = NOT_OBSERVED if contender.ran is None else RAN_WORDS[contender.ran]
    return ran if contender.precision is None else f"{ran} (asked: {contender.precision})"


def _peaks(comparison: GpuComparison) -> Iterator[Table | Chart]:
    head = ("run", "SMs or CUs", "compute ms", "fp32", "TF32", "16-bit", "GB/s")
    rows = [
        [
            c.title,
            c.part or NOT_OBSERVED,
            number(c.compute_ms),
            *(number(c.peaks.get(name)) for name in PEAKS),
        ]
        for c in comparison.contenders
    ]
    caption = "Compute time beside dense peaks in TFLOP/s and memory bandwidth"
    yield Table(caption, head, rows, frozenset({2, 3, 4, 5, 6}), most=len(rows))
    if comparison.fits:
        yield Table(
            "How well each peak explains the compute times, best first",
            ("peak", "devices", "pairs in its order", "time × peak differs by", "slope", "r²"),
            [
                [
                    PEAK_HEADS[fit.peak],
                    str(fit.devices),
                    f"{50 * (1 + fit.agreement):.0f} %",
                    f"{significant(fit.spread)}×",
                    f"{fit.slope:.2f}",
                    f"{fit.r2:.2f}",
                ]
                for fit in comparison.fits
            ],
            frozenset({1, 2, 3, 4, 5}),
        )
        yield _curves(comparison)
    elif comparison.ratios:
        yield Table(
            "Least over most compute time: speed, and peaks that both devices have",
            ("", "ratio"),
            [
                [PEAK_HEADS.get(name, "compute speed"), f"{significant(comparison.ratios[name])}×"]
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
