"""What the callbacks of trainers have in common."""

from __future__ import annotations

from pathlib import Path

from traceprobe.capture.recording.short_capture import ACTIVE
from traceprobe.integrations.settings import WAIT_S, Settings
from traceprobe.integrations.training_session import TrainingSession


class RecordingCallback:
    """Records a few steps now and then, and logs what holds them back.

    A step is an update of the parameters, with all batches whose gradients it accumulates.

    Args:
        every: steps between recordings; 0 for none but those that are asked for.
        output: folder of the recordings, one for each training. Ranks must share it. Its file
            `record`, when it appears, asks for a recording.
        steps: that are kept of a recording.
        signal: whose arrival asks for a recording, such as `signal.SIGUSR2`.
        wait_s: how long the end of the training may wait for the last report, s.

    Raises:
        ValueError: one of them makes no sense.
    """

    def __init__(
        self,
        every: int = 1000,
        output: str | Path = "profiles",
        *,
        steps: int = ACTIVE,
        signal: int | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        self._settings = Settings(every, Path(output).absolute(), steps, signal, wait_s)
        self._session: TrainingSession | None = None
