"""One prediction of memory from start to its answer; nothing left behind on failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceprobe.capture import launch
from traceprobe.capture.memory_prediction import ANSWER, VARIABLE
from traceprobe.capture.program import environment, workspace
from traceprobe.errors import UsageError


def predict(
    program: list[str],
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    """Run a program through its simulated steps.

    Args:
        folder: where temporary files may be.
        on_state: told what the program is doing.
        on_note: told how a program failed that had been simulated before.

    Raises:
        UsageError: the program does not hand over model and optimizer, or has no batches.
        RecordingFailed: the program failed.
    """
    with workspace(folder) as work:
        on_state("starting")
        ended = launch.run(program, environment(VARIABLE, work), work, on_state, on_note)
        answer = work / ANSWER
        if not answer.exists():
            ended.expect_success()
            raise UsageError(
                "the program ended before its loop began; `for batch in record.steps(loader)` must "
                "be its training loop, with `record.memory(model, optimizer)` before it "
                "(docs/memory.md)"
            )
        found: dict[str, Any] = json.loads(answer.read_text())
    if ended.how is not None:
        on_note(f"the simulation was complete when {ended.message}")
    return found
