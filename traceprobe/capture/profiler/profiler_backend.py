"""The profilers that a recording uses, inside the profiled process."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any, Literal, Protocol

from traceprobe.capture.profiler.compiler_watch import compiler_watch
from traceprobe.capture.profiler.cupti import detach_after_profiles, detaching
from traceprobe.capture.profiler.garbage_ranges import garbage_ranges
from traceprobe.capture.profiler.gloo_threads import wait_for_gloo
from traceprobe.capture.recording.recording_plan import METADATA_KEY, RecordingPlan, trace_name

_HEAD = 64
"""Bytes of a trace that are looked at for its opening brace."""


class Backend(Protocol):
    """What a session tells its profiler. It may begin again after it was stopped."""

    def start(self, active: int, settle: int) -> None:
        """Begin, before the first settling step, for so many active steps and one more."""

    def step(self) -> None:
        """A step has ended and another begins."""

    def stop(self) -> None:
        """End after the last step, and hold what was recorded in place of what was before."""

    def export(self, metadata: dict[str, Any]) -> None:
        """Leave the trace behind."""

    def abandon(self) -> None:
        """End without a trace."""


def profiler_backend(plan: RecordingPlan, rank: int) -> Backend:
    """The profiler that a plan names."""
    return NsysBackend() if plan.backend == "nsys" else TorchBackend(plan, rank)


class TorchBackend:
    """torch.profiler over the settling and active steps: a gzipped Kineto trace per rank.

    Args:
        steps: `numbered` from 0 by ranges of the profiler, or `named` by ranges of the program.
    """

    def __init__(
        self, plan: RecordingPlan, number: int, steps: Literal["numbered", "named"] = "numbered"
    ) -> None:
        self._plan, self._steps = plan, steps
        self._target = Path(plan.folder) / trace_name(number)
        self._running: Any = None
        self._recorded: Any = None
        self._skipped = 0

    def start(self, active: int, settle: int) -> None:
        """Begin with the settling steps, which the profiler traces and throws away."""
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        detach_after_profiles()
        plan, self._skipped = self._plan, 0
        actions = schedule(wait=0, warmup=settle, active=active + 1, repeat=1)
        self._running = profile(
            activities=activities,
            schedule=lambda number: actions(number + self._skipped),
            record_shapes=plan.shapes,
            with_stack=plan.stacks,
            profile_memory=plan.memory,
            **sync_events(),
        )
        if self._steps == "named":
            self._running.record_steps = False
        self._running.__enter__()
        garbage_ranges.begin()

    def step(self) -> None:
        """Advance the schedule."""
        self._running.step()

    def skip(self, steps: int) -> None:
        """So many settling steps are not made: from the next `step` on the schedule is ahead."""
        self._skipped += steps

    def abandon(self) -> None:
        """Stop the profiler and drop what it holds."""
        running, self._running = self._running, None
        garbage_ranges.end()
        wait_for_gloo()
        with detaching():
            running.__exit__(None, None, None)

    def stop(self) -> None:
        """Hold the trace in memory: writing it would take the CPU from the steps that follow."""
        garbage_ranges.end()
        wait_for_gloo()
        with detaching():
            self._running.__exit__(None, None, None)
        self._recorded, self._running = self._running, None

    def export(self, metadata: dict[str, Any]) -> None:
        """Write the trace whole or not at all."""
        self.pack(self.unload(), metadata)

    def unload(self) -> Path:
        """A plain file with the trace, which is no longer held. No other thread runs meanwhile."""
        plain = self._target.with_name(f".{self._target.name}.json")
        recorded, self._recorded = self._recorded, None
        recorded.export_chrome_trace(str(plain))
        return plain

    def pack(self, plain: Path, metadata: dict[str, Any]) -> None:
        """Make a plain file the trace. Other threads run on."""
        temporary = self._target.with_name("." + self._target.name)
        with plain.open("rb") as trace, gzip.open(temporary, "wb") as file:
            # The profiler takes metadata only while it runs, when not all of this is known.
            key = f'{{"{METADATA_KEY}": {json.dumps(metadata, sort_keys=True)},'
            file.write(key.encode() + trace.read(_HEAD).lstrip().removeprefix(b"{"))
            shutil.copyfileobj(trace, file)
        plain.unlink()
        temporary.replace(self._target)


def sync_events() -> dict[str, Any]:
    """Arguments of a profile that has rows of what streams wait for; none where PyTorch has none.

    The configuration is experimental and not documented, so its own signature is asked.
    """
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        return {}
    try:
        from torch._C._profiler import _ExperimentalConfig as Config
    except ImportError:
        return {}
    known = "enable_cuda_sync_events: bool" in (Config.__init__.__doc__ or "")
    return {"experimental_config": Config(enable_cuda_sync_events=True)} if known else {}


class NsysBackend:
    """The capture range of Nsight Systems: cudaProfilerStart and Stop around the active steps."""

    def start(self, active: int, settle: int) -> None:
        """Open the capture range that nsys waits for."""
        import torch

        torch.cuda.profiler.start()
        compiler_watch.mark()
        garbage_ranges.begin()

    def step(self) -> None:
        """Nothing but compilations is marked here: the step ranges mark the steps."""
        compiler_watch.mark()

    def abandon(self) -> None:
        """Close the capture range."""
        self.stop()

    def stop(self) -> None:
        """Close the capture range, after which nsys writes its report and the program goes on."""
        import torch

        compiler_watch.end()
        garbage_ranges.end()
        torch.cuda.profiler.stop()

    def export(self, metadata: dict[str, Any]) -> None:
        """Nothing: the sidecar goes into the export later."""
