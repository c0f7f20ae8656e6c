"""Does the GPU wait for the input pipeline?"""

from __future__ import annotations

from math import ceil

from traceprobe.findings import loader_work
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.recorded_facts import cores, setting, whole
from traceprobe.findings.rule import Answer, inconclusive, rule
from traceprobe.formatting import counted, duration, percent, significant
from traceprobe.records.site import Site
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.no_training import steps_are_ranges


@rule(
    "data-wait",
    title="The GPU waits for the data loader",
    title_on_cpu="The step waits for the data loader",
    definition="Idle time per step during which the step thread is inside a data range, or between "
    "the step ranges and in no CUDA call. The second part is inferred, and the evidence says how "
    "much. The saving is all of it, and what a step has more of it without a profiler: what it "
    "lasts longer than in the capture, where I/O is notable, or what more the verdict counts as "
    "waiting. That a loader has no workers is known from the capture or from the name of its "
    "range, `_SingleProcessDataLoaderIter`. How long a batch takes, and in which lines, is known "
    "from a recording of traceprobe, which times and samples the workers until its profiler "
    "starts.",
    verify="Load one batch, reuse it for every step, and time the loop without a profiler. The "
    "time by which the step gets shorter is what loading costs.",
)
def data_wait(evidence: Evidence) -> Answer:
    """Idle time during which the step thread waits for its next batch."""
    if not evidence.observed("idle_data_wait"):
        return inconclusive(
            "the trace has no data-loading range and no step ranges with room between them",
            "Annotate loading, e.g. `with record_function('data_loading'): batch = next(it)`.",
        )
    ms = evidence.exclusive_ms("idle_data_wait")
    inferred, total = loader_work.waited_ns(evidence)
    part = percent(inferred / total if total else 0, 0)
    drained, before = evidence.drift, evidence.made_before
    # A queue that lasted for half of the capture halves the mean, not the cost.
    most = max(drained.after.share if drained else 0.0, before.hidden if before else 0.0)
    shown, timed = max(evidence.share(ms), most), evidence.timed_wait_share
    status = evidence.grade(max(shown, timed))
    slow = status in ("warn", "fail")
    return Answer(
        status,
        [
            f"{evidence.amount(ms)} of {evidence.idle} while the step thread waits for data"
            f"{evidence.under_profiler}"
            if ms or status == "pass"
            else "",
            f"{part} of it is inferred: the step thread is {_elsewhere(evidence)}"
            if part != percent(0, 0)
            else "",
            f"{duration(drained.after.data_wait_ns)} ({percent(drained.after.share)}) once the "
            "loader's queue is empty"
            if drained
            else "",
            before.sentence if before else "",
            f"{percent(timed)} of a step without the profiler, where the loop's waits were timed"
            f"{_of_ranks(evidence)}"
            if status != evidence.grade(shown)
            else "",
            "" if slow and timed > shown else evidence.worst("idle_data_wait"),
            evidence.on_straggler(ms, evidence.idle_ms("idle_data_wait")) if slow else "",
            "`num_workers=0`: each batch is loaded on the step thread"
            f"{'' if evidence.on_cpu else ', between the launches'}"
            if slow and _workers(evidence) == 0
            else "",
            loader_work.batch_time(evidence.loader) if slow else "",
            loader_work.idle_workers(evidence, slow=slow),
            _enough_workers(evidence) if slow else "",
        ],
        evidence.saving(
            evidence.most_ms("idle_data_wait") + evidence.unseen_wait_ms(), "idle_data_wait"
        )
        if ms or slow
        else None,
        _advice(evidence, slow=slow),
        _sites(evidence, ms),
        Changes(removed=frozenset({"data-wait"})),
    )


def _of_ranks(evidence: Evidence) -> str:
    """Which rank waits longest without the profiler; empty for a single one."""
    waits = evidence.timed_waits_ms
    if len(waits) < 2:
        return ""
    longest = max(waits, key=lambda rank: waits[rank])
    least = min(waits, key=lambda rank: waits[rank])
    of_others = f"{significant(waits[least])} ms on rank {least}"
    if len(waits) > 2:
        of_others = f"at least {significant(waits[least])} ms on the others"
    return f": {significant(waits[longest])} ms on rank {longest}, {of_others}"


def _sites(evidence: Evidence, ms: float) -> list[Site]:
    """Where batches are made that are late, or where the step thread takes those that are ready."""
    made = [] if loader_work.keeps_up(evidence) else loader_work.sites(evidence.loader, ms)
    return made or evidence.sites("idle_data_wait")


def _elsewhere(evidence: Evidence) -> str:
    """Where the step thread is while nothing names what it waits for."""
    calls = "" if evidence.on_cpu else "in no CUDA call"
    between = "between step ranges" if steps_are_ranges(evidence.ranks) else ""
    return " and ".join(filter(None, (between, calls))) or "in no operator"


def _advice(evidence: Evidence, *, slow: bool) -> str:
    """What to do, with what the recording knows of the loader first."""
    loader = evidence.loader
    if slow and loader_work.keeps_up(evidence):
        return (
            "Make batches cheaper to transfer (more workers do not help): fewer and larger "
            "tensors in a batch, pinned memory (`pin_memory=True`) where it is off, and a deeper "
            "queue (`prefetch_factor`)."
        )
    if slow and loader_work.made_sooner(evidence):
        where = "" if evidence.on_cpu else ", on the GPU where it fits,"
        return (
            f"Keep the data in one tensor{where} and index it once for all samples of a batch; a "
            "worker would take longer to hand such a batch over than it takes to make."
        )
    works = loader_work.functions(loader) if slow and loader else []
    first = ""
    if works:
        part = percent(works[0].share, 0)
        first = f"Make `{works[0].name}` cheaper: it takes {part} of the time to make a batch. "
    start = _start_workers(evidence) if slow else ""
    more = "" if start else _more_workers(evidence)
    return (
        (start or (_own_loader(evidence) if slow else ""))
        + first
        + more
        + ("" if evidence.on_cpu else "Decode and augment on the GPU. ")
        + "Make each sample cheaper: decode and resize once, ahead of training."
    )


def workers_needed(
    workers: int, step_ms: float, wait_ms: float, batch_ms: float | None = None
) -> int | None:
    """Workers that make batches as fast as the rest of the step uses them.

    A step that waits for its loader lasts as long as the loader takes for a batch, so that each of
    `n` workers takes `n` steps for one. Without workers the wait itself is that time. Workers share
    caches and memory, so it may take more.

    Args:
        batch_ms: what one worker takes for the batches of a step, where that was timed.

    Returns:
        None where there is no step without the wait.
    """
    rest = step_ms - wait_ms
    if batch_ms is None:
        batch_ms = workers * step_ms if workers else wait_ms
    return ceil(batch_ms / rest) if rest > 0 else None


def _workers(evidence: Evidence) -> int | None:
    """Workers of the loader, where the capture or the names of the loader's ranges say."""
    if evidence.loader is not None:
        return evidence.loader.workers
    facts = evidence.workload or {}
    workers = whole(facts.get("loader_workers", setting(evidence.workload, "workers")))
    if workers is None and any(r.summary.host.loader_in_process for r in evidence.ranks):
        return 0
    return workers


def _start_workers(evidence: Evidence) -> str:
    """The first thing to do where no worker loads beside the step."""
    if _workers(evidence) != 0:
        return ""
    count, room = _needed(evidence, 0) or 1, _room(evidence)
    count = count if room is None else max(min(count, room), 1)
    split = ""
    if count > 1 and evidence.loader is not None and evidence.loader.iterable:
        split = (
            ", and let the `IterableDataset` split its data between them (`get_worker_info()`), "
            "each of which otherwise goes through all of it"
        )
    return (
        f"Start with {counted(count, 'worker')}{split}: `num_workers=0` loads between the steps. "
        "Keep workers alive (`persistent_workers=True`). "
    )


def _more_workers(evidence: Evidence) -> str:
    """More of them, and of what they have ready, as far as there are cores for them."""
    loader, room = evidence.loader, _room(evidence)
    alive = loader is not None and loader.persistent_workers
    if room is not None and (_workers(evidence) or 0) >= room:
        keep = "" if alive else "Keep workers alive (`persistent_workers=True`). "
        return f"More workers do not help: they are as many as there are cores for. {keep}"
    return (
        "Give the loader more workers (`num_workers`)"
        + (" and" if alive else ",")
        + " a deeper queue (`prefetch_factor`)"
        + (". " if alive else ", and keep them alive (`persistent_workers=True`). ")
    )


def _room(evidence: Evidence) -> int | None:
    """Cores for each rank, as far as the capture knows of how many processes share them."""
    available = cores(evidence.capture)
    return None if available is None else max(available // len(evidence.ranks), 1)


def _own_loader(evidence: Evidence) -> str:
    """What to do where nothing in the trace is a loader, so that the loop may be its own."""
    inferred, total = loader_work.waited_ns(evidence)
    if _workers(evidence) is not None or inferred < total:
        return ""
    return "If the loop makes its batches itself, let workers of a `DataLoader` make them. "


def _needed(evidence: Evidence, workers: int) -> int | None:
    """Workers that hide the loader, where there is a wait to hide."""
    step = evidence.corrected_step_ms()
    # The corrected share knows how long the loop waits without a profiler.
    wait = evidence.verdict.shares.get("io", 0.0) * step - evidence.exclusive_ms("h2d")
    loader = evidence.loader
    timed = loader.batch_ms * loader.batches_per_step if loader else 0.0
    return workers_needed(workers, step, wait, timed or None) if wait > 0 else None


def _enough_workers(evidence: Evidence) -> str:
    """How many workers hide the loader, where it is known how many there are."""
    workers = _workers(evidence)
    count = None if workers is None else _needed(evidence, workers)
    if count is None or (workers and count <= workers):
        return ""
    if loader_work.keeps_up(evidence) or loader_work.made_sooner(evidence):
        return ""
    each = " on each rank" if len(evidence.ranks) > 1 else ""
    plural = "s" if count > 1 else ""
    claim = f"at least {count} worker{plural}{each} instead of {workers} would hide the loader"
    total = count * len(evidence.ranks)
    available = cores(evidence.capture)
    if available is None:
        return f"{claim}, if the machine has a free core for each"
    if total <= available:
        return f"{claim}, if {total} of the machine's {available} cores are free for them"
    return (
        f"{claim}, more than the machine has cores ({available}): make the samples cheaper to load"
    )
