"""How the rungs of a ladder are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceprobe.capture import program
from traceprobe.capture.ladder import Ladder, Rung
from traceprobe.capture.plan import Plan
from traceprobe.capture.profile import Request

_FOLDER = "--data-folder"


@dataclass(frozen=True)
class SweepSettings:
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

    def request(self, rung: Rung) -> Request:
        """The recording of a rung.

        Raises:
            UsageError: PyTorch is missing.
        """
        ladder = self.ladder
        script = str(program.workload(ladder.workload))
        command = [program.interpreter(), script, *self.arguments(rung)]
        plan = Plan(
            folder="",
            backend="nsys" if self.backend == "nsys" else "torch",
            warmup=ladder.warmup,
            calibrate=ladder.calibrate,
            active=ladder.active,
            workload={"name": ladder.workload},
        )
        ranks = rung.ranks if rung.ranks > 1 else None
        return Request(command, plan, ranks, rung.environment, self.replace)

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
