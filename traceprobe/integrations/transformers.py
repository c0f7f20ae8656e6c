"""Recordings of a Hugging Face `Trainer`.

from traceprobe.integrations.transformers import TraceprobeCallback

trainer = Trainer(..., callbacks=[TraceprobeCallback(every=1000, output="profiles")])
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from traceprobe.capture.short_capture import ACTIVE
from traceprobe.integrations.analysis import Outcome
from traceprobe.integrations.settings import WAIT_S, Settings
from traceprobe.integrations.trackers import (
    active_mlflow_run,
    active_wandb_run,
    to_mlflow,
    to_tensorboard,
    to_wandb,
)
from traceprobe.integrations.training_session import TrainingSession

LAST_LOG = "train_runtime"
"""Is in what the trainer logs when all steps are made, while its loggers are still open."""


class TraceprobeCallback(TrainerCallback):
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
        self._handler: CallbackHandler | None = None
        self._arguments: TrainingArguments | None = None
        self._state: TrainerState | None = None
        self._control: TrainerControl | None = None
        self._ending = False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        if self._session is None:
            ranks = max(args.world_size, 1)
            self._session = TrainingSession(self._settings, args.process_index, ranks, self._log)
        self._arguments, self._state, self._control = args, state, control
        self._handler, self._ending = _caller(), False
        self._session.begin(state.global_step)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.step_begins()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.phase_begins("optimizer")

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.phase_ends()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.step_ended(state.global_step)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.interrupted()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """At the end of the training the last report is waited for: later no logger takes it."""
        if self._session is not None and LAST_LOG in (logs or {}):
            self._ending = True
            self._session.end()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self._session is not None:
            self._session.end()
        self._handler = None

    def _log(self, outcome: Outcome) -> None:
        """What `Trainer.log` does with numbers, and the report for those who keep files."""
        handler, state = self._handler, self._state
        assert state is not None
        numbers = outcome.numbers()
        if handler is not None:
            last = [state.log_history.pop()] if self._ending and state.log_history else []
            entry = {**numbers, "epoch": state.epoch, "step": state.global_step}
            state.log_history += [entry, *last]  # what the trainer logged last stays the last
            handler.on_log(self._arguments, state, self._control, numbers)
        for callback in [] if handler is None else handler.callbacks:
            writer = getattr(callback, "tb_writer", None)
            if writer is not None:
                to_tensorboard(writer, outcome)
        if (run := active_wandb_run()) is not None:
            to_wandb(run, outcome)
        if (run_id := active_mlflow_run()) is not None:
            to_mlflow(run_id, outcome)


def _caller() -> CallbackHandler | None:
    """The handler of the trainer that calls a callback.

    A callback is not told whose it is, and there is no other way to the trainer's loggers.
    """
    frame = sys._getframe().f_back
    while frame is not None:
        handler = frame.f_locals.get("self")
        if isinstance(handler, CallbackHandler):
            return handler
        frame = frame.f_back
    return None
