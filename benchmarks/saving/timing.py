"""Times a program and its variants in one process, in turns, without a profiler.

    python timing.py FOLDER PROGRAM

All are set up first; then comes the turn of this process on the machine (`SAVING_TURN`, a file that
is locked meanwhile). A block is so many steps of one variant, synchronised at both ends, after
steps that empty a loader's queue. Blocks of all variants follow one another, and again. What was
timed is written after each round. Traces of some steps of each variant come last, so that no timed
step has a profiler in its process.
"""

from __future__ import annotations

import fcntl
import gzip
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parents[1])

import torch  # noqa: E402

from benchmarks.saving.catalog import BY_NAME, Program, Variant  # noqa: E402

ROUNDS = 3
BLOCK_STEPS, BLOCK_SECONDS = 20, 0.5
"""A block is at least so many steps, and more where they do not last so long."""
MOST_STEPS = 150
WARM = 6
SETTLE = 4
"""Steps of a block that are not timed, besides those that were ready in a loader's queue."""
PREFETCH = 2
TRACED = 4
BASE = Variant("base", {})


class Runner:
    """A variant that can be stepped."""

    def __init__(self, module: ModuleType, variant: Variant) -> None:
        small = {} if torch.cuda.is_available() else module.SMALL
        self.variant = variant
        self._options = module.Options(**{**small, **variant.options})
        self._settings = getattr(module, "settings", None)
        self._steps: Iterator[Any] = module.train(self._options)
        resident = getattr(self._options, "resident", False)
        self._queued = 0 if resident else PREFETCH * getattr(self._options, "workers", 0)
        self.step_s = 0.0

    def step(self, count: int) -> None:
        """Make steps."""
        for _ in range(count):
            next(self._steps)

    def begin(self) -> None:
        """Switch to this variant: what it sets for the whole process, and its loader's queue."""
        if self._settings is not None:
            self._settings(self._options)
        self.step(SETTLE + self._queued)

    def block(self) -> dict[str, Any]:
        """A block: milliseconds a step, how many, the clock, and when."""
        self.begin()
        wanted = BLOCK_SECONDS / self.step_s if self.step_s else 0
        count = int(min(max(BLOCK_STEPS, wanted), MOST_STEPS))
        _wait()
        began = time.perf_counter()
        self.step(count)
        _wait()
        self.step_s = (time.perf_counter() - began) / count
        self.step(1)
        clock = torch.cuda.clock_rate() if torch.cuda.is_available() else 0
        _wait()
        return {"ms": self.step_s * 1e3, "steps": count, "clock_mhz": clock, "at": time.time()}


def main() -> None:
    """Time the program of the command line."""
    folder, program = Path(sys.argv[1]), BY_NAME[sys.argv[2]]
    found: dict[str, Any] = {"program": program.name, "failed": {}, "blocks": {}}
    runners = _set_up(program, found)
    found["set_up_s"] = time.monotonic() - BEGAN
    _save(folder, found)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # others are set up beside this
    with Path(os.environ["SAVING_TURN"]).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for _ in range(ROUNDS):
            _round(runners, found)
            _save(folder, found)
        # Once more, so that what the process itself does to the times of a program shows.
        _round(runners[:1], found)
        _save(folder, found)
        for runner in runners:
            if runner.variant.play is not None and runner.variant.play.faster:
                _trace(runner, folder / f"{program.name}.{runner.variant.name}.json", found)
        found["ended_s"] = time.monotonic() - BEGAN
        _save(folder, found)
    os._exit(0)  # workers of all variants would be joined one by one


def _set_up(program: Program, found: dict[str, Any]) -> list[Runner]:
    specification = importlib.util.spec_from_file_location(program.name, program.script)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[program.name] = module
    specification.loader.exec_module(module)
    runners = []
    for variant in (BASE, *program.variants):
        try:
            runner = Runner(module, variant)
            runner.begin()
            runner.step(WARM)
            _wait()
            runners.append(runner)
        except Exception:  # a variant that does not run is no reason to lose the others
            found["failed"][variant.name] = traceback.format_exc()[-1500:]
    return runners


def _round(runners: list[Runner], found: dict[str, Any]) -> None:
    for runner in runners:
        name = runner.variant.name
        if name in found["failed"]:
            continue
        try:
            found["blocks"].setdefault(name, []).append(runner.block())
        except Exception:
            found["failed"][name] = traceback.format_exc()[-1500:]


def _trace(runner: Runner, path: Path, found: dict[str, Any]) -> None:
    """Leave a trace of a few steps."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    try:
        runner.begin()
        plan = torch.profiler.schedule(wait=0, warmup=1, active=TRACED, repeat=1)
        with torch.profiler.profile(activities=kinds, schedule=plan) as profiler:
            for number in range(1 + TRACED):
                runner.step(1)
                if number == TRACED:
                    _wait()
                profiler.step()
        profiler.export_chrome_trace(str(path))
        path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
        path.unlink()
    except Exception:
        found["failed"][f"{runner.variant.name} traced"] = traceback.format_exc()[-1500:]


def _save(folder: Path, found: dict[str, Any]) -> None:
    path = folder / f"{found['program']}.json"
    path.write_text(json.dumps(found, indent=1))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    BEGAN = time.monotonic()
    main()
