"""What bounds a loop by ablation alone: what goes away when a part is taken out.

A step of the whole loop is cut in four by taking out one part after the other:

    io             full − synthetic           waiting for the loader, and copies that nothing hides
    communication  synthetic − synthetic without communication
    overhead       what is left − the GPU's busy time in it: the host is not fast enough
    compute        the GPU's busy time

`synthetic` is the variant with batches on the device, or in host memory where there is no GPU; the
whole loop where no loader of it is known, which then has no share of io. Where nothing could be
taken out, and there is no GPU, nothing says what the step is spent on; nor where the share that
bounds it is not worth mentioning at the lower end of its interval. The thresholds are those of the
verdict from a trace, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from traceprobe.formatting import listed, significant
from traceprobe.model.taxonomy import SHARE_LABELS
from traceprobe.records.ablation import (
    AblationBound,
    AblationVerdict,
    Interval,
    Overlap,
    Share,
    VariantName,
)
from traceprobe.verdict.bounds import CANDIDATES, by_threshold
from traceprobe.verdict.thresholds import FIXED, Thresholds

RESAMPLES = 2000
SEED = 20
Floats = npt.NDArray[np.float64]
Trials = Mapping[VariantName, Floats]
"""Step times of the trials of each variant, ms, all equally many and taken in turns."""


def interval(values: Floats) -> Interval:
    """Median, its 95 % bootstrap interval, and the 10th and 90th percentile."""
    medians = np.median(values[_samples(len(values))], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    p10, p90 = np.percentile(values, [10, 90])
    return Interval(
        median=_round(np.median(values)),
        low=_round(low),
        high=_round(high),
        p10=_round(p10),
        p90=_round(p90),
    )


def overlap(trials: Trials) -> Overlap | None:
    """Where the whole loop lies between loading then training, and both at once."""
    bare = trials.get("synthetic-host", trials.get("synthetic-device"))
    if bare is None or "io" not in trials:
        return None
    return position(*(1e3 / float(np.median(t)) for t in (trials["io"], bare, trials["full"])))


def position(io: float, synthetic: float, full: float) -> Overlap:
    """Overlap of three throughputs in the same unit."""
    serial, parallel = 1 / (1 / io + 1 / synthetic), min(io, synthetic)
    wide = parallel - serial > FIXED.overlap_contrast * parallel
    return Overlap(
        serial=_round(serial),
        full=_round(full),
        parallel=_round(parallel),
        position=round((full - serial) / (parallel - serial), 4) if wide else None,
    )


def judge_ablation(
    trials: Trials, busy_ms: float | None, thresholds: Thresholds
) -> AblationVerdict:
    """The bound of a loop by its ablation.

    Args:
        busy_ms: busy time of the GPU in a synthetic step; None where there is no GPU, or where
            collectives in that step leave open what the rest of it is.
    """
    shares = _shares({name: np.median(t, keepdims=True) for name, t in trials.items()}, busy_ms)
    rows = _samples(len(trials["full"]))
    # One draw of rounds for all variants: they took turns, and drift together.
    drawn = _shares({name: np.median(t[rows], axis=1) for name, t in trials.items()}, busy_ms)
    known = {
        name: Share(
            value=_round(value[0]),
            low=_round(np.percentile(drawn[name], 2.5)),
            high=_round(np.percentile(drawn[name], 97.5)),
        )
        for name, value in shares.items()
    }
    values = {name: known[name].value if name in known else 0.0 for name in CANDIDATES}
    decision = by_threshold(values, thresholds)
    bound: AblationBound = "compute" if decision.bound == "inconclusive" else decision.bound
    reasons = _reasons(trials, busy_ms)
    unsure = [
        name for name in decision.deciding if name in known and known[name].low < thresholds.notable
    ]
    if unsure:
        reasons.append(
            f"the share of {listed([SHARE_LABELS[name] for name in unsure])} varies from trial to "
            "trial down to nothing worth mentioning: run more trials, or on a quieter machine"
        )
    return AblationVerdict(
        bound=bound if known and not unsure else "inconclusive",
        secondary=None if unsure else decision.secondary,
        margin=round(decision.margin, 6),
        shares={name: known.get(name) for name in (*CANDIDATES, "compute")},
        reasons=reasons,
        thresholds=thresholds.as_dict(),
    )


def bare_variant(variants: Container[VariantName]) -> VariantName:
    """The variant without loading and copying that this program has; `full` where it loads none."""
    found: tuple[VariantName, ...] = ("synthetic-device", "synthetic-host")
    return next((name for name in found if name in variants), "full")


def _shares(step: Mapping[VariantName, Floats], busy: float | None) -> dict[str, Floats]:
    """Fractions of the whole step that are known; never below 0, which would be noise.

    Args:
        step: step times of each variant, all equally many.
    """
    full, fed = step["full"], bare_variant(step)
    alone: VariantName = "full-no-comm" if fed == "full" else "synthetic-no-comm"
    if fed == "full" and alone not in step and busy is None:
        return {}
    synthetic = np.minimum(step[fed], full)
    bare = np.minimum(step.get(alone, synthetic), synthetic)
    work = bare if busy is None else np.minimum(busy, bare)
    shares = {"compute": work / full}
    if fed != "full":
        shares["io"] = (full - synthetic) / full
    if alone in step:
        shares["communication"] = (synthetic - bare) / full
    if busy is not None:
        shares["overhead"] = (bare - work) / full
    return shares


def _reasons(trials: Trials, busy_ms: float | None) -> list[str]:
    step = {name: float(np.median(t)) for name, t in trials.items()}
    full, bare = step["full"], bare_variant(trials)
    without = {
        "full": "",
        "synthetic-host": f", {significant(step[bare])} ms without loading",
        "synthetic-device": f", {significant(step[bare])} ms without loading and copying",
    }
    sentences = [f"{significant(full)} ms a step with everything{without[bare]}"]
    if bare == "full" and "full-no-comm" not in step and busy_ms is None:
        sentences.append("nothing could be taken out of it, so nothing says what it is spent on")
    if full < FIXED.disturbed * step[bare]:
        sentences.append(
            "training without loading took longer, which must be a disturbance: measure again"
        )
    if "synthetic-host" in step and bare == "synthetic-device":
        sentences.append(
            f"the copy to the device costs {significant(step['synthetic-host'] - step[bare])} ms"
        )
    if "io" in step:
        slower = step["io"] > step[bare]
        needs = f"{step['io']:.2f}" if step["io"] >= 0.01 else "less than 0.01"
        sentences.append(
            f"the loader alone needs {needs} ms a step, "
            + ("more" if slower else "less")
            + " than training does"
        )
    alone: VariantName = "full-no-comm" if bare == "full" else "synthetic-no-comm"
    if alone in step:
        sentences.append(f"{significant(step[alone])} ms without communication")
    if busy_ms is not None:
        sentences.append(f"the GPU is busy for {significant(busy_ms)} ms of a step")
    if "full-fused" in step:
        sentences.append(
            f"with fused optimizers {significant(step['full-fused'])} "
            f"ms{_change(trials, 'full-fused')}"
        )
    if "full-regular" in step:
        sentences.append(
            f"{significant(step['full-regular'])} ms without iterations that are rare and long, "
            f"such as evaluations and beginnings of epochs{_change(trials, 'full-regular')}"
        )
    return sentences


def _change(trials: Trials, name: VariantName) -> str:
    """By how much a variant differs from the whole loop, with its 95 % interval, in brackets."""
    rows = _samples(len(trials["full"]))
    change = np.median(trials[name][rows], axis=1) / np.median(trials["full"][rows], axis=1) - 1
    low, high = np.percentile(100 * change, [2.5, 97.5])
    return f" ({low:+.1f} to {high:+.1f} %)"


def _samples(count: int) -> npt.NDArray[np.int64]:
    """Rows drawn with replacement, the same in every run."""
    return np.random.default_rng(SEED).integers(count, size=(RESAMPLES, count))


def _round(value: float | np.floating[Any]) -> float:
    return round(float(value), 6)
