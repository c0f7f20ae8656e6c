"""Which processes of a program are measured, and what is known of those that vanish."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli_runner import environment
from traceprobe.capture.loop.loop_session import ASKED_EVERY, Bystander
from traceprobe.capture.process import progress
from traceprobe.capture.process.progress import (
    DONE,
    claim_rank,
    current_rank,
    cut_off,
    is_alive,
    report_state,
)
from traceprobe.capture.watch.watch_plan import WatchPlan
from traceprobe.capture.watch.watch_session import WatchSession


def claimed_by_another(folder):
    """Whether another process, which ends then, may have this one's rank."""
    claim = "from traceprobe.capture.process.progress import claim_rank\nprint(claim_rank('.'))"
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
    monkeypatch.setattr(progress, "_RANKS", {})
    assert claim_rank(str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    assert current_rank() == 1
    assert claimed_by_another(tmp_path)


def test_a_process_that_joined_others_has_its_rank_among_them(pytorch, monkeypatch):
    import torch.distributed as dist

    monkeypatch.setattr(progress, "_RANKS", {})
    monkeypatch.setenv("RANK", "3")  # of its node, where a program starts its processes itself
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert current_rank() == 0
    finally:
        dist.destroy_process_group()
    assert current_rank() == 0


@pytest.mark.parametrize("seen", [True, False])
def test_only_a_watcher_that_was_seen_can_be_gone(pytorch, tmp_path, seen):
    watcher = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    if not seen:
        watcher.communicate()
    assert is_alive(watcher.pid) is seen
    folder = tmp_path / "notes"
    folder.mkdir()
    session = WatchSession(WatchPlan(folder=str(folder), watcher=watcher.pid))
    if seen:
        watcher.communicate()
    session.close()
    assert folder.exists() is not seen


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
