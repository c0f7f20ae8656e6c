"""Recording a training loop: a few lines in the loop, the rest from outside.

    from traceprobe.capture import recorder

    record = recorder()
    for batch in record.steps(loader):
        with record.phase("forward"):
            loss = model(batch)

Run plainly, this costs microseconds a step and does nothing. Run by `traceprobe profile`, it times
the loop without a profiler, then profiles a few steps and ends the loop.
"""

from __future__ import annotations

from traceprobe.capture.flop_count import work
from traceprobe.capture.loop.step_recorder import Recorder, recorder

__all__ = ["Recorder", "recorder", "work"]
