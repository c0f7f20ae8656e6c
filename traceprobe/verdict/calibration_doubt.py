"""Whether the step without a profiler, as a recording timed it, can be trusted."""

from __future__ import annotations

from traceprobe.formatting import counted, significant
from traceprobe.records.recording import Recording
from traceprobe.verdict.thresholds import FIXED


def calibration_doubt(recording: Recording) -> str | None:
    """Why the step without a profiler may be another than that of the profiled steps, if it may.

    It is trusted where the loop was steady, both halves of its steps, those before and those after
    the profiled ones, have one pace, and blocks hold whole periods of the loop.
    """
    kept = [block for block in recording.blocks if block.kept]
    plain = [block for block in kept if not block.profiled]
    later = recording.blocks[-1]
    if len(plain) == 1 and not later.profiled and not later.kept:
        return (
            f"a step took {significant(plain[0].step_ms)} ms before the profiler ran and "
            f"{significant(later.step_ms)} ms after it, at the same clock: what it leaves in the "
            "process slows the host, or the pace changed; the steps before it count"
        )
    if len(plain) < 2:
        return "the program ended before steps without the profiler were timed after the others"
    first, last = plain[0].step_ms, plain[-1].step_ms
    if max(first, last) > FIXED.same_pace * min(first, last):
        return (
            f"without the profiler a step took {significant(first)} ms before the profiled steps "
            f"and {significant(last)} ms after them"
        )
    clean = recording.blocks[0]
    if not clean.profiled and min(first, last) > FIXED.same_pace * clean.step_ms:
        return (
            f"a step took {significant(clean.step_ms)} ms before a profiler ran for the first time "
            f"and {significant(last)} ms after it: the pace changed, or what a profiler leaves in "
            "the process slows the host"
        )
    if any(block.steps % recording.period for block in plain):
        return (
            f"the loop repeats itself after {counted(recording.period, 'step')}, and what was "
            "timed without the profiler are not whole repetitions"
        )
    if not recording.steady:
        steps = counted(recording.warmup_steps, "step")
        return f"the loop was not known to be steady after {steps} of warm-up"
    return None
