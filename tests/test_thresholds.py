"""Every number that a verdict or a finding depends on is in one table, with its source."""

from __future__ import annotations

import ast
import re

import pytest
from typer.testing import CliRunner

from tests.conftest import ROOT
from traceprobe.cli import app
from traceprobe.verdict.thresholds import FIXED, Thresholds, table

MODULES = [
    path
    for package in ("verdict", "findings")
    for path in sorted((ROOT / "traceprobe" / package).glob("*.py"))
    if path.name != "thresholds.py"
]
NEUTRAL = {0, 1, 2, 100, 1000, 1e6, 1e9}
"""Of counting, per cent and conversions of units."""
ALLOWED = {
    "ablation.py": {
        2.5: "percentile of a 95 % interval",
        97.5: "percentile of a 95 % interval",
        10: "percentile that the record names",
        90: "percentile that the record names",
        2000: "resamples of the bootstrap",
        20: "seed of the bootstrap",
        0.01: "the least time that two digits show",
    },
    "correction.py": {4: "notes shown, of any number"},
    "first_fixes.py": {3: "fixes named first, of any number"},
    "gpu_specs.py": {
        8: "parts into which MIG divides memory",
        32: "threads of a warp, NVIDIA",
        64: "threads of a wavefront, AMD",
    },
    "student.py": dict.fromkeys(
        (3, 4, 5, 7, 15, 16, 17, 19, 96, 384), "of Cornish and Fisher's expansion"
    ),
    "recorded_facts.py": {53: "bits of a float's integers"},
    "headroom.py": {
        1e12: "a unit",
        20: "a unit, as a power of two",
        3: "thirds: weights, moments and gradients of a training in one precision",
    },
    "memory_peak.py": {3: "parts named, of any number"},
    "synchronization.py": {80: "characters of an operator and its line", 3: "places named"},
    "small_kernels.py": {4: "operators named, of any number", 60: "characters of a name"},
    "unaligned_matmul.py": {4: "bytes of a number in TF32"},
}


def numbers(tree):
    """Numeric literals, but for digits that `round` keeps."""
    digits = {
        id(call.args[1])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "round"
        and len(call.args) == 2
    }
    for node in ast.walk(tree):
        plain = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        if plain and id(node) not in digits:
            yield node.value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_numbers_come_from_the_table(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert set(numbers(tree)) - NEUTRAL == set(ALLOWED.get(path.name, {}))


def test_every_number_says_what_it_is_and_where_it_comes_from():
    rows = list(table())
    names = [name for name, *_ in rows]
    assert names == [*Thresholds.__struct_fields__, *FIXED.__struct_fields__]
    assert len(set(names)) == len(names)
    for name, value, *texts in rows:
        assert value > 0, name
        assert all(texts), name
        assert texts[-1] not in ("chosen", "chosen:"), name


def test_every_fixed_number_is_used():
    package = ROOT / "traceprobe"
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    # Applied by the accounting, under its own names.
    own = {"warm_up", "straggler", "few_late", "ends_together", "fewest_aligned"}
    own |= {"set_up_us", "set_up_medians", "fewest_steady", "launched_before", "unrecorded"}
    own |= {"clock_long_us", "clock_kernels", "clock_share"}
    own |= {"held_ms", "held_latencies"}
    own |= {"long_ms", "long_intervals", "batch_bytes", "scalar_bytes", "recurs"}
    own |= {"lengths_differ", "alike_pace", "alike"}
    own |= {"long_iteration", "as_long", "most_long", "fewest_regular", "lone_wait", "room_us"}
    used = set(re.findall(r"\bFIXED\.(\w+)", source))
    assert set(FIXED.__struct_fields__) - used == own


def test_the_command_line_lists_them_without_an_input():
    found = CliRunner().invoke(app, ["analyze", "--thresholds"])
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert [line.partition(" = ")[0] for line in lines] == [name for name, *_ in table()]
    assert "pageable_bytes = 1048576 bytes per step: " in found.stdout
