"""Names are carried over between steps that are nearly equal: pairs, the clock, the lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceprobe.capture.blame.alignment import align
from traceprobe.capture.blame.line_trace import CALL, LINE, MODULE, RETURN
from traceprobe.capture.blame.module_names import ModuleNames
from traceprobe.capture.blame.own_code import OwnCode
from traceprobe.capture.blame.stretches import stretches, untraced
from traceprobe.capture.blame.warp import warp_between

EVENTS = st.lists(st.integers(0, 6), max_size=120)
MS = 1_000_000


def numbers(values):
    return np.array(values, dtype=np.int64)


@given(EVENTS, EVENTS)
def test_pairs_are_equal_events_in_the_order_of_both(first, second):
    ours, theirs = align(numbers(first), numbers(second))
    assert [first[i] for i in ours] == [second[i] for i in theirs]
    assert (np.diff(ours) > 0).all()
    assert (np.diff(theirs) > 0).all()


@given(EVENTS)
def test_equal_steps_are_paired_one_by_one(events):
    ours, theirs = align(numbers(events), numbers(events))
    assert ours.tolist() == theirs.tolist() == list(range(len(events)))


@st.composite
def edited(draw):
    """A step of 400 events as programs have them, and the same with a few inserted and deleted."""
    layer = draw(st.lists(st.integers(0, 9), min_size=5, max_size=20))
    step = [kind + 10 * (n // 7 % 5) for n, kind in enumerate((layer * 100)[:400])]
    other = list(step)
    edits = draw(st.lists(st.tuples(st.integers(0, 380), st.booleans()), max_size=4))
    for place, insert in edits:
        if insert:
            other.insert(place, 1_000 + place)
        else:
            del other[place]
    return step, other, len(edits)


@given(edited())
def test_a_few_other_events_cost_few_pairs(case):
    step, other, edits = case
    ours, _ = align(numbers(step), numbers(other))
    assert len(ours) >= len(step) - edits


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=40),
    st.lists(st.integers(-50, 1300), min_size=2, max_size=40),
)
def test_a_warp_never_runs_backward_and_stays_in_its_step(pairs, times):
    s = np.sort(numbers([a for a, _ in pairs]))
    t = np.sort(numbers([b for _, b in pairs]))
    long = numbers([7 * n % 300 for n in range(len(pairs))])
    warp = warp_between(
        (0, 1200), (5000, 9000), ((s, s + long), (t + 5000, t + 5000 + 2 * long)), (s[:0], s[:0])
    )
    mapped = warp(np.sort(numbers(times)))
    assert (np.diff(mapped) >= 0).all()
    assert (mapped >= 5000).all()
    assert (mapped <= 9000).all()
    assert warp(numbers([0, 1200])).tolist() == [5000, 9000]


def test_what_both_steps_have_is_mapped_exactly():
    pairs = (
        (numbers([100, 300]), numbers([200, 350])),
        (numbers([1010, 1030]), numbers([1020, 1090])),
    )
    warp = warp_between((0, 400), (1000, 1100), pairs, (numbers([]), numbers([])))
    assert warp(numbers([100, 200, 300, 350])).tolist() == [1010, 1020, 1030, 1090]
    assert warp(numbers([150, 250])).tolist() == [1015, 1025]


def test_what_only_the_timed_step_did_is_a_hole():
    pairs = (
        (numbers([100, 300]), numbers([200, 350])),
        (numbers([1010, 1080]), numbers([1020, 1090])),
    )
    warp = warp_between((0, 400), (1000, 1100), pairs, (numbers([1040]), numbers([1060])))
    assert warp.holes.tolist() == [[200, 300, 1040, 1060]]


def spans(rows, *, ended, seen=(), codes=(("a.py", "f"), ("a.py", "g")), modules=("nn.Module: M",)):
    instants = numbers([(*row, 0) for row in rows]).ravel()
    found = stretches(instants, codes, modules, ended, numbers(seen))
    return [
        (t0 // MS, t1 // MS, found.names[name])
        for t0, t1, name in zip(found.t0.tolist(), found.t1.tolist(), found.name, strict=True)
    ]


def test_a_line_lasts_until_the_next_one_callees_included():
    rows = [
        (0, CALL, 1, 0, 10),
        (1 * MS, LINE, 1, 0, 11),
        (2 * MS, CALL, 2, 1, 20),
        (3 * MS, LINE, 2, 1, 21),
        (5 * MS, RETURN, 2, 0, 0),
        (6 * MS, MODULE, 3, 0, 0),
        (7 * MS, RETURN, 3, 0, 0),
        (8 * MS, LINE, 1, 0, 12),
        (9 * MS, RETURN, 1, 0, 0),
    ]
    assert spans(rows, ended=9 * MS) == [
        (0, 1, "a.py(10): f"),
        (1, 8, "a.py(11): f"),
        (2, 3, "a.py(20): g"),
        (3, 5, "a.py(21): g"),
        (6, 7, "nn.Module: M"),
        (8, 9, "a.py(12): f"),
    ]


def test_frames_that_were_left_unseen_are_closed():
    rows = [
        (0, CALL, 1, 0, 10),
        (1 * MS, CALL, 2, 1, 20),
        (3 * MS, LINE, 1, 0, 11),  # an exception went through the other frame
        (4 * MS, LINE, 7, 1, 21),  # a frame that was entered before
        (5 * MS, RETURN, 9, 0, 0),
    ]
    assert spans(rows, ended=6 * MS) == [
        (0, 3, "a.py(10): f"),
        (1, 3, "a.py(20): g"),
        (3, 6, "a.py(11): f"),
        (4, 6, "a.py(21): g"),
    ]


def test_a_loop_of_python_is_one_stretch_of_its_longest_line_where_the_profiler_saw_nothing():
    rows = [(0, CALL, 1, 0, 10)]
    rows += [(1_000 * n, LINE, 1, 0, (11, 12, 12, 12)[n % 4]) for n in range(1, 2_000)]
    rows += [(2 * MS, RETURN, 1, 0, 0)]
    assert spans(rows, ended=2 * MS) == [(0, 2, "a.py(12): f")]
    found = spans(rows, ended=2 * MS, seen=[1_000_500])
    assert len(found) == 3
    assert found[0][2] == found[2][2] == "a.py(12): f"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 90_000)), max_size=60)
)
def test_stretches_nest_whatever_the_instants(kinds):
    time, rows = 0, []
    for kind, frame, passed in kinds:
        time += passed
        rows.append((time, kind, frame, 0, frame))
    instants = numbers([(*row, 0) for row in rows]).ravel()
    found = stretches(instants, [("a.py", "f")], ["nn.Module: M"], time, numbers([]))
    enclosing: list[int] = []
    for t0, t1 in zip(found.t0.tolist(), found.t1.tolist(), strict=True):
        while enclosing and enclosing[-1] <= t0:
            enclosing.pop()
        assert not enclosing or t1 <= enclosing[-1]
        enclosing.append(t1)


def test_the_clock_leaves_out_what_the_trace_took():
    # 1,000 lines of 500 ns each, nearly all of it the trace's, then 10 ms of waiting.
    times = numbers([500 * n for n in range(1_000)])
    rows = np.zeros((1_000, 6), dtype=np.int64)
    rows[:, 0] = times
    clock = untraced(rows.ravel(), 0.0)
    end = int(times[-1])
    loop, waiting = np.diff(clock(numbers([0, end, end + 10 * MS]))).tolist()
    assert 0 < loop == pytest.approx(0.05 * end, abs=10)
    assert waiting == 10 * MS


def test_files_are_named_relative_to_the_program_and_libraries_are_not_its_own(tmp_path):
    home = tmp_path / "project"
    for name in ("train.py", "nets/unet.py", ".venv/lib/site-packages/timm/a.py", "../other/b.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (tmp_path / "other" / "pyproject.toml").touch()
    own = OwnCode(str(home / "train.py"), tmp_path / "elsewhere")
    assert own.name(str(home / "train.py")) == "train.py"
    assert own.name(str(home / "nets/unet.py")) == "nets/unet.py"
    assert own.name(str(tmp_path / "other/b.py")) == "b.py"
    assert own.name(str(home / ".venv/lib/site-packages/timm/a.py")) is None
    assert own.name("/tmp/torchinductor_me/ab/cabc.py") is None
    assert own.name("<string>") is None
    assert own.name(np.__file__) is None
    import traceprobe

    assert own.name(traceprobe.__file__) is None
    # A program that is installed is its own.
    installed = home / ".venv/lib/site-packages/timm/a.py"
    assert OwnCode(str(installed), tmp_path).name(str(installed)) == "a.py"


@pytest.mark.usefixtures("pytorch")
def test_modules_are_called_as_the_source_knows_them():
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)

    class Wrapped(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self._checkpoint_wrapped_module = module

    block = Block()
    net = torch.nn.ModuleDict({"encoder": torch.nn.ModuleList([Wrapped(block)])})
    names = ModuleNames()
    assert names(net) == "nn.Module: ModuleDict"
    assert names(block) == "nn.Module: encoder.0.Block"
    assert names(block.fc) == "nn.Module: encoder.0.fc.Linear"
    assert names(torch.nn.ReLU()) == "nn.Module: ReLU"
