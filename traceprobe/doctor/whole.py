"""Checks of all inputs together: can a verdict be given, and what does it lean on?"""

from __future__ import annotations

from traceprobe.doctor.check import Checks, Judgement, absent
from traceprobe.doctor.evidence import THRESHOLDS, Whole
from traceprobe.formatting import counted, percent, significant
from traceprobe.model.taxonomy import BOUND_LABELS
from traceprobe.records.diagnosis import CheckStatus
from traceprobe.verdict.compared_steps import HEAVY
from traceprobe.verdict.thresholds import FIXED
from traceprobe.verdict.wording import sure_percent

SURE_MARKER = 0.8
"""Confidence of a marker that was set by the program, not guessed."""


CHECKS = Checks[Whole]()


@CHECKS.add(
    "step-marker",
    tests="What tells the iterations apart. Fails where nothing does and there is no verdict, "
    "warns where there is one, and where steps are guessed by the loader's calls or by "
    "kernels.",
    meaning="Without steps the whole capture, start and end included, is one window: a verdict "
    "is given only if one cause fills half of it, and nothing is known per step. A guessed "
    "marker may cut steps at the wrong place.",
    fix="Call `prof.step()` each iteration, annotate steps (`step 0`, `step 1`, …), or name "
    "the ranges with `--step REGEX`.",
)
def _steps(whole: Whole) -> Judgement:
    markers = [rank.step_marker for rank in whole.report.ranks]
    without = sum(marker is None for marker in markers)
    if without:
        status: CheckStatus = "fail" if whole.report.verdict.bound == "inconclusive" else "warn"
        return status, f"{without} of {len(markers)} ranks have no step marker"
    known = [marker for marker in markers if marker is not None]
    weakest = min(known, key=lambda marker: marker.confidence)
    text = f"steps are marked by {_KINDS[weakest.kind]}, {weakest.count} of them"
    return ("ok" if weakest.confidence >= SURE_MARKER else "warn"), text


_KINDS = {
    "user": "the given pattern",
    "range": "ranges that count up",
    "optimizer": "the ends of optimizer steps",
    "dataloader": "the starts of the loader's next",
    "kernels": "bursts of optimizer kernels",
}


@CHECKS.add(
    "iterations",
    tests="Iterations that can be used. Fails below 3, warns below 8.",
    meaning="Below 3 only what fills half of the time decides. With few iterations a single slow "
    "one, such as a loader's stall, moves every share, and nothing shows whether it is typical.",
    fix="Record more steps: `schedule(wait=1, warmup=2, active=8)`, `traceprobe profile "
    "--active 16`.",
)
def _iterations(whole: Whole) -> Judgement:
    marked = [rank for rank in whole.report.ranks if rank.step_marker is not None]
    if not marked:
        return absent("no step marker")
    used = min(rank.summary.iterations_used for rank in marked)
    of = min(rank.iteration_count for rank in marked)
    text = f"{counted(used, 'iteration')} can be used, of {of:,}"
    if used < THRESHOLDS.min_iterations:
        return "fail", text
    few = any(term.name == "few-iterations" for term in whole.report.verdict.confidence_terms)
    return ("warn" if few else "ok"), text


@CHECKS.add(
    "calibration",
    tests="Whether the step time without a profiler is known. Warns where it is not, the "
    "profiler recorded operators, stacks or memory, and overhead has 5 % of the time or more.",
    meaning="Overhead cannot be corrected for what the profiler adds: `overhead` may be too "
    "high, `io` too low, since a slowed host gives the loader time.",
    fix="Record with `traceprobe profile`, which measures it, or give `--unprofiled-step-ms`.",
)
def _calibration(whole: Whole) -> Judgement:
    effect = whole.report.quality.observer_effect
    if effect is not None:
        return "ok", f"{significant(effect.unprofiled_step_ms)} ms a step without a profiler"
    if whole.calibrated:
        return "unknown", "the file has a calibration, but no steps to compare it with"
    heavy = sorted(whole.profiled & HEAVY)
    if not heavy:
        return absent("nothing shows a profiler that slows the host")
    overhead = whole.report.verdict.shares.get("overhead", 0.0)
    if overhead < THRESHOLDS.notable:
        return "ok", f"no calibration, but overhead is only {percent(overhead)}"
    return "warn", (
        f"no calibration; the profiler recorded {', '.join(heavy)}, and overhead is "
        f"{percent(overhead)}"
    )


@CHECKS.add(
    "observer-effect",
    tests="The step under the profiler against the step without. Warns from 1.1 times on, "
    "where the verdict is corrected; fails where it is unknown and overhead decides.",
    meaning="Host time is inflated: the captured shares have too much `overhead`. Where it is "
    "unknown by how much, the verdict may be the profiler's and not the run's.",
    fix="Where the step without a profiler is not known, give `--unprofiled-step-ms`. Record with "
    "Nsight Systems (`traceprobe profile --backend nsys`), which slows the host less.",
)
def _observer(whole: Whole) -> Judgement:
    report = whole.report
    effect = report.quality.observer_effect
    if effect is not None:
        text = f"the step takes {effect.ratio:.2f} times as long under the profiler"
        return ("warn" if effect.ratio >= FIXED.distortion else "ok"), text
    if any(term.name == "observer-effect" for term in report.verdict.confidence_terms):
        return "fail", "overhead decides the verdict, and the profiler's part in it is unknown"
    if whole.profiled & HEAVY:
        return "unknown", "the step time without a profiler is unknown; overhead does not decide"
    return absent("nothing shows a profiler that slows the host")


@CHECKS.add(
    "ranks-complete",
    tests="Ranks that are given, of those that the files speak of. Warns where some are not.",
    meaning="Slow communication cannot be distinguished from waiting for a rank that is not there: "
    "`communication` may be too high.",
    fix="Give the files of all ranks: `traceprobe analyze FOLDER`.",
)
def _ranks(whole: Whole) -> Judgement:
    run = whole.report.run
    if run is None:
        return absent("nothing shows several ranks")
    given = len({rank.rank for rank in whole.report.ranks})
    text = f"{given} of {run.world_size} ranks are given"
    return ("warn" if given < run.world_size else "ok"), text


@CHECKS.add(
    "collectives-matched",
    tests="Whether the collectives of several ranks match each other. Warns where not.",
    meaning="Waiting for other ranks counts as communication: `communication` is too high, "
    "and no straggler is named.",
    fix="Give the files of one run, captured over the same steps.",
)
def _matched(whole: Whole) -> Judgement:
    report = whole.report
    communicate = [r for r in report.ranks if r.summary.communication is not None]
    if len(report.ranks) < 2 or report.run is None or not communicate:
        return absent("no collectives of several ranks")
    if report.run.transfer_ns is None:
        return "warn", "the collectives of the ranks do not match each other"
    return "ok", f"{report.run.collectives_matched:,} collectives were matched between the ranks"


@CHECKS.add(
    "verdict",
    tests="Whether a verdict is given. Fails where not, warns where its confidence is below 50 %.",
    meaning="The evidence does not carry an answer, or hardly; the checks above say why.",
    fix="Mend what is warned of above; of several things steps, launches and calibration first.",
)
def _verdict(whole: Whole) -> Judgement:
    verdict = whole.report.verdict
    if verdict.bound == "inconclusive":
        return "fail", f"no verdict: {verdict.missing[0]}" if verdict.missing else "no verdict"
    text = f"{BOUND_LABELS[verdict.bound]}, confidence {sure_percent(verdict.confidence)}"
    return ("ok" if verdict.confidence >= FIXED.fairly_sure else "warn"), text
