"""Ranks decide alike, and none waits for ever for one that does not come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from traceprobe.capture.process.rank_votes import RankVotes


def cast(folder, votes, patience_s=20.0, ranks=None):
    """What each rank is answered, ballot by ballot."""

    def rank(number):
        voter = RankVotes(str(folder), number, ranks or len(votes))
        return [voter.cast(vote, patience_s) for vote in votes[number]]

    with ThreadPoolExecutor(len(votes)) as pool:
        return list(pool.map(rank, range(len(votes))))


def test_every_rank_gets_the_votes_of_all(tmp_path):
    answers = cast(tmp_path, [[1, 4], [2, 5], [3, 6]])
    assert answers == [[[1, 2, 3], [4, 5, 6]]] * 3


def test_where_one_gives_no_vote_all_are_told_so_and_stay_told(tmp_path):
    answers = cast(tmp_path, [[1, 1], [1, 1]], patience_s=0.1, ranks=3)
    assert answers == [[None, None]] * 2


def test_who_comes_too_late_hears_what_the_others_heard(tmp_path):
    early = RankVotes(str(tmp_path), 0, 2)
    assert early.cast(1, patience_s=0.05) is None
    assert RankVotes(str(tmp_path), 1, 2).cast(1) is None


def test_one_rank_asks_nobody(tmp_path):
    assert RankVotes(str(tmp_path), 0, 1).cast(7) == [7]
    assert list(tmp_path.iterdir()) == []
