"""Something that takes its time, done by a thread while this one waits for other things."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def meanwhile(do: Callable[[], object]) -> Iterator[None]:
    """Call a function beside what is done here, and wait for its end.

    It is for what is done again where it is needed, such as imports: nobody hears of its errors.
    """

    def quietly() -> None:
        with suppress(Exception):
            do()

    thread = threading.Thread(target=quietly)
    thread.start()
    try:
        yield
    finally:
        thread.join()
