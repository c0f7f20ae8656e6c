"""What findings say of a loader that the capture recorded, in steps of 1000 ms."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.cli_runner import LOOP
from tests.evidence import evidence, finding_of
from tests.loader_records import make_loader, make_loader_record
from tests.records import MS, SLOWED_BY, STEPS, copies, step
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.anonymise.redact import redact
from traceprobe.findings.h2d_exposed import h2d_exposed
from traceprobe.findings.h2d_pageable import h2d_pageable
from traceprobe.findings.loader_work import functions
from traceprobe.records.loader import read

BUSY = {"batches_per_step": 10.0}
"""Four workers have 3.2 s of work for a step of 1 s: 80 % of their time."""


def wait(ms=800, **changes):
    return finding_of(
        "data-wait", records.rank(step(io=ms)), loader=make_loader(**{**BUSY, **changes})
    )


def test_the_work_of_a_batch_is_told_by_function_called_by_its_hottest_line():
    found = wait()
    assert (
        "a worker takes 320 ms for a batch of 8, 36.0 ms an item: 70 % in `data.py(31): decode`, "
        "20 % in `data.py(40): flip`, 10 % collating in `data.py(60): pad`"
    ) in found.evidence
    assert found.advice.startswith(
        "Make `data.py(31): decode` cheaper: it takes 70 % of the time to make a batch. "
        "Give the loader"
    )
    assert "persistent_workers" in found.advice


def test_what_is_timed_decides_how_many_workers_hide_the_loader():
    assert wait().evidence[-1].startswith("at least 16 workers instead of 4 would hide the loader")


def test_workers_that_stay_alive_are_not_told_to():
    assert "persistent_workers" not in wait(persistent_workers=True).advice


@pytest.mark.parametrize("few", [{"samples": 19}, {"lines": []}])
def test_of_too_few_samples_only_the_parts_are_told(few):
    found = wait(**few)
    assert any(said.endswith("36.0 ms an item: 10 % of it collating") for said in found.evidence)
    assert found.advice.startswith("Give the loader more workers")


def test_lines_whose_names_may_not_be_told_still_count():
    lines = [{"part": "item", "name": None, "ms": 75}]
    lines.append({"part": "collate", "name": "torch/stack.py(3): stack", "ms": 25})
    (work,) = functions(make_loader(lines=lines))
    assert (work.name, work.share, work.collates) == ("torch/stack.py(3): stack", 0.25, True)


def test_a_dataset_of_whole_batches_has_no_items():
    found = wait(items_per_batch=1.0, item_ms=288.0)
    assert any("takes 320 ms for a batch: 70 %" in said for said in found.evidence)


def test_without_workers_the_step_thread_makes_the_batch():
    facts = {"workers": 0, "samples": 0, "lines": [], "item_ms": 90.0, "collate_ms": 80.0}
    found = wait(**facts, batches_per_step=1.0)
    assert any(s.startswith("`num_workers=0`: each batch is loaded") for s in found.evidence)
    assert (
        "the step thread takes 800 ms for a batch of 8, 90.0 ms an item: 10 % of it collating"
        in found.evidence
    )
    assert found.advice.startswith("Start with 4 workers: ")
    assert "more workers" not in found.advice


def test_workers_of_an_iterable_dataset_have_to_split_it():
    facts = {"workers": 0, "samples": 0, "lines": [], "item_ms": 90.0, "collate_ms": 80.0}
    assert "get_worker_info" in wait(**facts, iterable=True).advice
    assert "get_worker_info" not in wait(**facts).advice
    assert "get_worker_info" not in wait(iterable=True).advice  # it has workers already


@pytest.mark.parametrize(("cpus", "start"), [(2, "2 workers"), (16, "4 workers"), (None, "4 w")])
def test_no_more_workers_are_started_than_there_are_cores_for(cpus, start):
    facts = {"workers": 0, "samples": 0, "lines": [], "item_ms": 90.0, "collate_ms": 80.0}
    loader = make_loader(**BUSY | facts | {"batches_per_step": 1.0})
    capture = {"hardware": {"cpu_count": cpus}}
    found = finding_of("data-wait", records.rank(step(io=800)), loader=loader, capture=capture)
    assert found.advice.startswith(f"Start with {start}")


@pytest.mark.parametrize(("cpus", "more"), [(4, False), (5, True)])
def test_workers_for_which_there_is_no_core_are_no_advice(cpus, more):
    capture = {"hardware": {"cpu_count": cpus}}
    loader = make_loader(**BUSY)
    advice = finding_of(
        "data-wait", records.rank(step(io=800)), loader=loader, capture=capture
    ).advice
    assert ("Give the loader more workers" in advice) is more
    assert ("More workers do not help" in advice) is not more


@pytest.mark.parametrize(("collate_ms", "sooner"), [(0.1, True), (0.3, False)])
def test_no_worker_is_started_for_a_batch_that_takes_longer_to_hand_over(collate_ms, sooner):
    facts = {"workers": 0, "samples": 0, "lines": [], "item_ms": 0.03, "collate_ms": collate_ms}
    found = wait(**facts, batches_per_step=1.0)
    assert found.advice.startswith(
        "Keep the data in one tensor" if sooner else "Start with 1 worker: "
    )
    assert any("would hide the loader" in said for said in found.evidence) is not sooner


@pytest.mark.parametrize(
    ("timed_ms", "saved"),
    [(None, 250 + 0.45 * 450), (250, 250), (410, 410)],
    ids=["late launches", "timed as recorded", "timed longer"],
)
def test_what_more_the_verdict_counts_as_waiting_without_a_profiler_can_be_saved(timed_ms, saved):
    rank = records.rank({"forward": 300, "idle_host": 450, "idle_data_wait": 250})
    if timed_ms is not None:
        rank = replace(rank, timed_wait_ms=timed_ms)
    found = finding_of("data-wait", rank, profiled=SLOWED_BY, unprofiled_ms=1000)
    assert found.saving_ms_per_step == pytest.approx(saved)


def test_workers_that_wait_for_the_step_are_not_what_it_waits_for():
    found = wait(batches_per_step=1.0)
    assert (
        "the 4 workers wait 92 % of the time for the step to take batches: making batches is not "
        "what the step waits for, handing them over is"
    ) in found.evidence
    assert not any("would hide the loader" in said for said in found.evidence)
    assert found.advice.startswith("Make batches cheaper to transfer")


def test_steps_that_wait_outside_of_the_loader_for_workers_with_time_left_are_handed_batches():
    outside = records.host(data_wait_inferred_ns=700 * MS * STEPS)
    rank = records.rank(step(io=800), host=outside)
    found = finding_of("data-wait", rank, loader=make_loader(**BUSY))
    assert any("handing them over is" in said for said in found.evidence)
    assert "data.py" not in str(found.sites)


@pytest.mark.parametrize(
    ("inferred", "batches"),
    [
        pytest.param(100, 10.0, id="most waits in the loader's range"),
        pytest.param(800, 10.0, id="no range is the loader's"),
        pytest.param(700, 12.0, id="workers have no time left"),
    ],
)
def test_steps_wait_for_workers_that_may_be_late(inferred, batches):
    waits = records.host(data_wait_inferred_ns=inferred * MS * STEPS)
    rank = records.rank(step(io=800), host=waits)
    found = finding_of("data-wait", rank, loader=make_loader(batches_per_step=batches))
    assert not any("handing" in said for said in found.evidence)
    assert found.sites[0].line == "data.py(31): decode"


def test_a_loader_that_is_faster_than_the_step_is_said_to_be():
    found = wait(0, batches_per_step=1.0)
    assert found.status == "pass"
    assert found.evidence[-1] == (
        "the 4 workers wait 92 % of the time for the step to take batches: the loader is faster "
        "than the step"
    )


def test_a_loader_whose_batches_nobody_timed_tells_its_workers_alone():
    found = wait(batches=0, item_ms=0.0, collate_ms=0.0, samples=0, lines=[])
    assert found.evidence[-1].startswith("at least 20 workers instead of 4")


def recording(folder, **changes):
    record = {"unprofiled_step_ms": 34.0, "loader": make_loader_record(**changes)}
    return kineto.write(LOOP.scenario(), folder / "run.json", header={"traceprobe": record})


SECRET = {
    "dataset": "KanarienvogelData",
    "lines": [{"part": "item", "name": "kanarienvogel/data.py(31): decode", "ms": 320.0}],
}


def test_a_report_has_the_loader_and_a_redacted_one_not_its_names(tmp_path):
    report = traceprobe.analyze(traceprobe.load(recording(tmp_path, **SECRET)))
    assert report.loader == read(make_loader_record(**SECRET))
    text = report.to_json()
    assert "in `kanarienvogel/data.py(31): decode`" in text
    hidden = redact(report)
    assert "kanarienvogel" not in hidden.to_json().lower()
    assert hidden.loader.batch_ms == report.loader.batch_ms


def test_an_anonymised_trace_keeps_the_times_of_the_loader_without_its_names(tmp_path):
    target = tmp_path / "public.json"
    anonymise_trace(recording(tmp_path, **SECRET), target)
    assert "kanarienvogel" not in target.read_text().lower()
    kept = json.loads(target.read_text())["traceprobe"]["loader"]
    assert kept == make_loader_record(
        dataset=None, lines=[{"part": "item", "name": None, "ms": 320.0}]
    )
    assert traceprobe.analyze(traceprobe.load(target)).loader is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": -1},
        {"workers": True},
        {"workers": "4"},
        {"item_ms": 1e300},
        {"lines": [{"part": "other", "name": "x", "ms": 1}]},
        {"lines": [{"part": "item", "name": "x", "ms": -1}]},
        {"lines": [{"part": "item", "name": 3, "ms": 1}]},
        {"lines": [{"part": "item", "name": "x", "ms": 1}] * 201},
        {"lines": {}},
        {"dataset": ["x"]},
    ],
)
def test_what_no_loader_has_is_no_loader(tmp_path, changes):
    report = traceprobe.analyze(traceprobe.load(recording(tmp_path, **changes)))
    assert not report.loader
    assert "loader" not in json.loads(report.to_json())


def test_names_that_would_steer_a_page_are_quoted_as_names(tmp_path):
    name = "a`b</script>\n\x1b[31m.py(1): f"
    lines = [{"part": "item", "name": name, "ms": 320.0}]
    report = traceprobe.analyze(traceprobe.load(recording(tmp_path, lines=lines)))
    (said,) = (f.evidence for f in report.findings if f.id == "data-wait")
    assert any("`a'b</script> .py(1): f`" in line for line in said)
    assert "b</script>" not in report.to_html()


@pytest.mark.parametrize(
    ("loader", "pageable", "handed"),
    [
        ({}, 8, True),
        ({"pin_memory": True}, 8, False),
        ({}, 1, False),  # of 8 MB
        (BUSY, 8, False),  # workers that are late
        ({"workers": 0}, 8, False),
    ],
)
def test_pinning_takes_batches_over_beside_the_step(loader, pageable, handed):
    rank = records.rank(
        step(idle_data_wait=300, h2d=100), h2d=copies(100, megabytes=8, pageable=pageable << 20)
    )
    made = make_loader(**{"pin_memory": False, "batches_per_step": 1.0, **loader})
    finding, changes = h2d_pageable.examine(evidence(rank, loader=made))
    part = 100 * pageable / 8
    assert finding.saving_ms_per_step == pytest.approx(part + 300 if handed else part, rel=0.05)
    assert ("data-wait" in changes.removed) is handed
    assert finding.saving_of == (["h2d", "idle_data_wait"] if handed else ["h2d"])
    exposed, changes = h2d_exposed.examine(evidence(rank, loader=made))
    assert exposed.saving_ms_per_step == (400 if handed else 100)
    assert ("data-wait" in changes.removed) is handed
