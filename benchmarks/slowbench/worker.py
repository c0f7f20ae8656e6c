"""One case in a process of its own: set up, timed and recorded in its turn, named afterwards.

    python -m benchmarks.slowbench.worker FOLDER OPENED

Nothing of a profiler is in the process while blocks are timed. What is recorded with
torch.profiler is what `traceprobe profile` records: the same hooks, put in by hand after the fork.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.slowbench.cases import Case, Placed
from benchmarks.slowbench.forms import (
    ROUNDS,
    Form,
    difference,
    is_felt,
    mean_ms,
    names_of_forms,
    wait,
    write_form,
)
from benchmarks.slowbench.neighbour import Neighbour
from benchmarks.slowbench.turns import Place
from traceprobe.capture.recording_plan import RecordingPlan, sidecar_name

ACTIVE = 6
PLAN = {"warmup": 8, "most_warmup": 24, "calibrate": 8, "active": ACTIVE, "repeats": 1}
ON_CPU = {"warmup": 4, "most_warmup": 4, "calibrate": 4, "repeats": 0}
"""A shorter recording than the usual one: it is made while others wait for the device."""
RESULT, GROUP = "result.json", "group"
LAST_CHARACTERS = 1500


def write_case(case: Case, folder: Path) -> None:
    """For `read_case` in another process."""
    (folder / "case.json").write_text(json.dumps(asdict(case)))


def read_case(folder: Path) -> Case:
    """The case of a folder."""
    found = json.loads((folder / "case.json").read_text())
    causes = tuple(
        Placed(**{**each, "lines": tuple(map(tuple, each["lines"]))}) for each in found["causes"]
    )
    return Case(**{**found, "causes": causes, "helpers": tuple(found["helpers"])})


def work(folder: Path, opened: Path) -> None:
    """The whole life of the process, which ends here."""
    result: dict[str, Any] = {"failed": None, "blocks": {}, "seconds": {}}
    place = Place(folder, opened)
    began = time.monotonic()
    try:
        for stage in _work(read_case(folder), place, result["blocks"]):
            result["seconds"][stage] = round(time.monotonic() - began, 2)
            began = time.monotonic()
    except BaseException:
        result["failed"] = traceback.format_exc()[-LAST_CHARACTERS:]
    (folder / RESULT).write_text(json.dumps(result))
    place.tell("done")
    sys.stdout.flush()
    os._exit(0)  # workers of all loaders would be joined one by one


def _work(case: Case, place: Place, blocks: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Gives the name of each stage that is over."""
    folder = place.folder
    os.chdir(folder)
    torch.set_num_threads(1)
    gc.freeze()  # a collection looks at what the program has made, as far as that is possible
    place.enter("setting up")
    yield "start"
    neighbour = Neighbour(folder) if case.neighbour is not None else None
    if case.options.get("compiled"):
        _watch_compiler()
    forms = {
        name: _form(case, name, folder)
        for name in (names_of_forms(case) if case.backend == "torch" else ())
    }
    recorded = _recorded_form(case, forms, folder)
    if neighbour is not None:
        neighbour.wait_until_ready()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    yield "set-up"
    place.wait_for_turn()
    yield "waiting"
    for _ in range(ROUNDS):
        for name, form in forms.items():
            beside = neighbour if name == "slow" else None
            with beside or nullcontext():
                blocks.setdefault(name, []).append(form.block())
    yield "timing"
    with neighbour or nullcontext():
        _start_recording(recorded)
        over = _step_until_recorded(recorded, folder)
    yield "recording"
    place.tell("waiting")
    place.enter("recorded")
    if not over:
        _step_until_named(recorded)
    yield "naming"


def _form(case: Case, name: str, folder: Path) -> Form:
    path, options = write_form(case, name, folder)
    drains = any(placed.options for placed in case.causes) and "workers" in options
    form = Form(path, options, drains=drains, period=case.period)
    form.warm_up()
    return form


def _recorded_form(case: Case, forms: dict[str, Form], folder: Path) -> Form:
    """The slow form; another one where a loader is to be watched from its beginning."""
    plan = RecordingPlan(
        folder=str(folder),
        workload={"name": case.program},
        backend=case.backend,
        blame=case.backend == "torch",
        **{**PLAN, **({} if torch.cuda.is_available() else ON_CPU)},
    )
    os.environ[RecordingPlan.VARIABLE] = str(plan.save())
    main: Any = sys.modules["__main__"]
    main.__file__ = str(folder / f"{case.program}.py")
    if "workers" not in case.options and "slow" in forms:
        return forms["slow"]
    from traceprobe.capture.loader_hook import install_loader_hook

    install_loader_hook(sys.modules["torch.utils.data.dataloader"])
    return _form(case, "slow", folder)


def _start_recording(form: Form) -> None:
    from traceprobe.capture.optimizer_hook import install_optimizer_hook

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


def costs(case: Case, blocks: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What the causes of a case cost, from its blocks: fields of its row."""
    slow = blocks["slow"]
    healthy = blocks.get("healthy", slow)
    found: dict[str, Any] = {"slow_ms": mean_ms(slow), "healthy_ms": mean_ms(healthy)}
    causes = []
    for placed in case.causes:
        without = blocks.get(_without(case, placed), healthy)
        causes.append({"id": placed.cause, **difference(slow, without)})
    felt = [is_felt(cause["low"], found["healthy_ms"]) for cause in causes]
    return {**found, "causes": causes, "felt": any(felt), "each_felt": felt}


def _without(case: Case, placed: Placed) -> str:
    # What a cause of two costs is what goes away without it; the other one stays.
    return f"without {placed.cause}" if len(case.causes) > 1 else "healthy"


if __name__ == "__main__":
    # A group of its own, which can be stopped and leaves the tool around it running.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    (Path(sys.argv[1]) / GROUP).write_text(str(os.getpid()))
    work(Path(sys.argv[1]), Path(sys.argv[2]))
