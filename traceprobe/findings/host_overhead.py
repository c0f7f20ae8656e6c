"""Does the host launch too slowly?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean, median

from msgspec import UNSET

from traceprobe.findings.called_operators import drawn_on_the_host, told_by_operators
from traceprobe.findings.device_waits import device_waits
from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.graph_breaks import compiled_regions
from traceprobe.findings.host_stalls import collections, cost_ms, named_lines, unnamed_ms
from traceprobe.findings.launching import fewer_launches, replays_graphs
from traceprobe.findings.message_advice import in_small_shards
from traceprobe.findings.recorded_cores import taken
from traceprobe.findings.recorded_pace import in_doubt, several_paces
from traceprobe.findings.rule import Answer, inconclusive, rule
from traceprobe.formatting import counted, percent, significant
from traceprobe.records.site import Site

_OFFLOADED = (
    "The optimizer updates the parameters on the CPU, and the GPU waits. Keep them and the "
    "optimizer's state on the GPU if they fit (optimizers of 8 bits take a quarter), else take an "
    "optimizer made for the CPU (`fused=True`, `DeepSpeedCPUAdam`), and update while the backward "
    "pass goes on."
)


@rule(
    "host-overhead",
    title="The CPU does not launch work fast enough",
    title_on_cpu="Much time passes between the operators",
    definition="Idle time per step because the next op was launched late (`idle_host`), or "
    "launched in time and started later, by no more than launches take (`idle_latency`). The "
    "saving is no more of it than what is left once the profiler's part is taken out, nor what "
    "`allocator-stalls`, `garbage-collection`, `recompilation` and `host-pauses` count. What calls "
    "that wait for the GPU make the host late by decides no state here where it is most of it, nor "
    "what other programs took of a busy machine, nor what the fastest block of steps without the "
    "profiler is shorter by than their mean.",
    verify="Time the loop without a profiler, then with twice the batch size. If the step hardly "
    "gets longer, the host was the limit.",
)
def host_overhead(evidence: Evidence) -> Answer:
    """Idle GPU because the next kernel was launched late, or launched in time and started late."""
    if not evidence.observed("idle_host", "idle_latency"):
        return inconclusive(
            "the trace has no host rows",
            "Record the CPU too (`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`).",
        )
    late, latency = (evidence.exclusive_ms(c) - evidence.fed_ms(c) for c in HOST_IDLE)
    sites = evidence.delaying_sites("idle_host")
    # What the verdict keeps after the observer effect is what a change can still save.
    share = evidence.verdict.shares.get("overhead", 0.0)
    if evidence.on_cpu:
        collected = cost_ms(evidence, collections)
        between = evidence.idle_ms("idle_host") - collected
        return Answer(
            evidence.grade(min(evidence.share(between), share)),
            [
                f"{evidence.amount(late)} between operators: Python and the framework",
                evidence.on_straggler(late, evidence.idle_ms("idle_host")),
                evidence.worst("idle_host"),
            ],
            evidence.saving(max(evidence.host_ms() - collected, 0.0), *HOST_IDLE),
            "Do more in each operator: a larger batch, tensors instead of loops over their "
            f"elements{'' if _in_one_piece(evidence) else ', `torch.compile`'}. Keep Python out of "
            "the inner loop.",
            sites,
        )
    launches = fmean(r.summary.host.launches_per_step for r in evidence.ranks)
    left = unnamed_ms(evidence)
    named = evidence.host_ms() - left
    updating = evidence.cpu_update_ms
    moved = updating > late - updating
    told = named_lines(evidence)
    waits = device_waits(evidence)
    waited = waits.late_ms if waits.explain else 0.0
    elsewhere = named + (waits.seen_ms if waits.explain else 0.0)
    lost, unsure = taken(evidence.blocks.values()), in_doubt(evidence.blocks.values())
    kept = share if not elsewhere else share - elsewhere / evidence.corrected_step_ms()
    kept = max(kept - max(lost, unsure), 0.0)
    idle = evidence.idle_ms(*HOST_IDLE) - evidence.fed_ms(*HOST_IDLE) - named - waited
    grade = evidence.grade(min(evidence.share(idle), kept))
    effect = evidence.quality.observer_effect
    return Answer(
        grade,
        [
            f"{significant(late)} ms {evidence.per} of late launches, {significant(latency)} ms "
            f"of launch and dependency latency{evidence.under_profiler}",
            f"{counted(round(launches), 'launch', 'launches')} {evidence.per}",
            f"{percent(share)} of the step remains after correction for the profiler"
            if effect is not None
            else "",
            f"{significant(named)} ms {evidence.per} of it has a finding of its own"
            if named
            else "",
            f"{significant(waited)} ms {evidence.per} of it is reported by `synchronization`"
            if waited
            else "",
            f"for {percent(lost)} of the time other programs had the loop's core" if lost else "",
            several_paces(unsure),
            f"{significant(updating)} ms {evidence.per} of it inside of `Optimizer.step`, which "
            "launches no kernel: it updates the parameters on the CPU"
            if updating
            else "",
            _queue(evidence) if grade != "pass" else "",
            evidence.worst("idle_host", "idle_latency"),
        ],
        evidence.saving(left, *HOST_IDLE),
        _OFFLOADED
        if moved
        else drawn_on_the_host(evidence) + (told_by_operators(evidence) or _advice(evidence)),
        _without(sites, told, left) if named else sites,
        None if moved else fewer_launches(evidence),
    )


def _advice(evidence: Evidence) -> str:
    """How to launch less: what the program does already is none."""
    if replays_graphs(evidence):
        trained = evidence.busy_ms("backward", "recompute", "optimizer")
        return (
            "Most kernels are launched by CUDA graphs already: put what is launched between them"
            f"{', as loss and optimizer,' if trained else ''} into graphs too, or use a larger "
            "batch. Keep Python out of the inner loop."
        )
    smaller = in_small_shards(evidence) + _micro_batches(evidence)
    if _is_compiled(evidence):
        return smaller + (
            'The model is compiled: let it be launched by CUDA graphs (`mode="reduce-overhead"`), '
            "compile the update of the parameters as well, or use a larger batch. Keep Python out "
            "of the inner loop."
        )
    return smaller + (
        'Launch less: `torch.compile`, CUDA graphs (`mode="reduce-overhead"`), fused or foreach '
        "optimizers, a larger batch. Keep Python out of the inner loop."
    )


def _micro_batches(evidence: Evidence) -> str:
    """That an update adds up gradients of small batches, as a sentence; empty where it does not.

    In a pipeline micro-batches keep the stages busy.
    """
    counts = {rank.summary.micro_batches for rank in evidence.ranks}
    sent = {each.operation for rank in evidence.ranks for each in rank.summary.collectives}
    (count, *others) = counts
    if others or count is UNSET or "send_recv" in sent:
        return ""
    return (
        f"Make micro-batches larger, as far as memory allows, and accumulate fewer than {count} "
        "for an update. "
    )


def _is_compiled(evidence: Evidence) -> bool:
    """Whether the model is compiled without breaks, and not some small functions of it alone."""
    return _in_one_piece(evidence) and (
        evidence.kernel_ms("fused") >= evidence.kernel_ms("other", "softmax")
    )


def _in_one_piece(evidence: Evidence) -> bool:
    """Whether something is compiled, and all that is without breaks."""
    compiled = compiled_regions(evidence)
    return bool(compiled) and not any(found.breaks_per_step for found in compiled)


def _without(sites: Sequence[Site], told: Collection[str], left: float) -> list[Site]:
    """Sites of what other findings leave.

    Args:
        told: lines that those name; where the trace has none, no site has more than is left.
        left: of the time, ms per step.
    """
    if told:
        return [site for site in sites if site.line not in told]
    return [site for site in sites if site.ms_per_step <= left]


def _queue(evidence: Evidence) -> str:
    """How far ahead of the device its host launches, as a phrase; empty where it is not known."""
    known = [(r.summary.launches, r.summary.window_ns) for r in evidence.ranks]
    queues = [(found.queue, window) for found, window in known if found is not UNSET and window]
    if not queues:
        return ""
    starved = fmean(queue.starved_ns / window for queue, window in queues)
    return (
        f"for {percent(starved)} of the time the GPU was idle and nothing was launched ahead; half "
        f"the time at most {median(queue.p50 for queue, _ in queues):.0f} launches were "
        f"outstanding, and never more than {max(queue.longest for queue, _ in queues)}"
    )
