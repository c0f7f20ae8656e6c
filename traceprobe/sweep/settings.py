"""How the rungs of a ladder are run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from traceprobe.capture.process import program
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.run_recording import RecordingRequest
from traceprobe.sweep.ladder import Ladder, Rung

_FOLDER = "--data-folder"


class SweepSettings(msgspec.Struct, frozen=True):
    """How the rungs of a ladder are run.

    Args:
        backend: which profiler records, `torch` or `nsys`.
        extra: settings of the workload after those of every rung.
        folder: where each rung has a folder of its own.
        replace: whether recordings take the place of older ones there.
    """

    ladder: Ladder
    backend: str
    extra: Sequence[str]
    folder: Path
    replace: bool = False

    def request(self, rung: Rung) -> RecordingRequest:
        """The recording of a rung.

        Raises:
            UsageError: PyTorch is missing.
        """
        ladder = self.ladder
        script = str(program.workload_script(ladder.workload))
        command = [program.torch_interpreter(), script, *self.arguments(rung)]
        plan = RecordingPlan(
            folder="",
            backend="nsys" if self.backend == "nsys" else "torch",
            warmup=ladder.profile.warmup,
            calibrate=ladder.profile.calibrate,
            active=ladder.profile.active,
            workload={"name": ladder.workload},
        )
        ranks = rung.ranks if rung.ranks > 1 else None
        return RecordingRequest(command, plan, ranks, rung.environment, self.replace)

    def arguments(self, rung: Rung) -> list[str]:
        """The settings of a rung on the command line of its workload."""
        return [*rung.arguments, *self.extra]

    def public_arguments(self, rung: Rung) -> list[str]:
        """Those that do not only say where something lies on this machine."""
        public: list[str] = []
        arguments = iter(self.arguments(rung))
        for argument in arguments:
            if argument == _FOLDER:
                next(arguments, None)
            elif not argument.startswith(f"{_FOLDER}="):
                public.append(argument)
        return public
