"""One function of many things, some of them by other processes, and the results in order.

The others help where they can: what one of them cannot do, since it did not start or was killed, is
done here.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from traceprobe.system.child import Child, ChildEnded, Done, Failed, children, end_all

Work = TypeVar("Work")
Result = TypeVar("Result")
_AHEAD = 2
"""Pieces of work that each process has, so that it need not wait for the next."""
_MOST_DUE = 4
"""Pieces for each process whose results may wait for that of an earlier one: they take memory."""


def results_in_order(
    function: Callable[[Work], Result], works: Iterable[Work], jobs: int
) -> Generator[Result, None, None]:
    """The results of a function, in the order of its arguments, by up to `jobs` processes at once.

    This process is one of them. The others start when the first result is asked for; they end with
    the last one, or when the iterator is closed.

    Args:
        function: of a module. It travels by pickle, as do arguments and results.
        jobs: at least 2.

    Raises:
        Exception: what the function raises, here or there, when it is the turn of that result; at
            once what `works` raises.
    """
    due: deque[tuple[Future[Result], Work]] = deque()
    with children() as started, ThreadPoolExecutor(jobs - 1) as threads:
        helpers = _Helpers(started, jobs - 1)
        try:
            for work in works:
                waiting = sum(not future.done() for future, _ in due)
                if waiting < _AHEAD * helpers.number:
                    due.append((threads.submit(helpers.result, function, work), work))
                else:
                    due.append((_done(function, work), work))
                while due and (due[0][0].done() or len(due) >= _MOST_DUE * jobs):
                    yield due.popleft()[0].result()
            while due:
                if not due[0][0].done():
                    _take_back(function, due)
                yield due.popleft()[0].result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            helpers.wanted = False
            end_all(started)
            raise


class _Helpers:
    """Processes, of which each thread of a pool asks the one that is idle.

    Args:
        started: a list that ends what is put into it.

    Attributes:
        number: of those that have started. wanted: whether anybody waits for what they do.
    """

    def __init__(self, started: list[Child], most: int) -> None:
        self._idle: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self.wanted = True
        with suppress(ChildEnded):
            for _ in range(most):
                started.append(Child())
                self._idle.put(started[-1])
        self.number = len(started)

    def result(self, function: Callable[[Work], Result], work: Work) -> Result:
        """What a process makes of something; it is made here where that is gone."""
        child = self._idle.get()
        try:
            if child is not None:
                with suppress(ChildEnded):
                    return _answer(child, function, work)
                child = None
            if not self.wanted:
                raise CancelledError
            return function(work)
        finally:
            self._idle.put(child)


def _answer(child: Child, function: Callable[[Work], Result], work: Work) -> Result:
    child.give(_call, function, work)
    while True:
        said = child.answer()
        if isinstance(said, Failed):
            raise said.error
        if isinstance(said, Done):
            result: Result = said.result
            return result


def _call(function: Callable[[Work], Result], work: Work, tell: Any) -> Result:
    return function(work)


def _done(function: Callable[[Work], Result], work: Work) -> Future[Result]:
    """What it makes of it, here; an error waits for its turn."""
    future: Future[Result] = Future()
    try:
        future.set_result(function(work))
    except Exception as error:
        future.set_exception(error)
    return future


def _take_back(function: Callable[[Work], Result], due: deque[tuple[Future[Result], Work]]) -> None:
    """Do what others have not begun, the last of it, while they are busy."""
    for place in reversed(range(len(due))):
        future, work = due[place]
        if future.cancel():
            due[place] = (_done(function, work), work)
            return
