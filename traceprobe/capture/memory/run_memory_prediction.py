"""One prediction of memory from start to its answer; nothing left behind on failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceprobe.capture.memory.memory_prediction_session import ANSWER, VARIABLE
from traceprobe.capture.process.environment import program_environment
from traceprobe.capture.process.launch import run_program
from traceprobe.capture.process.program import workspace
from traceprobe.errors import UsageError


def run_memory_prediction(
    program: list[str],
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    """The predicted memory of a step, as recorded, after the program has run its simulated steps.

    Args:
        folder: where temporary files may be.
        on_state: called with what the program is doing.
        on_note: called with how a program failed that had been simulated before.

    Raises:
        UsageError: the program does not hand over model and optimizer, or has no batches.
        RecordingFailed: the program failed.
    """
    with workspace(folder) as work:
        environment = program_environment(VARIABLE, work)
        end = run_program(program, environment, work, on_state, on_note)
        answer = work / ANSWER
        if not answer.exists():
            end.expect_success()
            raise UsageError(
                "the program ended before its loop began; `for batch in record.steps(loader)` must "
                "be its training loop, with `record.memory(model, optimizer)` before it "
                "(docs/memory.md)"
            )
        prediction: dict[str, Any] = json.loads(answer.read_text())
    end.note_failure("the simulation was complete", on_note)
    return prediction
