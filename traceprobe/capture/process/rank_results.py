"""What each rank of a program leaves in the shared folder for the process that started it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from traceprobe.capture.process.progress import current_rank, write_result

AnyResult = TypeVar("AnyResult", bound="RankResult")


@dataclass(frozen=True)
class RankResult:
    """Fields that JSON can hold."""

    NAME: ClassVar[str]
    """What files of it are called, besides their rank."""

    def save(self, folder: str) -> None:
        """Leave it in the folder, whole or not at all."""
        path = Path(folder) / f"rank{current_rank()}.{self.NAME}.json"
        write_result(path, json.dumps(asdict(self), sort_keys=True))

    @classmethod
    def of_ranks(cls: type[AnyResult], folder: Path) -> dict[int, AnyResult]:
        """What the ranks left in the folder, by rank."""
        found = {
            int(path.name.removeprefix("rank").split(".")[0]): cls(**json.loads(path.read_text()))
            for path in folder.glob(f"rank*.{cls.NAME}.json")
        }
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class RankMeasurements(RankResult):
    """What every measurement of a loop says besides its times.

    Args:
        steps: of a block, by condition.
        absent: what could not be measured, and why.
        workload, hardware, libraries, flags: as in the calibration of a recording.
    """

    steps: dict[str, int]
    absent: dict[str, str]
    workload: dict[str, Any]
    hardware: dict[str, Any]
    libraries: dict[str, Any]
    flags: dict[str, Any]

    @property
    def run(self) -> dict[str, Any]:
        """What the records of such measurements have of the run."""
        return {
            "workload": self.workload or None,
            "hardware": self.hardware,
            "libraries": self.libraries,
            "flags": self.flags,
            "absent": dict(sorted(self.absent.items())),
        }
