"""The steps before a recording, until the loop is steady on all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

from traceprobe.capture.process.rank_votes import RankVotes
from traceprobe.capture.recording.block_lengths import BlockLengths
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.steadiness import Steadiness
from traceprobe.formatting import significant

MOST_S = 60.0
"""A warm-up lasts no longer, whatever it has steps for."""
ASKED_EVERY = 4
"""Steps between two questions to the other ranks, which cost each of them a meeting."""
_OUT_OF_TIME, _UNSTEADY = -1, 0
"""Votes beside the period of a steady loop."""


class WarmUp:
    """Watches the steps of a loop, each waited for, until their pace no longer changes.

    Steps that the device is waited for after are its own. The host runs ahead of the device until
    the queue of launches is full, which would look like a change of pace.
    """

    def __init__(self, plan: RecordingPlan, votes: RankVotes) -> None:
        self._plan, self._votes = plan, votes
        self.steps = 0
        self.period = 1
        self.pace_ms = 0.0
        """A step when the warm-up ended."""
        self.steady = False
        self._reason: str | None = None

    def watch(self, least: int, synchronize: Callable[[], None]) -> Generator[bool, None, None]:
        """Go through steps, `least` or more, until they are steady or too many."""
        watched = Steadiness()
        most = max(self._plan.most_warmup, least)
        deadline = time.monotonic() + MOST_S
        over = False
        while not over:
            began = time.perf_counter_ns()
            yield True
            synchronize()
            watched.add((time.perf_counter_ns() - began) / 1e6)
            self.steps += 1
            self.pace_ms = watched.pace
            over = watched.steps >= least and self._is_over(watched, most, deadline)

    def _is_over(self, watched: Steadiness, most: int, deadline: float) -> bool:
        """Whether the warm-up ends here, on every rank."""
        last = watched.steps >= most
        if self._votes.ranks != 1 and watched.steps % ASKED_EVERY and not last:
            return False
        period = watched.period
        vote = period if watched.steady else _UNSTEADY
        if vote == _UNSTEADY and time.monotonic() > deadline:
            vote = _OUT_OF_TIME
        votes = self._votes.cast(vote)
        if votes is None:
            self._end(1, "the ranks do not step alike, or not where they can tell each other")
        elif min(votes) > _UNSTEADY:
            self.steady = True
            self._end(max(votes), None)
        elif last or _OUT_OF_TIME in votes:
            self._end(
                max(*votes, period, 1),
                f"the step still changes after {watched.steps}: it took "
                f"{significant(watched.first_pace)} ms at first and takes "
                f"{significant(watched.pace)} ms now",
            )
        else:
            return False
        return True

    def _end(self, period: int, reason: str | None) -> None:
        self.period, self._reason = period, reason
        self.steady = reason is None
        wanting = BlockLengths(self._plan, period).wanting
        if reason is None and wanting:
            self._reason = (
                f"the loop repeats itself after {period} steps, which is more than a block has: it "
                f"needs --calibrate {wanting}"
            )

    def facts(self) -> dict[str, Any]:
        """The warm-up as the sidecar has it."""
        reason = {} if self._reason is None else {"reason": self._reason}
        return {"steps": self.steps, "steady": self.steady, "period": self.period, **reason}
