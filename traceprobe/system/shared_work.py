"""One function of many things, some of them by other processes, and the results in order.

The others help where they can: what one of them cannot do, since it did not start or was killed, is
done here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from traceprobe.system.child import (
    Child,
    ChildEnded,
    Done,
    Failed,
    Ready,
    children,
    end_all,
    wait_for_answers,
)

Work = TypeVar("Work")
Result = TypeVar("Result")
_AHEAD = 2
"""Pieces of work that each process has, so that it need not wait for the next."""
_MOST_DUE = 4
"""Pieces for each process whose results may wait for that of an earlier one: they take memory."""
_begun: list[Child] = []
"""Processes that were started ahead and that nobody has taken."""


@contextmanager
def begun_ahead(module: str, number: int) -> Iterator[None]:
    """Some processes that start while this one has other things to do, for `results_in_order`.

    Args:
        module: that of the function; they import it at once.
    """
    with children() as started:
        with suppress(ChildEnded):
            for _ in range(number):
                started.append(Child(module))
        _begun.extend(started)
        try:
            yield
        finally:
            _begun.clear()


def results_in_order(
    function: Callable[[Work], Result], works: Iterable[Work], jobs: int
) -> Generator[Result, None, None]:
    """The results of a function, in the order of its arguments, by up to `jobs` processes at once.

    This process is one of them. The others start when the first result is asked for, if they have
    not begun ahead; they end with the last one, or when the iterator is closed.

    Args:
        function: of a module. It travels by pickle, as do arguments and results.
        jobs: at least 2.

    Raises:
        Exception: what the function raises, here or there, when it is the turn of that result; at
            once what `works` raises.
    """
    due: deque[_Piece[Work, Result]] = deque()
    with children() as started:
        helpers = _Helpers(function, started, jobs - 1)
        try:
            for work in works:
                piece = _Piece[Work, Result](work)
                due.append(piece)
                helpers.hear(0)
                if not helpers.take(piece):
                    piece.do(function)
                while due and (due[0].settled or len(due) >= _MOST_DUE * jobs):
                    yield helpers.finish(due.popleft())
            while due:
                helpers.hear(0)
                # The last of what others have; should it come from them after all, it is not used.
                late = next((piece for piece in reversed(due) if not piece.settled), None)
                if late is not None and not due[0].settled:
                    late.do(function)
                while due and due[0].settled:
                    yield due.popleft().result()
        except BaseException:
            end_all(started)
            raise
        finally:
            helpers.dismiss()


class _Piece(Generic[Work, Result]):
    """A piece of work, and what came of it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.settled = False
        self._said: Done | Failed | None = None

    def settle(self, said: Done | Failed) -> None:
        """What somebody made of it; the first who did counts."""
        if not self.settled:
            self.settled, self._said = True, said

    def do(self, function: Callable[[Work], Result]) -> None:
        """Do it here; an error waits for its turn."""
        try:
            self.settle(Done(function(self.work)))
        except Exception as error:
            self.settle(Failed(error))

    def result(self) -> Result:
        """What came of it, or what it raised."""
        assert self._said is not None
        if isinstance(self._said, Failed):
            raise self._said.error
        result: Result = self._said.result
        return result


class _Helpers(Generic[Work, Result]):
    """Other processes, and what each of them has to do, in its order.

    Args:
        started: a list that ends what is put into it.
        most: of them.
    """

    def __init__(self, function: Callable[[Work], Result], started: list[Child], most: int) -> None:
        self._function = function
        self._given: dict[Child, deque[_Piece[Work, Result]]] = {}
        self._ready: set[Child] = set()
        with suppress(ChildEnded):
            for _ in range(most):
                if _begun:
                    child = _begun.pop()  # whose end is awaited by who has begun it
                else:
                    started.append(child := Child())
                self._given[child] = deque()

    def take(self, piece: _Piece[Work, Result]) -> bool:
        """Whether one of them has time for it; it is given that then."""
        for child in [c for c in self._given if c in self._ready]:
            if len(self._given[child]) < _AHEAD:
                self._given[child].append(piece)
                try:
                    child.give(_call, self._function, piece.work)
                except ChildEnded:
                    self._without(child)
                return True
        return False

    def hear(self, seconds: float | None) -> None:
        """Take in what they have to say, and wait so long for that where it is nothing."""
        while self._given and (speaking := wait_for_answers([*self._given], seconds)):
            for child in speaking:
                try:
                    said = child.answer()
                except ChildEnded:
                    self._without(child)
                    continue
                if isinstance(said, Ready):
                    self._ready.add(child)
                elif isinstance(said, (Done, Failed)):
                    self._given[child].popleft().settle(said)
            seconds = 0

    def finish(self, piece: _Piece[Work, Result]) -> Result:
        """The result of a piece, once it is there."""
        while not piece.settled:
            self.hear(None)
        return piece.result()

    def dismiss(self) -> None:
        """Let them end."""
        for child in self._given:
            child.close()

    def _without(self, child: Child) -> None:
        """Do what a process had that is gone."""
        for piece in self._given.pop(child):
            piece.do(self._function)


def _call(function: Callable[[Work], Result], work: Work, tell: Any) -> Result:
    return function(work)
