"""Whose turn it is on the devices of a machine, in the public test of such tools."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.slowbench import devices
from benchmarks.slowbench.devices import Device, Running, tick
from benchmarks.slowbench.turns import Place, State


class Machine:
    """Two devices and cases without processes; what they are told to is kept."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.devices = [Device(n, folder / f"open{n}", 2) for n in range(2)]
        self.running: list[Running] = []
        self.signals: list[tuple[str, str]] = []
        monkeypatch.setattr(devices, "_signal", self._signal)

    def _signal(self, running: Running, number: Any) -> None:
        running.stopped = number.name == "SIGSTOP"
        self.signals.append((running.place.folder.name, number.name))

    def begin(self, name: str, device: int, state: State) -> Running:
        folder = self.folder / name
        folder.mkdir()
        place = Place(folder, self.devices[device].opened)
        place.tell(state)
        case = cast("Any", SimpleNamespace(ranks=1, id=name))
        self.running.append(Running(case, place, 0, None, device, 0.0))
        return self.running[-1]

    def tick(self, now: float = 0.0) -> list[str]:
        """Names of the cases whose turn it is then."""
        tick(self.devices, self.running, now)
        turns = [device.turn for device in self.devices if device.turn is not None]
        return [turn.place.folder.name for turn in turns if not turn.ended]

    @property
    def open(self) -> list[bool]:
        return [device.opened.exists() for device in self.devices]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_no_turn_while_another_device_sets_up(machine: Machine) -> None:
    for name, device in (("a", 0), ("b", 0), ("c", 1)):
        machine.begin(name, device, "ready")
    late = machine.begin("d", 1, "setting up")
    assert machine.tick() == []
    assert machine.open == [True, True]
    late.place.tell("ready")
    assert machine.tick() == ["a", "c"]
    assert machine.open == [False, False]


def test_devices_open_together_after_all_turns(machine: Machine) -> None:
    cases = [machine.begin(name, 0, "ready") for name in "ab"]
    other = machine.begin("c", 1, "ready")  # nothing more comes for its device
    beside = machine.begin("d", 0, "recorded")
    assert machine.tick() == ["a", "c"]
    assert machine.signals == [("d", "SIGSTOP")]
    for case in (cases[0], other):
        case.place.tell("timing")
    assert machine.tick(1.0) == ["a", "c"]
    other.ended = True
    assert machine.tick(2.0) == ["a"]
    cases[0].place.tell("recorded")
    assert machine.tick(3.5) == ["b"]
    assert cases[0].turn_s == pytest.approx(3.5)
    assert machine.open == [False, False]
    cases[1].ended = True
    machine.tick(5.0)
    assert machine.open == [True, True]
    assert not beside.stopped


def test_a_device_without_cases_keeps_nobody_waiting(machine: Machine) -> None:
    machine.begin("a", 1, "ready")
    assert machine.tick() == ["a"]
