"""Cases of the public test: what a seed gives, and where its causes are."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tarfile

import pytest

from benchmarks.saving.catalog import PROGRAMS
from benchmarks.slowbench.cases import cases, line_of, source_of
from benchmarks.slowbench.catalog import CATALOG
from benchmarks.slowbench.causes import BY_ID, CAUSES
from benchmarks.slowbench.columns import SUFFIX
from benchmarks.slowbench.cut import MOST_BYTES
from tests.conftest import ROOT


def made(split="open", seed=1, count=300, *, cpu=False, nsys=True, ranks=1):
    return cases(split, seed, count, cpu=cpu, nsys=nsys, ranks=ranks)


def test_every_cause_has_a_program_and_every_way_is_a_cause():
    for ranks in (1, 2):
        programs = [program for program in CATALOG if program.ranks == ranks]
        placed = {way.cause for program in programs for way in program.all_ways}
        assert placed == {cause.id for cause in CAUSES if cause.ranks == ranks}
    assert len(CATALOG) == len(list(PROGRAMS.glob("*.py"))) == 15
    assert {cause.cls for cause in CAUSES} <= {"io", "communication", "overhead", "compute"}


def test_a_seed_gives_the_same_cases_and_another_seed_others():
    assert made() == made()
    first, second = made(seed=1), made("sealed", seed=2)
    assert len({case.id for case in first}) == len(first) == 300
    same = {c.id.rpartition("-s")[0] for c in first} & {c.id.rpartition("-s")[0] for c in second}
    assert len(same) < 300
    assert [c.options for c in first] != [c.options for c in second]


def test_all_causes_come_first_and_healthy_ones_and_pairs_are_among_them():
    found = made()
    first = {placed.cause for case in found[:80] for placed in case.causes}
    assert len(first) >= 26
    assert sum(not case.causes for case in found) >= 40
    assert sum(len(case.causes) == 2 for case in found) >= 10
    assert sum(case.backend == "nsys" for case in found) >= 80


def test_the_twin_of_a_case_differs_in_the_profiler_alone():
    by_id = {case.id: case for case in made()}
    twins = [case for case in by_id.values() if case.backend == "nsys"]
    assert twins
    for case in twins:
        assert (by_id[case.twin].options, by_id[case.twin].causes) == (case.options, case.causes)


def test_of_so_many_cases_one_is_healthy():
    drawn = cases("sealed", 3, 60, cpu=False, nsys=False, healthy_every=2)
    assert [bool(case.causes) for case in drawn] == [False, True] * 30
    controls = [(case.program, str(case.options)) for case in drawn if not case.causes]
    assert len(set(controls)) > 20


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("cpu", [False, True], ids=["gpu", "cpu"])
def test_each_cause_has_a_line_that_the_healthy_form_has_not_or_does_not_take(cpu, ranks):
    for case in made(cpu=cpu, nsys=False, ranks=ranks, count=60):
        healthy, slow = source_of(case, healthy=True), source_of(case)
        ast.parse(healthy)
        ast.parse(slow)
        for placed in case.causes:
            assert bool(placed.options) + bool(placed.lines) + (placed.busy is not None) == 1
            line = line_of(case, placed.cause)
            if placed.busy is not None:
                assert line is None
                continue
            text = slow.splitlines()[line.line - 1]
            assert placed.cause in text.partition("# slow: ")[2]
            assert any(text.strip().startswith(put) for _, put in placed.lines) or not placed.lines
            assert (healthy != slow) == any(p.lines for p in case.causes)


def test_options_of_a_case_are_options_of_its_program():
    for program in CATALOG:
        tree = ast.parse(program.source)
        options = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Options")
        known = {each.target.id for each in options.body}
        for way in program.all_ways:
            assert {*program.healthy, *program.small, *way.options, *way.both, *way.small} <= known


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "name"), [(1, "many-tiny-kernels"), (2, "straggler-host")])
def test_cases_are_recorded_timed_and_found_again(tmp_path, ranks, name):
    pytest.importorskip("torch")
    drawn = made(count=40, cpu=True, nsys=False, ranks=ranks)
    case = next(case for case in drawn if [placed.cause for placed in case.causes] == [name])
    command = [sys.executable, "-m", "benchmarks.slowbench", "record", "--cpu", "--seed", "1"]
    command += ["--split", "open", "--cases", "40", "--only", case.id, "--ranks", str(ranks)]
    command += ["--out", str(tmp_path), "--seconds", "280", "--limit", "240", "--turn-limit", "200"]
    command += ["--rounds", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["failed"] for row in rows] == [None], done.stdout + done.stderr
    (cause,) = rows[0]["causes"]
    assert (cause["class"], cause["file"]) == (BY_ID[name].cls, f"{case.program}.py")
    assert cause["rank"] == (None if ranks == 1 else 1)
    assert cause["low"] <= cause["ms"] <= cause["high"]
    with tarfile.open(tmp_path / "open-0.tar") as tar:
        sizes = {member.name.rpartition("/")[2]: member.size for member in tar.getmembers()}
    assert set(sizes) == {f"rank{rank}.json{SUFFIX}" for rank in range(ranks)}
    assert max(sizes.values()) <= MOST_BYTES
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "0 of 40 cases" in again.stdout
