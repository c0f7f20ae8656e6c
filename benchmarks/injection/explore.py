"""Runs a program as it is, and tells where a fault can go: the lines of every step.

    python explore.py RESULT PROGRAM [OPTIONS]

After some steps that warm up it times some, then follows some more line by line. A place is the
first line of a statement that was executed in each of those.
"""

from __future__ import annotations

import ast
import json
import os
import runpy
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM, TIMED, FOLLOWED = 6, 10, 4
_COMPOUND = (
    *(ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef),
    *(ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal),
)
"""Statements before which nothing is put, as they are not executed once each time."""
_LOADER = "/torch/utils/data/"


class Follower:
    """Counts the steps of the first optimizer, and the lines in the last of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.owner: int | None = None
        self.steps = 0
        self.began = self.step_ms = 0.0
        self.statements: dict[str, dict[int, int]] = {}
        self.hits: dict[tuple[str, int], Counter[int]] = {}
        self.facts: dict[tuple[str, int], dict[str, Any]] = {}
        self.last: dict[int, int] = {}

    def step(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has made a step."""
        self.owner = self.owner or id(optimizer)
        if id(optimizer) != self.owner:
            return
        self.steps += 1
        if self.steps == WARM:
            self.began = _now()
        if self.steps == WARM + TIMED:
            self.step_ms = (_now() - self.began) / TIMED * 1e3
            self._follow()
        if self.steps == WARM + TIMED + FOLLOWED:
            sys.settrace(None)
            raise SystemExit(0)

    def _follow(self) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if self._is_ours(frame.f_code):
                frame.f_trace = self._line
            frame = frame.f_back
        sys.settrace(self._call)

    def _is_ours(self, code: CodeType) -> bool:
        is_whole = not code.co_name.startswith("<") or code.co_name == "<module>"
        return is_whole and code.co_filename.startswith(f"{self.root}{os.sep}")

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if event == "call" and self._is_ours(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "return":
            self.last.pop(id(frame), None)
        if event != "line":
            return self._line
        file = frame.f_code.co_filename
        starts = self.statements.get(file)
        if starts is None:
            starts = self.statements[file] = statement_starts(Path(file).read_text())
        start = starts.get(frame.f_lineno, 0)
        # A call over several lines comes back to the first of them.
        if start and start == frame.f_lineno and self.last.get(id(frame)) != start:
            self._hit(frame, (file, start))
        self.last[id(frame)] = start
        return self._line

    def _hit(self, frame: FrameType, key: tuple[str, int]) -> None:
        self.hits.setdefault(key, Counter())[self.steps] += 1
        if key not in self.facts:
            above: FrameType | None = frame
            loads = False
            while above is not None:
                loads = loads or _LOADER in above.f_code.co_filename
                above = above.f_back
            self.facts[key] = {"function": frame.f_code.co_name, "loads": loads, "tensors": []}
        if not self.facts[key]["loads"]:
            self.facts[key]["tensors"] = [
                name for name, value in frame.f_locals.items() if _can_be_read(value)
            ]

    def result(self) -> dict[str, Any]:
        """What was found."""
        followed = range(WARM + TIMED, WARM + TIMED + FOLLOWED)
        places = []
        for (file, line), hits in sorted(self.hits.items()):
            # The first of the steps begins in the middle, and the last ends there.
            if all(hits[step] for step in list(followed)[:-1]):
                count = sum(hits.values()) / FOLLOWED
                name = str(Path(file).relative_to(self.root))
                places.append({"file": name, "line": line, "hits": count, **self.facts[file, line]})
        return {"step_ms": self.step_ms, "places": places, "machine": _rates()}


def statement_starts(source: str) -> dict[int, int]:
    """For each line, the line that the innermost statement there starts in; 0 for none to use."""
    found: dict[int, int] = {}
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):  # outer before inner
        if not isinstance(node, ast.stmt):
            continue
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        alone = not lines[node.lineno - 1][: node.col_offset].strip()
        branch = lines[node.lineno - 1].lstrip().startswith(("elif ", "else"))
        use = alone and not (isinstance(node, _COMPOUND) or text or branch)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found[line] = node.lineno if use else -node.lineno
    return {line: max(start, 0) for line, start in found.items()}


def _can_be_read(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() > 0 and not value.is_sparse


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _rates() -> dict[str, float]:
    """What this machine makes in a millisecond, of what faults are made of."""
    rates = {"turns": 2e6 / _best(lambda: sum(range(2_000_000)))}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = 4096 if device == "cuda" else 384
    square = torch.ones(size, size, device=device)
    rates["flops"] = 2 * size**3 / _best(lambda: square @ square)
    if device == "cuda":
        rates["cycles"] = 1e7 / _best(lambda: torch.cuda._sleep(10_000_000))
        rates["bytes"] = 4e7 / _best(lambda: torch.empty(10_000_000).to("cuda"))
    return rates


def _best(work: Any) -> float:
    """Milliseconds of a call, the fastest of some."""
    times = []
    for _ in range(5):
        began = _now()
        work()
        times.append((_now() - began) * 1e3)
    return min(times)


def main() -> None:
    """Run the program of the command line."""
    result, program = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    root = Path(os.environ["INJECTION_ROOT"]).resolve()
    follower = Follower(root)
    register_optimizer_step_post_hook(follower.step)
    sys.argv = [str(program), *sys.argv[3:]]
    sys.path[0] = str(program.parent)
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.settrace(None)
        result.write_text(json.dumps(follower.result()))


if __name__ == "__main__":
    main()
