"""From a report to the record of a prediction, and to what single changes would give."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.compare.run import Observed, rounded, summarize
from traceprobe.errors import ImpossibleChange
from traceprobe.formatting import significant
from traceprobe.records.report import Message
from traceprobe.records.whatif import NOTHING, SAME, Buckets, Calibration, Predicted, WhatIf
from traceprobe.replay.predict import Playable, Prediction, predict, prepare
from traceprobe.replay.scenario import Changes
from traceprobe.version import __version__

TWICE = ("forward", "backward", "recompute", "optimizer", "host", "loader", "communication", "h2d")
MENU = (
    *(Changes(removed=frozenset({name})) for name in ("data-wait", "sync", "host", "skew")),
    *(Changes(overlapped=frozenset({name})) for name in ("h2d", "communication")),
    *(Changes(speedup={name: 2.0}) for name in TWICE),
    Changes(micro_batches=2.0),
)
"""Changes to look at where none is asked for."""


def what_if(run: Observed, asked: Changes | None) -> WhatIf:
    """What changes would make of a run; without any, what each of `MENU` would.

    Raises:
        ImpossibleChange: the report cannot be played, or has not what is to be changed.
    """
    played = prepare(run.report)
    told = predict(played, asked or Changes())
    rows = [
        _row(played, changes, found)
        for changes in (MENU if asked is None else _single(asked))
        if (found := _possible(played, changes)) is not None
    ]
    rows.sort(key=lambda row: -row.speedup)
    return WhatIf(
        schema_version=WhatIf.SCHEMA_VERSION,
        traceprobe_version=__version__,
        headline=_headline(played, told, asked, rows),
        run=summarize(run),
        now_ms=rounded(played.now),
        asked=None if asked is None else _row(played, asked, told),
        alone=rows,
        buckets=None if asked is None else _buckets(told, asked),
        calibration=Calibration(
            played_ms=rounded(played.base.played_ns / 1e6),
            host=round(played.base.host, 4),
            host_known=played.base.host_known,
            held_up=round(played.base.held_up, 4),
            collectives=round(played.base.collectives, 4),
            rest=round(played.base.factor, 4),
        ),
        cautions=list(_cautions(played, told, asked)),
    )


def _single(asked: Changes) -> Iterator[Changes]:
    """Each of several changes by itself."""
    for name in sorted(asked.removed):
        yield Changes(removed=frozenset({name}))
    for name in sorted(asked.overlapped):
        yield Changes(overlapped=frozenset({name}))
    for name, factor in sorted(asked.speedup.items()):
        yield Changes(speedup={name: factor})
    if asked.bucket_mb is not None:
        yield Changes(bucket_mb=asked.bucket_mb)
    if asked.micro_batches > 1:
        yield Changes(micro_batches=asked.micro_batches)
    if asked.accumulate > 1:
        yield Changes(accumulate=asked.accumulate)


def _possible(run: Playable, changes: Changes) -> Prediction | None:
    try:
        return predict(run, changes)
    except ImpossibleChange:
        return None


def _row(run: Playable, changes: Changes, found: Prediction) -> Predicted:
    return Predicted(
        changes=changes.words(),
        step_ms=rounded(found.predicted),
        low_ms=rounded(found.low),
        high_ms=rounded(found.high),
        speedup=round(changes.accumulate * run.now / found.predicted, 4),
    )


def _buckets(told: Prediction, asked: Changes) -> Buckets | None:
    if asked.bucket_mb is None or told.links is None:
        return None
    return Buckets(
        limit_mb=asked.bucket_mb,
        bytes=told.sizes,
        before_bytes=told.sizes_before,
        gbps=rounded(told.links.gbps),
        latency_us=rounded(told.links.latency_us) if told.links.latency_known else None,
        fit_error=round(told.links.error, 4),
    )


def _headline(
    run: Playable, told: Prediction, asked: Changes | None, alone: list[Predicted]
) -> str:
    now = significant(run.now)
    if asked is not None:
        words, batches = " and ".join(asked.words()), asked.accumulate
        step = "a step" if batches == 1 else f"a step of {batches} batches"
        before = f"{significant(batches * run.now)} ms"
        speedup = batches * run.now / told.predicted
        then = f"{significant(told.predicted)} ms {_between(told)}"
        if abs(speedup - 1) <= SAME:
            return f"With {words}, {step} would take as long as now: {then}."
        instead = f"instead of {before}" if batches == 1 else f"; {batches} steps now take {before}"
        return f"With {words}, {step} would take {then} {instead}.".replace(" ;", ";")
    if not alone or alone[0].speedup <= 1 + SAME:
        return f"A step takes {now} ms. None of the single changes would make it clearly shorter."
    first = alone[0]
    return (
        f"A step takes {now} ms. The best single change, {first.changes[0]}, would make it "
        f"{significant(first.step_ms)} ms."
    )


def _between(told: Prediction) -> str:
    """The interval; one that begins at next to nothing says only what the step is at most."""
    if told.low <= NOTHING * told.predicted:
        return f"(at most {significant(told.high)} ms)"
    return f"({significant(told.low)} to {significant(told.high)} ms)"


def _cautions(run: Playable, told: Prediction, asked: Changes | None) -> Iterator[Message]:
    if run.late_loader:
        yield Message(
            "loader-speed",
            "The loader was late, so its pace is known: at most one batch in "
            f"{significant(run.now)} ms, whatever the GPU does.",
        )
    else:
        yield Message(
            "loader-unknown",
            "The loader was never late, so it is not known how much shorter than now a step may "
            "get before it has to wait for data.",
        )
    effect = run.report.quality.observer_effect
    if effect is None or effect.other_conditions:
        yield Message(
            "profiled-step",
            "The step without a profiler is not known: the prediction is of a profiled "
            "run, whose host is slower. Record with `traceprobe profile`, or give "
            "`--unprofiled-step-ms` to `traceprobe analyze`.",
        )
    if len(run.base.schedules) < run.ranks:
        yield Message(
            "one-rank",
            f"Only {len(run.base.schedules)} of {run.ranks} ranks are played: collectives keep the "
            "time that they waited for the others.",
        )
    if asked is not None and "communication" in asked.removed:
        yield Message(
            "kernels-beside",
            "Kernels beside collectives get faster without them, and DDP's copies of gradients "
            "into buckets and back go away. How much faster is told by the same kernels elsewhere "
            "in the trace, else by measurements on other hardware.",
        )
    if len(told.sizes) > len(told.sizes_before):
        yield Message(
            "uncut-gradients",
            "Buckets are cut evenly here; a gradient larger than the limit cannot be cut.",
        )
