"""The packages that `traceprobe.integrations` is for: tests run their real trainers on a CPU.

They are part of the group `test`, yet may be absent: TRACEPROBE_REQUIRE_TRAINERS=1 says that they
must be there.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

REQUIRED = os.environ.get("TRACEPROBE_REQUIRE_TRAINERS") == "1"
LOGGERS = ("wandb", "mlflow", "tensorboard")


def need(trainer: str) -> None:
    """Skip the test, or fail it where trainers are required, unless a trainer can be imported."""
    absent = [
        name for name in ("torch", trainer, *LOGGERS) if importlib.util.find_spec(name) is None
    ]
    if absent:
        message = f"not installed: {', '.join(absent)}; pip install --group test"
        (pytest.fail if REQUIRED else pytest.skip)(message)
