"""A form of a case: its program with its causes, or without some, and how it is timed."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.slowbench.cases import Case, source_of
from benchmarks.slowbench.ranks import agreed

WARM = 4
"""Steps before the first block."""
SETTLE = 3
"""Steps before a block that are not timed, besides those that a loader had ready."""
BLOCK_SECONDS = 0.15
"""Of a block, as far as that is no fewer than `LEAST_STEPS` and no more than `MOST_STEPS`."""
LEAST_STEPS, MOST_STEPS = 6, 60
PREFETCH = 2


class Form:
    """A program that can be stepped.

    Args:
        drains: whether what its loader has ready is used up before a block.
    """

    def __init__(
        self, path: Path, options: Mapping[str, Any], *, drains: bool, period: int
    ) -> None:
        module = _loaded(path)
        self._options = module.Options(**options)
        self._settings = getattr(module, "settings", None)
        self._steps: Iterator[Any] = module.train(self._options)
        self._ahead = PREFETCH * getattr(self._options, "workers", 0) if drains else 0
        self._period = period
        self.step_s = 0.0

    def step(self, count: int = 1) -> None:
        """Make steps."""
        for _ in range(count):
            next(self._steps)

    def begin(self) -> None:
        """Switch to this form: what it sets for the whole process."""
        if self._settings is not None:
            self._settings(self._options)

    def warm_up(self) -> None:
        """Make the first steps."""
        self.begin()
        self.step(WARM)
        wait()

    def block(self, late: float = 0.0) -> dict[str, Any]:
        """Steps in whole periods: milliseconds of one, and how many.

        Args:
            late: part of a step by which the host is late for each; what that was in ms is told.
        """
        self.begin()
        settling = max(SETTLE, self._ahead)
        self.step(settling + -settling % self._period)
        wanted = BLOCK_SECONDS / self.step_s if self.step_s else 0
        count = int(min(max(LEAST_STEPS, wanted), MOST_STEPS))
        count += -count % self._period
        wait()
        agreed(0)
        if late:
            return self._late_block(count, late * self.step_s)
        began = time.perf_counter()
        self.step(count)
        wait()
        self.step_s = agreed((time.perf_counter() - began) / count)
        return {"ms": _ms(self.step_s), "steps": count}

    def _late_block(self, count: int, late_s: float) -> dict[str, Any]:
        slept = 0.0
        began = time.perf_counter()
        for _ in range(count):
            paused = time.perf_counter()
            time.sleep(late_s)
            slept += time.perf_counter() - paused
            self.step()
        wait()
        step_s = agreed((time.perf_counter() - began) / count)
        return {"ms": _ms(step_s), "steps": count, "late_ms": _ms(agreed(slept / count))}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 4)


def wait() -> None:
    """For the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _loaded(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def write_form(case: Case, name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """File and options of a form: `slow`, `healthy`, or `without CAUSE`."""
    left_out = name.removeprefix("without ") if name.startswith("without ") else None
    path = folder / f"{case.program}.py"
    if name != "slow":
        path = folder / name.replace(" ", "-") / path.name
        path.parent.mkdir(exist_ok=True)
    text = source_of(case, left_out, healthy=name == "healthy")
    own = path.with_suffix(f".{os.getpid()}")  # another rank may be reading the same one
    own.write_text(text, encoding="utf-8")
    own.replace(path)
    return path, options_of(case, left_out, healthy=name == "healthy")


def options_of(case: Case, without: str | None = None, *, healthy: bool = False) -> dict[str, Any]:
    """Options of a form; `without` and `healthy` as `source_of` takes them."""
    options = dict(case.options)
    for placed in () if healthy else case.causes:
        if placed.cause != without:
            options |= placed.options
    return options


def names_of_forms(case: Case) -> list[str]:
    """The forms of a case that are timed, in their order."""
    if not case.causes:
        return ["slow"]
    without = [f"without {p.cause}" for p in case.causes] if len(case.causes) > 1 else []
    return ["healthy", "slow", *without]
