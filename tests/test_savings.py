"""Programs whose slowness can be taken away, and what predictions are held against."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from benchmarks.saving import page, scores
from benchmarks.saving.catalog import CATALOG, PROGRAMS
from tests.conftest import ROOT

MARKS = ("record_function", "nvtx", "profiler", "traceprobe")
RESULTS = ROOT / "docs" / "validation" / "savings.json"


def defaults(program):
    tree = ast.parse(program.script.read_text(encoding="utf-8"))
    options = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Options")
    return {n.target.id: ast.literal_eval(n.value) for n in options.body}


def test_programs_mark_nothing_and_there_are_twelve():
    paths = list(PROGRAMS.glob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    assert not [word for word in MARKS for text in texts if word in text]
    assert {program.script for program in CATALOG} <= set(paths)
    assert len({program.name for program in CATALOG}) == len(CATALOG) == 12


@pytest.mark.parametrize("program", CATALOG, ids=lambda program: program.name)
def test_a_variant_changes_options_that_there_are_and_one_that_joins_has_all_of_its_parts(program):
    known = defaults(program)
    variants = {variant.name: variant for variant in program.variants}
    assert len(variants) == len(program.variants)
    for variant in program.variants:
        assert variant.options
        assert all(known[name] != value for name, value in variant.options.items())
        assert variant.play is None or not variant.joins
        parts = [variants[name].options for name in variant.joins]
        if parts:
            assert {name: value for part in parts for name, value in part.items()} == dict(
                variant.options
            )


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("name", ["gpt", "masked_words", "cells"])
def test_programs_step(name):
    code = (
        f"import itertools, {name} as p; "
        "print(len(list(itertools.islice(p.train(p.Options(**p.SMALL)), 2))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROGRAMS,
        timeout=300,
    )
    assert done.stdout == "2\n"


def test_rank_correlation_by_hand():
    assert scores.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert scores.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    # 1 − 6 · (0 + 1 + 1) / (3 · 8), no ties
    assert scores.spearman([1, 2, 3], [1, 3, 2]) == 0.5
    # Ranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / sqrt(1.5 · 2)
    assert scores.spearman([5, 5, 6], [1, 2, 3]) == pytest.approx(0.866, abs=1e-4)
    assert scores.spearman([1, 2], [1, 2]) is None
    assert scores.spearman([1, 1, 1], [1, 2, 3]) is None


def test_times_are_medians_and_the_furthest_block_of_many_is_left_out():
    blocks = {"base": [50, 20, 22, 24], "fast": [10, 11, 15], "once": [1]}
    times = scores.Times({k: [{"ms": float(ms)} for ms in v] for k, v in blocks.items()})
    assert times.step("base") == 23
    assert times.range("base") == (20, 24)
    assert times.range("fast") == (10, 15)
    assert times.gain("fast") == 12
    assert times.doubt("fast") == 4.5
    assert "once" not in times


def test_in_short_counts_what_came_true():
    def finding(predicted, measured):
        low, high = (None, None) if predicted is None else (predicted - 1, predicted + 1)
        return {
            "predicted_ms": predicted,
            "low_ms": low,
            "high_ms": high,
            "up_to_ms": 5.0,
            "measured_ms": measured,
            "doubt_ms": 0.5,
        }

    found = [finding(4.0, 5.4), finding(4.0, 5.6), finding(None, 2.0), finding(1.0, None)]
    program = {"base_ms": 30.0, "findings": found, "ablations": [], "joint": None, "headroom": None}
    short = scores.in_short({"programs": [program], "injected": []})
    assert (short["findings"], short["predicted"]) == (3, 2)
    assert short["findings_inside"] == 1
    assert short["findings_within_5"] == 1
    assert short["over_bound"] == 1


def test_the_page_is_made_of_the_results():
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == page.page(found)
    assert len(found["programs"]) == 12
    assert sum(len(program["ablations"]) for program in found["programs"]) >= 20
    assert found["short"] == scores.in_short(found)
