"""Recording with torch.profiler: one gzipped Kineto trace per rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traceprobe.capture.recording_plan import METADATA_KEY, RecordingPlan, trace_name


class TorchBackend:
    """Runs torch.profiler over the settling and active steps."""

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
