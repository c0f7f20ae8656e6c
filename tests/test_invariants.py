"""A report that contradicts itself is not written: every rule sees what breaks it."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.scenario import Process
from tests.cli_runner import Cli, write_trace
from traceprobe.errors import InternalError
from traceprobe.pipeline import rank_summary as assemble
from traceprobe.pipeline.invariants import verify

MS = 1_000_000
LOOP = {
    "steps": 8,
    "forward_ns": 4 * MS,
    "backward_ns": 8 * MS,
    "optimizer_ns": MS,
    "comm_ns": 9 * MS,
    "comm_overlap_ns": MS,
    "h2d_ns": 2 * MS,
    "world_size": 3,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three ranks, of which the last waits for its data."""
    folder = tmp_path_factory.mktemp("ranks")
    traces = []
    for number in range(3):
        wait = {"data_wait_ns": 9 * MS} if number == 2 else {}
        loop = Loop(**LOOP, **wait, process=Process(pid=1000 + number, rank=number))
        path = kineto.write(loop.scenario(), folder / f"rank{number}.json")
        traces.append(traceprobe.load(path))
    return traceprobe.analyze(traces)


WAIT = {"idle_data_wait": 100 * MS}


def in_rank(**changes):
    """Changes of the last rank."""
    return lambda r: replace(r, ranks=[*r.ranks[:-1], replace(r.ranks[-1], **changes)])


def in_summary(**changes):
    """Changes of its summary; a function gets the old value."""

    def change(r):
        old = r.ranks[-1].summary
        new = {k: v(getattr(old, k)) if callable(v) else v for k, v in changes.items()}
        return in_rank(summary=replace(old, **new))(r)

    return change


def in_iteration(**changes):
    """Changes of its third iteration."""

    def change(r):
        rows = r.ranks[-1].iterations
        new = {k: v(getattr(rows[2], k)) if callable(v) else v for k, v in changes.items()}
        return in_rank(iterations=[*rows[:2], replace(rows[2], **new), *rows[3:]])(r)

    return change


def in_gap(**changes):
    """Changes of its longest gap."""

    def change(r):
        first, *others = r.ranks[-1].gaps
        new = {k: v(getattr(first, k)) if callable(v) else v for k, v in changes.items()}
        return in_rank(gaps=[replace(first, **new), *others])(r)

    return change


def in_run(**changes):
    """Changes of the run."""
    return lambda r: replace(r, run=replace(r.run, **changes))


def in_overview(**changes):
    """Changes of its overview."""
    return lambda r: in_run(overview=replace(r.run.overview, **changes))(r)


def moved(by, **keys):
    """Time moved into a class."""
    return lambda parts: {**parts, **{k: (parts[k] or 0) + by for k in keys}}


BROKEN = {
    "partition": (in_iteration(partition_ns=moved(1, forward=0)), "iteration 2: the partition"),
    "negative": (
        in_iteration(
            partition_ns=lambda p: {**p, "forward": -5, "idle_host": p["idle_host"] + p["forward"]}
        ),
        "less than no time",
    ),
    "classes": (in_iteration(partition_ns={"forward": 1}), "classes differ"),
    "busy": (in_iteration(busy_ns=moved(-10 * MS, forward=0)), "forward is exclusive"),
    "half a window": (in_iteration(end_ns=None), "half a window"),
    "backward window": (in_iteration(end_ns=lambda t: t - 10**12), "ends before it begins"),
    "overlapping windows": (
        in_iteration(start_ns=lambda t: t - 7, partition_ns=moved(7, forward=0)),
        "overlap",
    ),
    "order": (in_iteration(index=7), "iteration 7 is the one at 2"),
    "skipped": (in_iteration(skip_reason="warm-up"), "used and skipped"),
    "unused": (in_summary(iterations_used=3), "iterations_used is not"),
    "marker": (in_rank(step_marker=None), "a marker without iterations"),
    "share": (in_summary(share=lambda s: {**s, "io": s["io"] + 0.01}), "share.io is not"),
    "nan": (in_summary(share=lambda s: {**s, "io": float("nan")}), "share does not sum to 1"),
    "window": (in_summary(window_ns=lambda w: w + 1), "window_ns is not the sum"),
    "total": (in_summary(busy_ns=moved(1, forward=0)), "summary.busy_ns.forward is not the sum"),
    "exposed": (
        in_summary(communication=lambda c: replace(c, exposed_ns=c.exposed_ns - 1)),
        "communication: exposed or total differ",
    ),
    "hidden": (
        in_summary(communication=lambda c: replace(c, overlapped_ns=c.overlapped_ns - 1)),
        "not the sum of exposed and overlapped",
    ),
    "overlap": (
        in_summary(h2d=lambda h: replace(h, overlapped_ns=h.total_ns + 1)),
        "h2d: more than all of it overlaps",
    ),
    "unobserved": (in_summary(h2d=None), "h2d is observed in one of"),
    "step": (
        in_summary(step_ms=lambda s: replace(s, mean=s.mean * 1.01)),
        "step_ms.mean is not the mean",
    ),
    "no step": (in_summary(step_ms=None), "step_ms without used iterations"),
    "collectives": (
        in_summary(collectives=lambda g: [replace(g[0], total_ns=g[0].total_ns + 1), *g[1:]]),
        "a group of collectives is not the sum",
    ),
    "collective count": (
        in_summary(collectives_per_step=lambda n: n + 1),
        "collectives are counted differently",
    ),
    "gap outside": (in_gap(end_ns=lambda t: t + 10**9), "outside of its iteration"),
    "gap empty": (in_gap(end_ns=lambda t: t - 10**9), "a gap is empty"),
    "gap cause": (in_gap(cause="forward"), "unknown cause"),
    "gap too long": (
        in_gap(start_ns=lambda t: t - 4 * MS),
        "longer than the idle time that they are in",
    ),
    "linked": (
        lambda r: replace(r, quality=replace(r.quality, gpu_ops_linked=10**9)),
        "more linked ops than ops",
    ),
    "ranks": (lambda r: replace(r, ranks=r.ranks[::-1]), "ranks are out of order"),
    "input": (in_rank(input=9), "a rank has no input"),
    "no run": (lambda r: replace(r, run=None), "several ranks and no run"),
    "world": (in_run(world_size=2), "fewer ranks than there are"),
    "skew": (in_run(skew_ns=None), "transfer without skew"),
    "straggler": (
        in_run(straggler_rank=77, straggler_cause="io"),
        "the straggler is none of the ranks",
    ),
    "no cause": (in_run(straggler_rank=2, straggler_cause=None), "straggler without a cause"),
    "causes": (in_run(skew_causes={"io": 0.5}), "do not sum to 1"),
    "groups": (in_overview(groups=[]), "does not hold every rank once"),
    "worst": (in_overview(worst_rank=8), "has no details"),
    "verdict": (
        lambda r: replace(r, verdict=replace(r.verdict, shares={"io": 1.0})),
        "verdict.shares do not sum",
    ),
    "confidence": (
        lambda r: replace(r, verdict=replace(r.verdict, confidence=0.123)),
        "terms do not add up",
    ),
    "saving": (
        lambda r: replace(r, findings=[replace(r.findings[0], saving_ms_per_step=1e6)]),
        "saves 1000000.0 of",
    ),
}


def test_a_good_report_contradicts_nothing(report):
    assert [*report.problems()] == []
    assert verify(report, report.ranks) is report


@pytest.mark.parametrize("name", BROKEN)
def test_every_contradiction_is_seen(report, name):
    change, complaint = BROKEN[name]
    found = [*change(report).problems()]
    assert any(complaint in problem for problem in found), found


def test_details_of_ranks_that_the_report_leaves_out_are_checked_too(report):
    broken = in_iteration(partition_ns=moved(1, forward=0))(report).ranks
    with pytest.raises(InternalError, match="rank 2: iteration 2: the partition does not sum"):
        verify(report, broken)


@pytest.mark.parametrize("name", ["run.json", "it's a run.sqlite.gz"])
def test_a_wrong_number_becomes_a_message_and_no_report(tmp_path, monkeypatch, capfdbinary, name):
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    trace = write_trace(tmp_path / name)
    right = assemble.shares
    monkeypatch.setattr(
        assemble, "shares", lambda parts, window: {**right(parts, window), "io": 0.5}
    )
    done = cli("analyze", trace, "-o", "a.html", "-o", "a.json")
    assert done.code == 70
    assert done.out == ""
    assert cli.files() == {name}
    assert "internal error: rank 0: share.io is not that of the partition" in done.err
    assert "bug of traceprobe; no report was written" in done.err
    suffix = "sqlite" if "sqlite" in name else "json"
    quoted = "'it'\"'\"'s a run.sqlite.gz'" if "sqlite" in name else name
    assert f"traceprobe inspect --anonymise {quoted} -o bug.{suffix}.gz" in done.err
    assert "Traceback" not in done.err


def test_an_error_that_nobody_foresaw_has_the_code_of_internal_errors(
    tmp_path, monkeypatch, capfdbinary
):
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    trace = write_trace(tmp_path / "run.json")
    monkeypatch.setattr(assemble, "shares", lambda parts, window: 1 / 0)
    done = cli("analyze", trace, "-o", "a.json")
    assert (done.code, done.out, cli.files()) == (70, "", {"run.json"})
    assert "internal error: ZeroDivisionError" in done.err
    assert "Traceback" not in done.err


def test_a_saving_above_the_classes_that_it_removes_is_not_written(report):
    (wait,) = (f for f in report.findings if f.id == "data-wait")
    report = replace(report, joint=UNSET)
    assert wait.saving_of == ["idle_data_wait"]
    assert verify(replace(report, findings=[wait]), report.ranks).findings == [wait]
    more = replace(wait, saving_ms_per_step=wait.saving_ms_per_step + 0.01)
    with pytest.raises(InternalError, match=r"data-wait saves .* in idle_data_wait"):
        verify(replace(report, findings=[more]), report.ranks)
    longer = [
        replace(r, summary=replace(r.summary, partition_ns={**r.summary.partition_ns, **WAIT}))
        for r in report.ranks
    ]
    assert verify(replace(report, findings=[more]), report.ranks, longer).findings == [more]


def test_a_verdict_that_its_shares_contradict_is_not_written(report):
    shares = {"io": 0.1, "communication": 0.1, "overhead": 0.5, "compute": 0.3, "other": 0.0}
    for bound, secondary in (("compute", None), ("io", None), ("mixed", "io+communication")):
        wrong = replace(report.verdict, bound=bound, secondary=secondary, shares=shares)
        with pytest.raises(InternalError, match=f"says {bound}, which its shares contradict"):
            verify(replace(report, verdict=wrong), report.ranks)
    right = replace(report.verdict, bound="overhead", shares=shares)
    assert verify(replace(report, verdict=right), report.ranks).verdict is right
