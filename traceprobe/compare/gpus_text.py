"""What a comparison of GPUs says in sentences; they are for people and no part of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from traceprobe.compare.peaks import LEAST_DEVICES, Point, different
from traceprobe.compare.run import Observed
from traceprobe.compare.text import DERIVED
from traceprobe.formatting import significant, times
from traceprobe.records.comparison import Per
from traceprobe.records.gpus import Contender, Hardware, PeakFit
from traceprobe.records.report import Message

PEAK_WORDS = {
    "fp32": "fp32",
    "tf32": "TF32",
    "half": "16-bit",
    "bandwidth": "memory bandwidth",
}
RAN_WORDS = {
    "fp32": "in fp32 without tensor cores",
    "tf32": "in TF32",
    "half": "in 16 bits",
}
ASKED = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}
"""Settings and what should run."""
WAITS = 0.02
"""Part of the step from which waiting for data is told."""
AS_FAST = 1.15
"""Compute times within this factor are told as equal, of a slice and of a whole GPU."""
ROUNDED = 0.005
"""Part of a rate up to which two are told as equal."""
EXPECTED = {"batch_size", "workers", "ranks", "name", "device", "seed", "steps", *DERIVED}
"""Settings that may differ between machines: rates are per sample, waiting is told."""


def headline(contenders: Sequence[Contender], per: Per, *, leads: bool) -> str:
    """The fastest, by how much, and what bounds it.

    Args:
        leads: whether its lead over the next is more than noise.
    """
    first, last = contenders[0], contenders[-1]
    rate = pace_of(first.rate, per)
    if len(contenders) == 1:
        return f"{first.title}: {rate}"
    if leads:
        text = f"{first.title} is fastest: {rate}"
    else:
        text = f"{first.title} and {contenders[1].title} are equally fast, within the noise: {rate}"
    return f"{text}, {times(1 / last.relative)} as fast as {last.title}" if differs(last) else text


def differs(contender: Contender) -> bool:
    """Whether it is slower than the fastest by more than rounding hides."""
    return contender.relative < 1 - ROUNDED


def pace_of(rate: float, per: Per) -> str:
    """Samples per second of a device; where samples are not known there is no rate, but a time."""
    if per == "sample":
        return f"{significant(rate)} samples/s per device"
    return f"{significant(1e3 / rate)} ms per step"


def explanation(
    contenders: Sequence[Contender],
    known: Sequence[Point],
    fits: Sequence[PeakFit],
    explaining: Sequence[PeakFit],
) -> str:
    """Which peak explains the ranking, and how well."""
    if len(contenders) < 2:
        return "One run: there is no ranking to explain."
    if not fits:
        count = different(known)
        return (
            f"Which peak explains the ranking cannot be decided: that takes {LEAST_DEVICES} "
            f"different devices whose peaks are known, and here {'is' if count == 1 else 'are'} "
            f"{count or 'none'}."
        )
    if not of_one_precision(contenders):
        return (
            "Matrix kernels ran in different precisions, so no one peak can explain the compute "
            "times; run all devices in the same one."
        )
    if not explaining:
        best = PEAK_WORDS[fits[0].peak]
        return (
            f"No peak explains the compute times: even the best, {best}, orders only "
            f"{_agreeing(fits[0])} of the pairs of devices by their speeds."
        )
    first, *others = explaining
    text = (
        f"The {PEAK_WORDS[first.peak]} peak explains the compute times best: "
        f"{_agreeing(first)} of the pairs are in its order, and time × peak differs by a factor of "
        f"{significant(first.spread)} at most (1 is proportional; slope {significant(first.slope)}"
        f", r² {significant(first.r2)})."
    )
    if others:
        names = " and ".join(PEAK_WORDS[fit.peak] for fit in others)
        text += f" With these devices, {names} explains them as well."
    return text


def points(contenders: Sequence[Contender], runs: Sequence[Observed], per: Per) -> list[str]:
    """What a reader may ask about the ranking, most important first.

    Args:
        runs: those of the contenders.
    """
    return [
        *_cheapest(contenders, per),
        *_orders(contenders, per),
        *_slices(contenders, per),
        *_precisions(contenders),
        *_waiting(contenders, per),
    ]


def of_one_precision(contenders: Sequence[Contender]) -> bool:
    """Whether the matrices of all runs were of one precision, as far as it is known.

    A device without TF32 that ran in fp32 fits runs in either: that is how fast it is at both.
    """
    ran = {c.ran for c in contenders if c.ran is not None and not _without_tf32(c)}
    either = any(_without_tf32(c) for c in contenders)
    return len(ran) <= 1 and not (either and "half" in ran)


def _without_tf32(contender: Contender) -> bool:
    peaks = contender.hardware.peaks_tflops if contender.hardware is not None else {}
    return bool(peaks) and "tf32" not in peaks and contender.ran == "fp32"


def _agreeing(fit: PeakFit) -> str:
    return f"{50 * (1 + fit.agreement):.0f} %"


def _cheapest(contenders: Sequence[Contender], per: Per) -> Iterator[str]:
    priced = [c for c in contenders if c.usd_per_million is not None]
    if not priced:
        return
    best = min(priced, key=lambda c: c.usd_per_million or 0)
    text = f"Cheapest: {best.title}, ${significant(best.usd_per_million or 0)} a million {per}s"
    if len(priced) > 1:
        rest = max(priced, key=lambda c: c.usd_per_million or 0)
        text += f"; dearest {rest.title}, ${significant(rest.usd_per_million or 0)}"
    without = [c.run.label for c in contenders if c.usd_per_million is None]
    yield text + (f" (no price for {', '.join(without)})" if without else "")


def _waiting(contenders: Sequence[Contender], per: Per) -> Iterator[str]:
    waiting = [c for c in contenders if c.data_wait is not None and c.data_wait >= WAITS]
    if waiting:
        shares = ", ".join(f"{c.run.label} {100 * (c.data_wait or 0):.0f} %" for c in waiting)
        yield f"Waiting for data, of the step: {shares}{_workers(waiting)}"
    for c in waiting:
        if c.run.bound == "io" and c.data_wait is not None and c.data_wait < 1:
            alone = pace_of(c.rate / (1 - c.data_wait), per)
            yield (
                f"{c.title} is I/O-bound: its pace is that of its loader; without waiting it is "
                f"{'up' if per == 'sample' else 'down'} to {alone}"
            )


def _workers(contenders: Sequence[Contender]) -> str:
    """The workers of the loaders, in the order of the runs, or once where all are the same."""
    counts = [c.run.settings.get("workers") for c in contenders]
    if not all(isinstance(count, int) for count in counts):
        return ""
    shown = counts if len(set(counts)) > 1 else counts[:1]
    return f" (workers: {', '.join(map(str, shown))})"


def _orders(contenders: Sequence[Contender], per: Per) -> Iterator[str]:
    """Where the order by throughput is not that of the GPUs' own work."""
    timed = [c for c in contenders if c.compute_ms]
    by_compute = sorted(timed, key=lambda c: c.compute_ms or 0)
    if timed != by_compute:
        names = ", ".join(f"{c.title} {significant(c.compute_ms or 0)} ms" for c in by_compute)
        yield (
            f"By compute time alone the order differs: {names} per {per}; the rest of the step "
            "(waiting, copies, communication, launches) makes the difference"
        )


def _precisions(contenders: Sequence[Contender]) -> Iterator[str]:
    for c in contenders:
        expected = ASKED.get(c.precision or "")
        if c.ran is not None and expected is not None and c.ran != expected:
            yield (
                f"{c.title}: asked for {c.precision}, but its matrix kernels ran mostly "
                f"{RAN_WORDS[c.ran]}{'; it has no TF32' if _without_tf32(c) else ''}"
            )


def _slices(contenders: Sequence[Contender], per: Per) -> Iterator[str]:
    """Slices that are as fast as whole GPUs of another kind, and which peaks that follows from."""
    for one, other in combinations(contenders, 2):
        part, whole = (one, other) if _is_part(one) else (other, one)
        a, b = part.hardware, whole.hardware
        if a is None or b is None or not _is_part(part) or _is_part(whole) or a.name == b.name:
            continue
        if not part.compute_ms or not whole.compute_ms:
            continue
        times = part.compute_ms, whole.compute_ms
        if max(times) > AS_FAST * min(times):
            continue
        yield (
            f"{part.title} computes as fast as the whole {b.name} ({significant(times[0])} and "
            f"{significant(times[1])} ms per {per}): of {part.part} multiprocessors its peaks are "
            f"{_beside(a, b)}"
        )


def _beside(one: Hardware, other: Hardware) -> str:
    """The peaks of two devices, where both are known."""
    keys = (("fp32", "fp32"), ("tf32", "tf32"), ("half", "bf16"))
    rates = [
        f"{PEAK_WORDS[name]} {significant(x)} to {significant(y)}"
        for name, key in keys
        if (x := one.peaks_tflops.get(key)) and (y := other.peaks_tflops.get(key))
    ]
    peaks = [f"{', '.join(rates)} TFLOP/s"] if rates else []
    if one.bandwidth_gbps and other.bandwidth_gbps:
        pair = significant(one.bandwidth_gbps), significant(other.bandwidth_gbps)
        peaks.append(f"{pair[0]} to {pair[1]} GB/s")
    return ", ".join(peaks)


def _is_part(contender: Contender) -> bool:
    return contender.hardware is not None and contender.hardware.part < 1


def cautions(contenders: Sequence[Contender], per: Per) -> Iterator[Message]:
    """What to know before believing the ranking, by stable codes."""
    if per == "step":
        yield Message(
            "unknown-batches",
            "How many samples a step holds is not recorded for all runs, so times are per step: "
            "they compare only if all steps are of the same size.",
        )
    names = {c.run.settings["name"] for c in contenders if c.run.settings.get("name")}
    if len(names) > 1:
        yield Message(
            "different-workloads",
            f"The runs are of different workloads: {', '.join(sorted(map(str, names)))}.",
        )
    differ = _settings(contenders)
    if differ:
        yield Message(
            "different-settings",
            f"The runs differ in more than the device: {', '.join(differ)}.",
        )
    if not of_one_precision(contenders):
        precisions = ", ".join(f"{c.title} {RAN_WORDS[c.ran]}" for c in contenders if c.ran)
        yield Message(
            "different-precisions",
            f"Matrix kernels ran in different precisions: {precisions}.",
        )
    for c in contenders:
        if len(c.run.devices) > 1:
            yield Message(
                "mixed-devices",
                f"{c.run.label} ran on several kinds of devices ({c.device}): the slowest sets "
                "their pace, and no peaks are given.",
            )
        elif c.hardware is None:
            yield Message(
                "unknown-device",
                f"{c.run.label}: {c.device} is not in the table of GPUs, or what it says of itself "
                "contradicts the table. It is ranked, but has no peaks.",
            )
    if len({c.run.basis for c in contenders}) > 1:
        traced = ", ".join(c.run.label for c in contenders if c.run.basis == "traced")
        yield Message(
            "different-bases",
            f"Only some step times are without a profiler; those of {traced} come from the trace "
            "and may be longer.",
        )
    for c in contenders:
        if c.run.bound == "inconclusive":
            yield Message("inconclusive-verdict", f"The verdict of {c.run.label} is inconclusive.")


def _settings(contenders: Sequence[Contender]) -> list[str]:
    """Settings that all runs recorded, and not alike."""
    recorded = [c.run.settings for c in contenders]
    common = set.intersection(*(set(settings) for settings in recorded)) - EXPECTED
    return sorted(
        name for name in common if len({repr(settings[name]) for settings in recorded}) > 1
    )
