"""How many threads BLAS has, which numpy brings along."""

from __future__ import annotations

import os

_VARIABLE = "OPENBLAS_NUM_THREADS"


def have_no_threads_of_blas() -> None:
    """Have BLAS compute on the thread that asks, here and in processes that this one starts.

    To be called before numpy is imported, and never by a process that starts programs of users. An
    analysis multiplies nothing that is large, and threads that wait for such work keep a core busy
    while they start. What the user has set counts.
    """
    os.environ.setdefault(_VARIABLE, "1")
