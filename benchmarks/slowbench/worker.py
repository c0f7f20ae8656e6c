"""One case in a process of its own: set up, timed and recorded in its turn, named afterwards.

    python -m benchmarks.slowbench.worker FOLDER OPENED

Nothing of a profiler is in the process while blocks are timed. What is recorded with
torch.profiler is what `traceprobe profile` records: the same hooks, put in by hand after the fork.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.slowbench.cases import ACTIVE, Case, Placed
from benchmarks.slowbench.costs import LATE, LATE_BY
from benchmarks.slowbench.forms import PREFETCH, Form, names_of_forms, options_of, wait, write_form
from benchmarks.slowbench.neighbour import Neighbour
from benchmarks.slowbench.ranks import agreed, fork_ranks
from benchmarks.slowbench.turns import GROUP, Place, State
from traceprobe.capture.recording.recording_plan import RecordingPlan, sidecar_name

PLAN = {"warmup": 8, "most_warmup": 24, "calibrate": 8, "active": ACTIVE, "repeats": 1}
ON_CPU = {"warmup": 4, "most_warmup": 4, "calibrate": 4, "repeats": 0}
"""A shorter recording than the usual one: it is made while others wait for the device."""
RESULT = "result.json"
LAST_CHARACTERS = 1500


def write_case(case: Case, rounds: int, folder: Path) -> None:
    """For `read_case` in another process.

    Args:
        rounds: in each of which all forms are timed.
    """
    text = json.dumps({"case": asdict(case), "rounds": rounds})
    (folder / "case.json").write_text(text)


def read_case(folder: Path) -> tuple[Case, int]:
    """The case of a folder, and its rounds."""
    written = json.loads((folder / "case.json").read_text())
    found = written["case"]
    causes = tuple(
        Placed(**{**each, "lines": tuple(map(tuple, each["lines"]))}) for each in found["causes"]
    )
    case = Case(**{**found, "causes": causes, "helpers": tuple(found["helpers"])})
    return case, written["rounds"]


def work(folder: Path, opened: Path) -> None:
    """The whole life of the processes of a case, which end here."""
    result: dict[str, Any] = {"failed": None, "blocks": {}, "seconds": {}}
    case, rounds = read_case(folder)
    place = Place(folder, opened)
    rank = 0
    began = time.monotonic()
    try:
        rank = fork_ranks(case.ranks, folder)
        for stage in _work(case, rounds, place if rank == 0 else None, folder, result["blocks"]):
            result["seconds"][stage] = round(time.monotonic() - began, 2)
            began = time.monotonic()
    except BaseException:
        result["failed"] = traceback.format_exc()[-LAST_CHARACTERS:]
    if rank == 0 or result["failed"]:
        (folder / RESULT).write_text(json.dumps(result))
        place.tell("done")
    sys.stdout.flush()
    if result["failed"] and case.ranks > 1:
        os.killpg(0, signal.SIGKILL)  # the other ranks would wait for this one for ever
    os._exit(0)  # workers of all loaders would be joined one by one


def _work(
    case: Case,
    rounds: int,
    place: Place | None,
    folder: Path,
    blocks: dict[str, list[dict[str, Any]]],
) -> Iterator[str]:
    """Gives the name of each stage that is over.

    Args:
        place: None on ranks after the first, which do what that one does.
    """
    os.chdir(folder)
    torch.set_num_threads(1)
    gc.freeze()  # a collection looks at what the program has made, as far as that is possible
    _enter(place, "setting up")
    yield "start"
    neighbour = Neighbour(folder) if case.neighbour is not None else None
    if case.options.get("compiled"):
        _watch_compiler()
    forms = {
        name: _form(case, name, folder)
        for name in (names_of_forms(case) if case.backend == "torch" else ())
    }
    recorded = _recorded_form(case, forms, folder, place)
    if neighbour is not None:
        neighbour.wait_until_ready()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    yield "set-up"
    if place is not None:
        place.wait_for_turn()
    agreed(0)
    yield "waiting"
    for number in range(rounds):
        # To and fro: a machine that gets slower does not make what comes last look slow.
        for name, form in list(forms.items())[:: -1 if number % 2 else 1]:
            beside = neighbour if name == "slow" else None
            with beside or nullcontext():
                blocks.setdefault(name, []).append(form.block())
        if not case.causes and "slow" in forms and torch.cuda.is_available():
            blocks.setdefault(LATE, []).append(forms["slow"].block(LATE_BY))
    yield "timing"
    with neighbour or nullcontext():
        _start_recording(recorded)
        # Ranks go on alike: none may be told anything between two of their steps.
        over = case.ranks > 1 or _step_until_recorded(recorded, folder)
    if case.ranks > 1:
        _step_until_named(recorded)
    yield "recording"
    if over:
        agreed(0)  # no rank ends before all have written
        return
    if place is not None:
        place.tell("waiting")
    _enter(place, "recorded")
    _step_until_named(recorded)
    yield "naming"


def _enter(place: Place | None, state: State) -> None:
    if place is not None:
        place.enter(state)
    agreed(0)


def _form(case: Case, name: str, folder: Path) -> Form:
    path, options = write_form(case, name, folder)
    drains = any(placed.options for placed in case.causes) and "workers" in options
    form = Form(path, options, drains=drains, period=case.period)
    form.warm_up()
    return form


def _recorded_form(case: Case, forms: dict[str, Form], folder: Path, place: Place | None) -> Form:
    """The slow form; another one where a loader is to be watched from its beginning."""
    times = {**PLAN, **({} if torch.cuda.is_available() else ON_CPU)}
    # Before what is recorded, batches that were made while the case waited for its turn are used.
    ahead = PREFETCH * int(options_of(case).get("workers", 0))
    times["warmup"] += ahead
    times["most_warmup"] += ahead
    plan = RecordingPlan(
        folder=str(folder),
        workload={"name": case.program},
        backend=case.backend,
        blame=case.backend == "torch",
        **times,
    )
    if place is not None:
        plan.save()
    agreed(0)  # no rank reads what another writes
    os.environ[RecordingPlan.VARIABLE] = str(plan.path)
    main: Any = sys.modules["__main__"]
    main.__file__ = str(folder / f"{case.program}.py")
    if "workers" not in case.options and "slow" in forms:
        return forms["slow"]
    from traceprobe.capture.loader.loader_hook import install_loader_hook

    install_loader_hook(sys.modules["torch.utils.data.dataloader"])
    return _form(case, "slow", folder)


def _start_recording(form: Form) -> None:
    from traceprobe.capture.loop.optimizer_hook import install_optimizer_hook

    form.begin()
    install_optimizer_hook(sys.modules["torch.optim.optimizer"])


def _step_until_recorded(form: Form, folder: Path) -> bool:
    """Make the steps of the timed recording; whether there are none to come after them."""
    sidecar = folder / sidecar_name(0)
    try:
        while not sidecar.exists():
            form.step()
    except SystemExit as end:
        if end.code:
            raise
        return True
    wait()
    return False


def _step_until_named(form: Form) -> None:
    """Make the steps in which lines and modules are recorded."""
    try:
        while True:
            form.step()
    except SystemExit as end:
        if end.code:
            raise


def _watch_compiler() -> None:
    from torch._inductor import compile_fx, graph

    from traceprobe.capture.owners.kernel_owners import watch_module

    for module in (compile_fx, graph):
        watch_module(module.__name__, module)


if __name__ == "__main__":
    # A group of its own, which can be stopped and leaves the tool around it running.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    (Path(sys.argv[1]) / GROUP).write_text(str(os.getpid()))
    work(Path(sys.argv[1]), Path(sys.argv[2]))
