"""Does the device idle without the trace saying what for?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.host_stalls import look_at
from traceprobe.findings.recorded_pace import in_doubt, several_paces
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent, significant
from traceprobe.verdict.unexplained import mostly_held

_CLASS, _HELD = "idle_unexplained", "idle_latency"
_WAITS_FOR = (
    "The work was launched in time, so launching less does not help. Check whether another process "
    "uses the GPU (`nvidia-smi`), whether the profiler dropped kernels or leaves out nodes "
    "of CUDA graphs, and whether the stream waits for another rank without a kernel."
)


@rule(
    "unexplained-idle",
    title="The GPU idles, and no call, range or operator says why",
    title_on_cpu="No operator runs, and no range says why",
    definition="Idle time per step of unknown cause: `idle_unexplained`, and the part of "
    "`idle_latency` in which the GPU had its work and did not begin it (`held_idle_ns`), for which "
    "the host is not to blame. Where the trace has frames of the program, they say where the host "
    "was, but not whether they load data or compute on the CPU. It is no more than what is left "
    "once the profiler's part is taken out, except for a straggler. What the fastest block of "
    "steps without the profiler is shorter by than their mean decides no state. The saving is all "
    "of it, or what the straggler has, if that is more.",
    verify="Time the loop without a profiler and without what it does there, or annotate that: its "
    "time is then in another class. Where the work was launched in time, record again with nothing "
    "else on the GPU, and with Nsight Systems (`--cuda-graph-trace=node`).",
)
def unexplained_idle(evidence: Evidence) -> Answer:
    """Pauses of the host, with the line of the program that it was in; or of the GPU by itself."""
    held = evidence.held_ms()
    ms, most = evidence.exclusive_ms(_CLASS) + held, evidence.idle_ms(_CLASS) + held
    if not ms:
        return not_applicable("all idle time has a cause")
    by_itself = mostly_held(evidence.ranks)
    sites = evidence.delaying_sites(_HELD if by_itself else _CLASS)
    unsure = in_doubt(evidence.blocks.values())
    left = _left(evidence, unsure)
    kept = max(left - unsure, 0.0)
    return Answer(
        evidence.grade(min(evidence.share(most), kept)),
        [
            f"{evidence.amount(ms)} of {evidence.idle} of unknown cause",
            f"for {significant(held)} ms {evidence.per} of it the work was launched in time: the "
            "GPU had it, and no recorded operation held it up"
            if held
            else "",
            evidence.on_straggler(ms, most),
            f"{percent(left)} of the step remains after correction for the profiler"
            if left < evidence.share(most)
            else "",
            several_paces(unsure),
        ],
        evidence.saving(
            min(most, left * evidence.corrected_step_ms()), _CLASS, *([_HELD] if held else [])
        ),
        _WAITS_FOR if by_itself else _pauses(look_at(sites)),
        sites,
    )


def _left(evidence: Evidence, unsure: float) -> float:
    """The most of the step that may be of unknown cause once the profiler's part is taken out.

    What a straggler has of it is more than the mean of the ranks, which the verdict tells.
    """
    uncorrected = evidence.quality.observer_effect is None or evidence.straggler is not None
    if uncorrected and not unsure:
        return 1.0
    return evidence.verdict.shares.get("other", 1.0)


def _pauses(where: str) -> str:
    """What to do about pauses of the host; `where` it was, if that is known."""
    if where:
        return (
            f"{where}: move what it does off the step, into the loader's workers or another "
            "process (threads of Python take turns), or do it less often."
        )
    return (
        "Record the program's lines (`traceprobe profile`), or annotate what it does "
        '(`torch.profiler.record_function("data_load")`).'
    )
