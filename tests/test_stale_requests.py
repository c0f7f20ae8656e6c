"""Orders that are left over from another run do not harm the program that finds them."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.cli_runner import spawn

LOOP = """
from traceprobe.capture import recorder
record = recorder()
recorder()
print(record.recording, len([batch for batch in record.steps(range(5))]))
"""
STALE = {
    "absent": None,
    "no JSON": "{",
    "deep": "[" * 100_000,
    "of another version": json.dumps({"folder": ".", "future": 1}),
    "a list": "[]",
    "no plan": json.dumps({"folder": 5}),
    "no text": "\udcff",
    "of a run that is gone": json.dumps({"folder": "/nonexistent"}),
    "of words": json.dumps({"folder": ".", "warmup": "many"}),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """One process in which the loop finds one left over order after the other."""
    folder = tmp_path_factory.mktemp("stale")
    cases = {("TRACEPROBE_MEMORY_PREDICTION", "absent"): str(folder / "absent")}
    os.mkfifo(folder / "fifo")
    for variable in ("TRACEPROBE_PLAN", "TRACEPROBE_TRIALS"):
        cases |= {(variable, "fifo"): str(folder / "fifo"), (variable, "folder"): str(folder)}
        for number, (case, text) in enumerate(STALE.items()):
            path = folder / f"{number}.json"
            if text is not None:
                path.write_text(text, errors="surrogateescape")
            cases[variable, case] = str(path)
    (folder / "train.py").write_text(
        "import os, sys\n"
        f"for number, (variable, path) in enumerate({[(v, p) for (v, _), p in cases.items()]!r}):\n"
        "    os.environ[variable] = path\n"
        f"    exec({LOOP!r})\n"
        "    print('next', file=sys.stderr)\n"
        "    os.environ.pop(variable, None)\n"
    )
    done = spawn("train.py", cwd=folder, command=(sys.executable,)).expect(0)
    outs, errs = done.out.splitlines(), done.err.split("next\n")
    return dict(zip(cases, zip(outs, errs, strict=False), strict=True))


CASES = [("TRACEPROBE_MEMORY_PREDICTION", "absent")] + [
    (variable, case)
    for variable in ("TRACEPROBE_PLAN", "TRACEPROBE_TRIALS")
    for case in ("fifo", "folder", *STALE)
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_loop_runs_in_spite_of_orders_that_no_longer_hold(ended, case):
    out, err = ended[case]
    assert out == "False 5"
    assert err.startswith(f"traceprobe: {case[0]} is left over from a run that has ended")
    assert err.count("\n") == 1
