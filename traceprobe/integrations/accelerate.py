"""Recordings of a loop of one's own under Accelerate.

from traceprobe.integrations.accelerate import record

with record(accelerator, every=1000, output="profiles") as recording:
for batch in recording.steps(loader):
with accelerator.accumulate(model):
...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from traceprobe.capture.recording.short_capture import ACTIVE
from traceprobe.integrations.analysis import Outcome
from traceprobe.integrations.settings import WAIT_S, Settings
from traceprobe.integrations.trackers import to_mlflow, to_tensorboard, to_wandb
from traceprobe.integrations.training_session import TrainingSession

if TYPE_CHECKING:
    from accelerate import Accelerator

Batch = TypeVar("Batch")


class Recording:
    """A training loop whose steps are counted; `record` makes one."""

    def __init__(self, accelerator: Accelerator, settings: Settings, first_step: int) -> None:
        self._accelerator = accelerator
        self._session = TrainingSession(
            settings, accelerator.process_index, accelerator.num_processes, self._log
        )
        self._done = first_step
        self._session.begin(first_step)

    @property
    def step(self) -> int:
        """Updates of the parameters so far."""
        return self._done

    def steps(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of a loader, one pass. A step ends with the batch that ends an accumulation."""
        batches = iter(loader)
        while True:
            with self._session.phase("data_loading"):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            self._session.step_begins()
            yield batch
            if self._accelerator.sync_gradients:
                self._done += 1
                self._session.step_ended(self._done)

    def phase(self, name: str) -> Any:
        """A context manager around a part of a step, such as "forward" or "evaluation"."""
        return self._session.phase(name)

    def pause(self) -> None:
        """An evaluation begins, or else what is no part of a step: record steps after it."""
        self._session.interrupted()

    def _log(self, outcome: Outcome) -> None:
        self._accelerator.log(outcome.numbers(), step=self._done)
        for tracker in self._accelerator.trackers:
            if tracker.name == "wandb":
                to_wandb(tracker.tracker, outcome)
            elif tracker.name == "mlflow":
                to_mlflow(tracker.tracker.info.run_id, outcome)
            elif tracker.name == "tensorboard":
                to_tensorboard(tracker.tracker, outcome)


@contextmanager
def record(
    accelerator: Accelerator,
    every: int = 1000,
    output: str | Path = "profiles",
    *,
    steps: int = ACTIVE,
    signal: int | None = None,
    first_step: int = 0,
    wait_s: float = WAIT_S,
) -> Iterator[Recording]:
    """Record a few steps of a loop now and then, and log what holds them back.

    Args:
        every: steps between recordings; 0 for none but those that are asked for.
        output: folder of the recordings, one for each training. Ranks must share it. Its file
            `record`, when it appears, asks for a recording.
        steps: that are kept of a recording.
        signal: whose arrival asks for a recording, such as `signal.SIGUSR2`.
        first_step: steps that were made before, of a training that is resumed.
        wait_s: how long the end of the loop may wait for the last report, s.

    Raises:
        ValueError: one of them makes no sense.
    """
    settings = Settings(every, Path(output).absolute(), steps, signal, wait_s)
    recording = Recording(accelerator, settings, first_step)
    try:
        yield recording
    except BaseException:
        recording._session.abandon()
        raise
    recording._session.end()
