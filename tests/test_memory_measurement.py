"""The memory of a step as an allocator tells it, here one that only keeps books."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loop.step_recorder import Recorder
from traceprobe.capture.memory import memory_measurement
from traceprobe.capture.memory.memory_measurement import MemoryMeasurement
from traceprobe.capture.recording import recording_plan as plans
from traceprobe.capture.recording.recording_session import RecordingSession
from traceprobe.records.memory import read

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")
nn = Lazy("torch.nn")
MB = 1 << 20
DEVICE = 16 << 30


class Books:
    """An allocator without memory: the functions of `torch.cuda` that the measurement asks."""

    def __init__(self):
        self.blocks: dict[int, int] = {}
        self.history: list[dict] | None = None
        self.allocated = self.freed = self.clock = 0

    def alloc(self, address, nbytes):
        self.blocks[address] = nbytes
        self.allocated += 1
        self._note("alloc", address, nbytes)

    def free(self, address):
        nbytes = self.blocks.pop(address)
        self.freed += 1
        self._note("free_requested", address, nbytes)
        self._note("free_completed", address, nbytes)

    def _note(self, action, address, nbytes):
        self.clock += 7
        if self.history is not None:
            self.history.append(
                {"action": action, "addr": address, "size": nbytes, "time_us": self.clock}
            )

    def record(self, *, enabled, **_):
        if enabled:
            self.history = []

    def segments(self):
        """Two blocks a segment, of which the second is free."""
        for address, nbytes in self.blocks.items():
            used = {"size": 4 * MB, "requested_size": nbytes, "state": "active_allocated"}
            yield {
                "device": 0,
                "address": address,
                "blocks": [used, {"size": MB, "requested_size": 0, "state": "inactive"}],
            }


@pytest.fixture
def books(monkeypatch):
    books = Books()
    replaced = {
        "synchronize": lambda: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "reset_peak_memory_stats": lambda: None,
        "max_memory_allocated": lambda: 30 * MB,
        "memory_reserved": lambda: 40 * MB,
        "get_device_properties": lambda device: SimpleNamespace(uuid="0"),
        "mem_get_info": lambda: (DEVICE - 540 * MB, DEVICE),
        "memory_snapshot": lambda: list(books.segments()),
        "memory_stats": lambda: {
            "allocation.all.allocated": books.allocated,
            "allocation.all.freed": books.freed,
        },
    }
    for name, function in replaced.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", books.record)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [books.history]})
    monkeypatch.setattr(
        memory_measurement, "_places", lambda tensors: [t.place for t in tensors if t is not None]
    )
    monkeypatch.setattr(memory_measurement, "_processes", lambda device: 1)
    return books


def model_on_gpu():
    """One parameter at address 1000 that says that it is on a GPU; its gradient comes at 5000."""

    class Model(nn.Module):
        gradient = None

        def parameters(self, recurse=True):
            weight = SimpleNamespace(place=1000, grad=self.gradient, device=torch.device("cuda", 0))
            return iter([weight])

    return Model()


def optimizer():
    """Adam with a second moment at address 2000."""
    made = torch.optim.Adam([nn.Parameter(torch.zeros(1))])
    moment = torch.zeros(1)
    moment.place = 2000
    made.state = {"weight": {"moment": moment}}
    return made


def there(books):
    for address, nbytes in ((1000, 4 * MB), (2000, 4 * MB), (3000, 2 * MB), (9000, 3 * MB)):
        books.alloc(address, nbytes)


def step(books, model, phase):
    """The loss of the step before, at 3000, goes while the next one is computed."""
    with phase("forward"):
        books.alloc(4000, 8 * MB)  # an activation
        books.alloc(4500, 1 * MB)
        books.free(4500)
        books.free(3000)
    with phase("backward"):
        books.alloc(5000, 4 * MB)
        books.alloc(6000, 6 * MB)
        books.free(6000)
        books.free(4000)
        model.gradient = SimpleNamespace(place=5000)
    with phase("optimizer"):
        books.alloc(4000, 4 * MB)  # the address again, for something else
        books.free(4000)


def measured(books, simulate=False):
    model = model_on_gpu()
    there(books)
    found = MemoryMeasurement(model, optimizer(), simulate=simulate)
    found.begin()
    step(books, model, found.phase)
    batch = torch.zeros(1)
    batch.place = 9000
    found.end((batch,))
    return found


def test_the_parts_of_a_step_are_told_by_addresses_and_lives(books):
    found = measured(books).facts["measured"]
    assert found["parts"] == {
        "weights": 4 * MB,
        "optimizer_state": 4 * MB,
        "gradients": 4 * MB,
        "input": 3 * MB,
        "activations": 8 * MB,
        "temporary": 6 * MB,
        "held": 0,
    }
    assert found["peak_bytes"] == 29 * MB
    assert found["peak_phase"] == "backward"
    assert found["most"]["held"] == 2 * MB


def test_phases_begin_and_end_between_the_events_that_they_began_and_ended_between(books):
    found = measured(books).facts["measured"]
    assert found["phases"] == {
        "forward": (13 + 8 + 1) * MB,
        "backward": 29 * MB,
        "optimizer": (11 + 4 + 4) * MB,
    }


def test_times_count_from_the_first_event_in_microseconds(books):
    position = measured(books).facts["measured"]["timeline"]["position"]
    assert position[0] == 0
    assert position == sorted(position)
    assert position[-1] == 7 * (10 + 5 - 1) - 7  # of the last of five releases, its request


def test_the_context_is_what_the_device_lost_beyond_the_allocator(books):
    facts = measured(books).facts
    assert (facts["device_bytes"], facts["outside_bytes"]) == (DEVICE, 500 * MB)
    assert facts["measured"]["allocated_bytes"] == 30 * MB
    assert facts["measured"]["reserved_bytes"] == 40 * MB


def test_with_others_on_the_device_the_context_is_unknown(books, monkeypatch):
    monkeypatch.setattr(memory_measurement, "_processes", lambda device: 2)
    assert measured(books).facts["outside_bytes"] is None


def test_a_recording_can_be_read(books):
    found = read(json.loads(json.dumps(measured(books).facts)))
    assert found.measured.parts.activations == 8 * MB
    assert found.implementation == "foreach"
    assert found.used_bytes == 540 * MB


@pytest.mark.parametrize("broken", ["memory_snapshot", "memory_stats"])
def test_trouble_before_the_step_is_a_reason(books, monkeypatch, broken):
    def fails():
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(torch.cuda, broken, fails)
    found = MemoryMeasurement(model_on_gpu(), optimizer(), simulate=True)
    found.begin()
    with found.phase("forward"):
        pass
    found.end(())
    assert found.facts["not_measured"] == "RuntimeError: no such thing"
    assert list(found.simulated(())) == []


def test_trouble_after_the_step_is_a_reason(books, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", dict)
    assert measured(books).facts["not_measured"] == "KeyError: 'device_traces'"


def test_only_loops_that_are_known_to_bear_it_are_simulated(books):
    found = measured(books)
    assert list(found.simulated(())) == []
    assert found.facts["not_predicted"] == "only of the built-in workloads"


def test_a_wrapped_model_is_not_simulated():
    class DistributedDataParallel(nn.Module):
        pass

    assert "DistributedDataParallel" in memory_measurement.why_not_simulated(
        DistributedDataParallel()
    )
    assert memory_measurement.why_not_simulated(nn.Linear(1, 1)) is None


@pytest.mark.parametrize(
    ("options", "implementation"),
    [({}, "foreach"), ({"fused": True}, "fused"), ({"foreach": False}, "for-loop")],
)
def test_how_an_optimizer_goes_through_its_parameters(options, implementation):
    found = memory_measurement.describe_optimizer(
        torch.optim.AdamW([nn.Parameter(torch.zeros(1))], **options)
    )
    assert found == {"optimizer": "AdamW", "implementation": implementation}


def test_an_optimizer_of_the_program_s_own_has_no_name_here():
    class Secret(torch.optim.Optimizer):
        pass

    found = memory_measurement.describe_optimizer(Secret([nn.Parameter(torch.zeros(1))], {}))
    assert found == {"optimizer": None, "implementation": None}


SHORT = {"warmup": 1, "most_warmup": 1, "calibrate": 2, "settle": 1, "active": 1, "repeats": 0}


class Log:
    """A profiler that does nothing."""

    def start(self, active, settle): ...
    def step(self): ...
    def abandon(self): ...
    def stop(self): ...
    def export(self, metadata): ...


def test_a_recording_watches_a_step_after_the_warm_up_and_simulates_after_it(books, tmp_path):
    plan = plans.RecordingPlan(folder=str(tmp_path), simulate=True, **SHORT)
    session = RecordingSession(plan, Log())
    record = Recorder(session)
    seen = []

    class Watch:
        facts = None

        def begin(self):
            seen.append("begin")

        def phase(self, name):
            seen.append(name)
            return nullcontext()

        def end(self, batch):
            seen.append(("end", batch))

        def simulated(self, batch):
            yield (
                -batch,
                lambda name: seen.append(("simulated", name)) or nullcontext(),
            )

    session._memory = Watch()
    for batch in record.steps(range(1, 100)):
        seen.append(batch)
        with record.phase("forward"):
            pass
    assert seen == [
        *(1, "begin", 2, "forward", ("end", 2)),
        *(-2, ("simulated", "forward")),
        *range(3, 12),
    ]


def test_on_a_cpu_nothing_is_recorded(tmp_path):
    plan = plans.RecordingPlan(folder=str(tmp_path), **SHORT)
    record = Recorder(RecordingSession(plan, Log()))
    model = nn.Linear(1, 1)
    record.memory(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert "".join(record.steps("abcdefghijk")) == "abcdefghijk"
    assert "memory" not in json.loads((tmp_path / "rank0.traceprobe.json").read_text())


def trained(simulate, folder):
    """Weights after a recording, with or without simulated steps in its loop."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    plan = plans.RecordingPlan(folder=str(folder), **SHORT)
    session = RecordingSession(plan, Log())
    record = Recorder(session)
    watched = MemoryMeasurement(model, optimizer, simulate=True)
    if simulate:
        watched._facts["measured"] = {}
    session._memory = watched
    steps = 0
    for batch in record.steps([torch.ones(4, 8), torch.zeros(4, 8)]):
        with record.phase("forward"):
            loss = model(batch).square().mean()
        with record.phase("backward"):
            loss.backward()
        with record.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        steps += 1
    return steps, watched.facts, [p.detach().clone() for p in model.parameters()]


def test_simulated_steps_change_nothing_of_the_training(tmp_path):
    plain_steps, _, plain = trained(simulate=False, folder=tmp_path)
    steps, facts, weights = trained(simulate=True, folder=tmp_path)
    assert steps == plain_steps + 2
    assert facts["predicted"]["phases"].keys() == {"forward", "backward", "optimizer"}
    assert all(torch.equal(a, b) for a, b in zip(plain, weights, strict=True))
