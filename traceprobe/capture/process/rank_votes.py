"""Ranks that decide alike: each leaves its vote in the folder of the recording and reads all.

No collective of the program's own: a program whose ranks do not step alike would wait in one for
ever. Here the first rank whose patience ends closes the ballot for all.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from traceprobe.capture.process.progress import write_result

PATIENCE_S = 20.0
"""Ranks that step alike come to the same step sooner."""
_POLL_S = 0.0005
_ALL, _SOME = "all", "some"


class RankVotes:
    """Ballots of a program's ranks, in the same order on every rank.

    Args:
        ranks: how many vote; None where they cannot reach each other.
    """

    def __init__(self, folder: str, rank: int, ranks: int | None) -> None:
        self._folder, self._rank, self.ranks = Path(folder), rank, ranks
        self._ballot = 0

    def cast(self, vote: int, patience_s: float = PATIENCE_S) -> list[int] | None:
        """The votes of all ranks on the next question; None, on every rank, where some give none.

        Where one ballot failed, all later ones do: the ranks are no longer at the same question.
        """
        if self.ranks == 1:
            return [vote]
        if self.ranks is None:
            return None
        self._ballot += 1
        write_result(self._vote(self._rank), str(vote))
        outcome = self._folder / f"ballot{self._ballot}.closed"
        deadline = time.monotonic() + patience_s
        while (result := _content(outcome)) not in (_ALL, _SOME):
            if all(self._vote(rank).exists() for rank in range(self.ranks)):
                _close(outcome, _ALL)
            elif time.monotonic() > deadline:
                _close(outcome, _SOME)
            else:
                time.sleep(_POLL_S)
        if result == _SOME:
            self.ranks = None
            return None
        return [int(self._vote(rank).read_text()) for rank in range(self.ranks)]

    def _vote(self, rank: int) -> Path:
        return self._folder / f"ballot{self._ballot}-rank{rank}.vote"


def _content(outcome: Path) -> str | None:
    try:
        return outcome.read_text()
    except FileNotFoundError:
        return None


def _close(outcome: Path, result: str) -> None:
    """Close the ballot, unless another rank was first."""
    with suppress(FileExistsError), outcome.open("x") as file:
        file.write(result)


def rank_votes(folder: str, rank: int) -> RankVotes:
    """Ballots among the ranks of this program, as far as they share this folder."""
    here = os.environ.get("LOCAL_WORLD_SIZE")
    ranks = max(_world_size(), int(os.environ.get("WORLD_SIZE") or 1))
    apart = ranks > 1 and ("RANK" not in os.environ or (here or str(ranks)) != str(ranks))
    return RankVotes(folder, rank, None if apart else ranks)


def _world_size() -> int:
    import torch.distributed as dist

    ready = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if ready else 1
