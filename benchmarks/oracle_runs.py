"""The runs of `oracle.py`: each program in a fork of this process, which has imported all."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import multiprocessing
import os
import runpy
import shlex
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.program_rows import ORACLE_ROWS, Row
from traceprobe.capture.loader.loader_hook import install_loader_hook
from traceprobe.capture.loop.optimizer_hook import install_optimizer_hook
from traceprobe.capture.machine.hardware import collect_environment
from traceprobe.capture.oracle.ablation_plan import AblationPlan

PROGRAMS = Path(__file__).resolve().parents[1] / "workloads" / "programs"
MODULES = ("torch", "torchvision", "torchvision.models")
MOST_STEPS = 3000
PATIENCE_S = 130.0
TRIALS, SECONDS = 4, 0.5
HAND_S = 1.2
"""What is timed of a run by hand, about; a machine that others use too varies by the second."""
WARM_S = 2.5
"""What comes before it, about: workers have a lead of some batches, which must be used up."""
MOST_TIMED, MOST_WARM = 60, 100
FIRST_PORT = 29591
Fork = multiprocessing.get_context("fork").Process


def run(out: Path, gpus: int, names: str | None, deadline: float, *, tiny: bool) -> None:
    """Every row: those of more ranks first, then those of one, as many at once as GPUs allow."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    known = {row.name: row for row in ORACLE_ROWS}
    rows = [known[name] for name in names.split(",")] if names else list(known.values())
    for name in (*MODULES, *{module for row in rows for module in row.modules}):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import torch.utils.data.dataloader  # noqa: F401

    sys.path.insert(0, str(PROGRAMS))
    print(f"imported after {time.monotonic() - began:.0f} s", flush=True)
    lock = threading.Lock()

    def work(todo: list[Row], on: list[int]) -> None:
        while True:
            with lock:
                if not todo or time.monotonic() - began > deadline:
                    return
                row = todo.pop(0)
            _row(row, on, out, began, tiny)

    for ranks in sorted({row.ranks for row in rows}, reverse=True):
        todo = [row for row in rows if row.ranks == ranks]
        count = max(gpus, ranks * tiny) // ranks if ranks > 1 else max(gpus, 1)
        places = [list(range(n * ranks, (n + 1) * ranks)) for n in range(count)]
        threads = [threading.Thread(target=work, args=(todo, on)) for on in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _row(row: Row, gpus: list[int], out: Path, began: float, tiny: bool) -> None:
    """One row on its GPUs; what came of it goes into the lines of `rows.jsonl`."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # Before the ranks begin: one must not read what another writes.
        AblationPlan(folder, 5, {"name": row.name}, count=TRIALS, seconds=SECONDS).save()
        for work in (_by_hand, _by_bench, _by_hand):
            arguments = [(work, row, n, gpus, folder, tiny) for n in range(row.ranks)]
            ranks = [Fork(target=_work, args=given) for given in arguments]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(max(0.0, PATIENCE_S - (time.monotonic() - start)))
            for rank in ranks:
                rank.kill()
        found = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
        said = "".join(path.read_text()[-3000:] for path in Path(folder).glob("*.log"))
    line = {"name": row.name, "seconds": round(time.monotonic() - start, 1), "files": found}
    with (out / "rows.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{time.monotonic() - began:.0f} s: {row.name} {sorted(found)}\n{said}", flush=True)


def _work(work: Any, row: Row, rank: int, gpus: list[int], folder: str, tiny: bool) -> None:
    """What one process of one rank does."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    if row.ranks > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost"}
        port = FIRST_PORT + 200 * gpus[0] + (0 if work is _by_hand else 100)
        os.environ |= {"WORLD_SIZE": str(row.ranks), "MASTER_PORT": str(port)}
    os.environ |= row.environment
    options = [*shlex.split(row.options), *(["--tiny"] if tiny else [])]
    try:
        work(row, rank, Path(folder), options)
    except BaseException:  # of any program
        with (Path(folder) / f"{rank}.log").open("a") as log:
            log.write(traceback.format_exc())
    os._exit(0)


def _by_hand(row: Row, rank: int, place: Path, options: list[str]) -> None:
    """A round of runs without anything of traceprobe; their times join those of earlier rounds."""
    kept = place / f"hand{rank}.json"
    hand: dict[str, list[float]] = json.loads(kept.read_text()) if kept.exists() else {}

    def run_once(*more: str) -> float:
        counts = ["--steps", str(warm + count), "--timed", str(count)]
        text = _program(row, [*options, *counts, *more])
        return float([json.loads(x)["step_ms"] for x in text.splitlines() if '"step_ms"' in x][-1])

    count, warm = row.timed, row.steps - row.timed
    if row.ranks == 1:  # ranks must make as many steps
        full_s = (hand["full"][0] if hand else run_once()) / 1e3
        count = min(max(round(HAND_S / full_s), count), MOST_TIMED)
        warm = min(max(round(WARM_S / full_s), warm), MOST_WARM)

    def timed(name: str, *more: str) -> None:
        hand.setdefault(name, []).append(run_once(*more))
        kept.write_text(json.dumps(hand))

    timed("full")
    for part, option in row.without.items():
        if part != "communication" or row.silent is None:
            timed(part, option)
    if row.silent is not None:  # one rank alone would neither send nor pack
        timed("communication", row.silent)
    with _fused_by_hand():
        timed("fused")


def _by_bench(row: Row, rank: int, place: Path, options: list[str]) -> None:
    """The same program as `traceprobe bench` runs it."""
    (place / f"machine{rank}.json").write_text(json.dumps(collect_environment()))
    os.environ[AblationPlan.VARIABLE] = str(AblationPlan(str(place)).path)
    install_loader_hook(sys.modules["torch.utils.data.dataloader"])
    install_optimizer_hook(sys.modules["torch.optim.optimizer"])
    _program(row, [*options, "--steps", str(MOST_STEPS)])


def _program(row: Row, arguments: list[str]) -> str:
    """What a program says that runs in this process until it ends, or is ended."""
    said, before = io.StringIO(), sys.argv
    # Ranks that part and meet again do so at another place.
    os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", FIRST_PORT)) + 1)
    path = str(PROGRAMS / f"{row.program}.py")
    sys.argv = [path, *arguments]
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before
    return said.getvalue()


@contextlib.contextmanager
def _fused_by_hand() -> Any:
    """Optimizers are made with `fused=True`, as who writes the program would."""
    import torch

    kinds = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD]
    before = [(kind, kind.__init__) for kind in kinds]
    for kind, own in before:

        def begin(self: Any, *args: Any, own: Any = own, **options: Any) -> None:
            options = {**options, "fused": True, "foreach": None}
            own(self, *args, **options)

        functools.update_wrapper(begin, own)
        kind.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, own in before:
            kind.__init__ = own  # type: ignore[method-assign]
