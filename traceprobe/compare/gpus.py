"""The same workload on several devices: which is fastest, and what of the hardware explains it.

Everything is per device and per sample: runs of different batch sizes and world sizes then compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceprobe.compare import gpus_text as words
from traceprobe.compare.compare import LEVEL
from traceprobe.compare.noise import difference, period, whole_periods
from traceprobe.compare.peaks import Point, best, fits, peaks_of, ratios
from traceprobe.compare.run import Observed, summarize
from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.records.comparison import Per, RunSummary
from traceprobe.records.gpus import Contender, GpuComparison, Hardware, Ran, device_scale
from traceprobe.verdict import gpu_specs as gpus
from traceprobe.verdict.precision import ran
from traceprobe.version import __version__


class UnknownPrice(ValueError):
    """A price for what no run is; the message says what there is."""


def compare_gpus(
    runs: Sequence[Observed], prices: Mapping[str, float] | None = None
) -> GpuComparison:
    """Runs of a workload, ranked by throughput.

    Args:
        runs: at least one.
        prices: US dollars per hour of one device, by label of a run or name of a device.

    Raises:
        UnknownPrice: a name in `prices` is that of no run and no device.
    """
    per: Per = "sample" if all(run.per_step("samples") for run in runs) else "step"
    hardware = [_hardware(run) for run in runs]
    hourly = _prices(runs, hardware, prices or {})
    fastest = max(_rate(run, per) for run in runs)
    half = "bf16" if any(_asked(summarize(run)) == "bf16" for run in runs) else "fp16"
    unordered = [
        _contender(run, device, half, per, fastest, hourly.get(place))
        for place, (run, device) in enumerate(zip(runs, hardware, strict=True))
    ]
    order = sorted(range(len(runs)), key=lambda place: -unordered[place].rate)
    contenders = [unordered[place] for place in order]
    known = [Point(1 / c.compute_ms, c.peaks) for c in contenders if c.compute_ms and c.peaks]
    fitted = fits(known)
    explaining = best(fitted) if words.of_one_precision(contenders) else []
    leads = len(order) < 2 or _leads(runs[order[0]], runs[order[1]], per)
    return GpuComparison(
        schema_version=GpuComparison.SCHEMA_VERSION,
        traceprobe_version=__version__,
        per=per,
        headline=words.headline(contenders, per, leads=leads),
        contenders=contenders,
        ratios=ratios(known),
        fits=fitted,
        explained_by=explaining[0].peak if explaining else None,
        explanation=words.explanation(contenders, known, fitted, explaining),
        points=words.points(contenders, [runs[place] for place in order], per),
        cautions=list(words.cautions(contenders, per)),
    )


def _rate(run: Observed, per: Per) -> float:
    return 1e3 / (run.best_step_ms * device_scale(summarize(run), per))


def _contender(
    run: Observed,
    hardware: Hardware | None,
    half: str,
    per: Per,
    fastest: float,
    price: float | None,
) -> Contender:
    summary = summarize(run)
    rate = _rate(run, per)
    asked = _asked(summary)
    matrices = ran(rank.summary.kernel_ns for rank in run.report.ranks)
    flops = run.per_step("flops")
    achieved = None if flops is None else flops / run.best_step_ms / run.world_size / 1e9
    peak = _peak(hardware, matrices, asked)
    known = [v for name in COMPUTE_PHASES if (v := summary.partition_ms.get(name)) is not None]
    wait = summary.partition_ms.get("idle_data_wait")
    return Contender(
        run=summary,
        device=", ".join(summary.devices),
        hardware=hardware,
        peaks={} if hardware is None else peaks_of(hardware, half),
        rate=round(rate, 6),
        relative=round(rate / fastest, 6),
        compute_ms=round(sum(known) * device_scale(summary, per), 6) if sum(known) > 0 else None,
        data_wait=None if wait is None else round(wait / summary.traced_step_ms, 6),
        precision=asked,
        ran=matrices,
        achieved_tflops=None if achieved is None else round(achieved, 4),
        efficiency=round(achieved / peak, 4) if achieved is not None and peak else None,
        usd_per_hour=price,
        usd_per_million=None if price is None else round(price * 1e6 / (3600 * rate), 6),
    )


def _hardware(run: Observed) -> Hardware | None:
    """The device of a run in the table of GPUs; None where it has several kinds of them."""
    known = [gpus.find_gpu(*facts) for facts in {rank.device.facts for rank in run.report.ranks}]
    gpu = known[0] if known else None
    same = all(g is not None and gpu is not None and _alike(g, gpu) for g in known)
    if gpu is None or not same:
        return None
    return Hardware(
        name=gpu.name,
        slice=gpu.slice,
        part=round(gpu.part, 6),
        multiprocessors=gpu.multiprocessors,
        peaks_tflops={name: round(peak, 4) for name, peak in gpu.peaks.items()},
        bandwidth_gbps=None if gpu.bandwidth_gbps is None else round(gpu.bandwidth_gbps, 2),
        matched=gpu.matched,
        source=gpu.source,
        year=gpu.year,
    )


def _alike(one: gpus.Gpu, other: gpus.Gpu) -> bool:
    return (one.name, one.slice, one.part) == (other.name, other.slice, other.part)


def _asked(summary: RunSummary) -> str | None:
    asked = summary.settings.get("precision")
    return asked if isinstance(asked, str) else None


def _peak(hardware: Hardware | None, matrices: Ran | None, asked: str | None) -> float | None:
    """The peak of the precision that ran."""
    if hardware is None or matrices is None:
        return None
    half = "bf16" if asked == "bf16" else "fp16"
    return hardware.peaks_tflops.get(half if matrices == "half" else matrices)


def _leads(first: Observed, second: Observed, per: Per) -> bool:
    """Whether the first is faster by more than the noise of the steps, which the traces tell."""
    steps = [run.step_ms * device_scale(summarize(run), per) for run in (first, second)]
    periods = period(steps[0]), period(steps[1])
    whole = [whole_periods(*pair) for pair in zip(steps, periods, strict=True)]
    lead = difference(whole[0], whole[1], LEVEL, periods)
    noise = max(lead.high - lead.delta, lead.delta - lead.low, lead.floor)
    return 1e3 / _rate(second, per) - 1e3 / _rate(first, per) > noise


def _prices(
    runs: Sequence[Observed], hardware: Sequence[Hardware | None], prices: Mapping[str, float]
) -> dict[int, float]:
    """The price of each run's devices, by place. The label of a run goes before names."""
    names = [_names(run, device) for run, device in zip(runs, hardware, strict=True)]
    hourly: dict[int, float] = {}
    labels = {run.label.casefold() for run in runs}
    for name, price in sorted(prices.items(), key=lambda item: item[0].casefold() in labels):
        places = [place for place, known in enumerate(names) if _plain(name) in known]
        if not places:
            there = sorted({run.label for run in runs} | {d.name for d in hardware if d})
            raise UnknownPrice(f"{name}: no run and no device has this name; {', '.join(there)} do")
        hourly |= dict.fromkeys(places, price)
    return hourly


def _names(run: Observed, hardware: Hardware | None) -> set[str]:
    """What a run or its device may be called."""
    names = [run.label, *(r.device.name or "" for r in run.report.ranks)]
    if hardware is not None:
        names.append(f"{hardware.name} MIG {hardware.slice}" if hardware.slice else hardware.name)
    return {_plain(name) for name in names if name}


def _plain(name: str) -> str:
    return " ".join(name.casefold().split()).removeprefix("nvidia ")
