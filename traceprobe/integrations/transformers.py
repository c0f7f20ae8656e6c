"""Recordings of a Hugging Face `Trainer`.

from traceprobe.integrations.transformers import TraceprobeCallback

trainer = Trainer(..., callbacks=[TraceprobeCallback(every=1000, output="profiles")])
"""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from traceprobe.integrations.analysis import Outcome
from traceprobe.integrations.callback import RecordingCallback
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


class TraceprobeCallback(RecordingCallback, TrainerCallback):
    """`RecordingCallback` for a `Trainer`, whose updates `TrainerState.global_step` counts."""

    _handler: CallbackHandler | None = None
    _arguments: TrainingArguments | None = None
    _state: TrainerState | None = None
    _control: TrainerControl | None = None
    _ending = False

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
