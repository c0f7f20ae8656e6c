"""Recordings of a Lightning `Trainer`.

from traceprobe.integrations.lightning import TraceprobeCallback

trainer = Trainer(..., callbacks=[TraceprobeCallback(every=1000, output="profiles")])
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
    from lightning.pytorch.profilers import PassThroughProfiler, Profiler
except ModuleNotFoundError:  # the same under its other name
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
    from pytorch_lightning.profilers import PassThroughProfiler, Profiler

from traceprobe.capture.profiler.profiler_ranges import NO_RANGE, ProfilerRange, ProfilerRanges
from traceprobe.integrations.analysis import Outcome
from traceprobe.integrations.callback import RecordingCallback
from traceprobe.integrations.trackers import to_mlflow, to_tensorboard, to_wandb
from traceprobe.integrations.training_session import TrainingSession

_FORWARD = "training_step"
"""End of the name of the action that is the forward pass."""
_OURS = "[Callback]TraceprobeCallback."


class TraceprobeProfiler(Profiler):
    """Gives Lightning's actions to whoever records: as ranges of torch.profiler or NVTX.

    It records nothing itself, and costs next to nothing while nobody does. `TraceprobeCallback`
    uses one while it records; give it to a `Trainer` where `traceprobe profile` or nsys does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._mark = ProfilerRanges()
        self._open: dict[str, list[ProfilerRange]] = {}

    def start(self, action_name: str) -> None:
        """An action begins."""
        if action_name.startswith(_OURS):  # in which one step ends and another begins
            return
        phase = "forward" if action_name.endswith(_FORWARD) else f"[pl]{action_name}"
        entered = self._mark(phase)
        if entered is not NO_RANGE:
            entered.__enter__()
            self._open.setdefault(action_name, []).append(entered)

    def stop(self, action_name: str) -> None:
        """An action ends; its beginning may have been before anybody recorded."""
        if entered := self._open.get(action_name):
            entered.pop().__exit__(None, None, None)


class TraceprobeCallback(RecordingCallback, Callback):
    """`RecordingCallback` for a `Trainer`, whose updates `Trainer.global_step` counts."""

    _trainer: Trainer | None = None
    _before: Profiler | None = None
    _done = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trainer, self._done = trainer, trainer.global_step
        self._session = TrainingSession(
            self._settings, trainer.global_rank, trainer.world_size, self._log
        )
        self._session.begin(self._done)

    def on_train_batch_start(self, *_: Any) -> None:
        if self._session is not None:
            self._session.step_begins()
            self._name_actions()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._session is not None and trainer.global_step > self._done:
            self._done = trainer.global_step
            self._session.step_ended(self._done)
            self._name_actions()

    def on_validation_start(self, *_: Any) -> None:
        if self._session is not None:  # not before the training, to try the validation out
            self._session.interrupted()
            self._name_actions()

    def on_train_end(self, *_: Any) -> None:
        if self._session is not None:
            self._session.end()
            self._close()

    def on_exception(self, *_: Any) -> None:
        if self._session is not None:
            self._session.abandon()
            self._close()

    def _name_actions(self) -> None:
        """Have Lightning's actions named while steps are recorded, where no profiler is used."""
        trainer, session = self._trainer, self._session
        assert trainer is not None
        assert session is not None
        if session.recording and type(trainer.profiler) is PassThroughProfiler:
            self._before, trainer.profiler = trainer.profiler, TraceprobeProfiler()
        elif not session.recording and self._before is not None:
            trainer.profiler, self._before = self._before, None

    def _close(self) -> None:
        self._name_actions()
        self._session = self._trainer = None

    def _log(self, outcome: Outcome) -> None:
        trainer = self._trainer
        assert trainer is not None
        for logger in trainer.loggers:
            logger.log_metrics(outcome.numbers(), step=trainer.global_step)
            if isinstance(logger, WandbLogger):
                to_wandb(logger.experiment, outcome)
            elif isinstance(logger, MLFlowLogger) and logger.run_id is not None:
                to_mlflow(logger.run_id, outcome, logger.experiment)
            elif isinstance(logger, TensorBoardLogger):
                to_tensorboard(logger.experiment, outcome)
