"""Which processes of a program are measured, and what is known of those that vanish."""

from __future__ import annotations

import subprocess
import sys

from tests.cli_runner import environment
from traceprobe.capture.loop_session import ASKED_EVERY, Bystander
from traceprobe.capture.progress import (
    DONE,
    claim_rank,
    current_rank,
    cut_off,
    report_state,
)


def claimed_by_another(folder):
    """Whether another process, which ends then, may have this one's rank."""
    claim = "from traceprobe.capture.progress import claim_rank\nprint(claim_rank('.'))"
    words = [sys.executable, "-c", claim]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, check=True)
    return done.stdout == b"True\n"


def test_the_first_process_of_a_rank_is_measured(tmp_path):
    assert claim_rank(str(tmp_path))
    assert claim_rank(str(tmp_path))  # as after exec
    assert not claimed_by_another(tmp_path)


def test_one_after_another_is(tmp_path):
    assert claimed_by_another(tmp_path)
    assert claim_rank(str(tmp_path))


def test_ranks_are_apart(tmp_path, monkeypatch):
    assert claim_rank(str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    assert current_rank() == 1
    assert claimed_by_another(tmp_path)


def test_a_bystander_trains_until_the_other_is_measured(tmp_path):
    report_state(str(tmp_path), "warming up")
    bystander = Bystander(str(tmp_path))
    assert all(bystander.before_step(number) for number in range(2 * ASKED_EVERY))
    report_state(str(tmp_path), DONE)
    assert bystander.before_step(2 * ASKED_EVERY + 1)
    assert not bystander.before_step(3 * ASKED_EVERY)


def test_who_vanishes_is_told_where_it_was(tmp_path):
    assert cut_off(tmp_path) is None
    report_state(str(tmp_path), "warming up")
    assert cut_off(tmp_path).startswith("while its state was “warming up”")
