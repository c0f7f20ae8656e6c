"""The profilers that a recording uses, inside the profiled process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from traceprobe.capture.recording_plan import METADATA_KEY, RecordingPlan, trace_name


class Backend(Protocol):
    """What a session tells its profiler."""

    def start(self) -> None:
        """Begin; called before the first settling step."""

    def step(self) -> None:
        """A step has ended and another begins."""

    def stop(self, metadata: dict[str, Any]) -> None:
        """End after the last step and leave the trace behind."""

    def abandon(self) -> None:
        """End without a trace."""


def profiler_backend(plan: RecordingPlan, rank: int) -> Backend:
    """The profiler that a plan names."""
    return NsysBackend() if plan.backend == "nsys" else TorchBackend(plan, rank)


class TorchBackend:
    """torch.profiler over the settling and active steps: a gzipped Kineto trace per rank."""

    def __init__(self, plan: RecordingPlan, number: int) -> None:
        self._plan = plan
        self._target = Path(plan.folder) / trace_name(number)
        self._profile: Any = None

    def start(self) -> None:
        """Begin with the settling steps, which the profiler traces and throws away."""
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        plan = self._plan
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=plan.settle, active=plan.active + 1, repeat=1),
            record_shapes=plan.shapes,
            with_stack=plan.stacks,
            profile_memory=plan.memory,
            **sync_events(),
        )
        self._profile.__enter__()

    def step(self) -> None:
        """Advance the schedule."""
        self._profile.step()

    def abandon(self) -> None:
        """Stop the profiler and drop what it holds."""
        self._profile.__exit__(None, None, None)

    def stop(self, metadata: dict[str, Any]) -> None:
        """Write the trace whole or not at all."""
        self._profile.add_metadata_json(METADATA_KEY, json.dumps(metadata, sort_keys=True))
        self._profile.__exit__(None, None, None)
        # export_chrome_trace compresses what ends in .gz
        temporary = self._target.with_name("." + self._target.name)
        self._profile.export_chrome_trace(str(temporary))
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

    def start(self) -> None:
        """Open the capture range that nsys waits for."""
        import torch

        torch.cuda.profiler.start()

    def step(self) -> None:
        """Nothing: the step ranges mark the steps."""

    def abandon(self) -> None:
        """Close the capture range."""
        self.stop({})

    def stop(self, metadata: dict[str, Any]) -> None:
        """Close the capture range; the sidecar goes into the export later."""
        import torch

        torch.cuda.profiler.stop()
