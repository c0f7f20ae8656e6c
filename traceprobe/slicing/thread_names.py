"""Names of threads that PyTorch, CUDA and Python themselves give; programs may call theirs so too.

Any other name is the program's, and may be anybody's.
"""

from __future__ import annotations

import re

_PUBLIC = re.compile(
    r"(?:thread \d{1,10} \(?)?"
    r"(?:python[23]?(?:\.\d{1,2})?|pt_(?:autograd|data_worker|data_pin|main_thread|pin_memory"
    r"|nccl_(?:watchdg|heartbt)|thread)(?:_\d{1,6})?|cuda[-\w]{0,4}EvtHandlr|CUPTI worker thread"
    r"|MainThread|Thread-\d{1,6})\)? ?"
    r"|stream \d{1,10} ?"
)


def is_public_thread(name: str) -> bool:
    """Whether a thread's name is one of those."""
    return _PUBLIC.fullmatch(name) is not None
