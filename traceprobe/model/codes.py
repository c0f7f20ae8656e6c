"""What the numbers in the columns of a trace mean, and how wide they are."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Ints = NDArray[np.signedinteger[Any]]
"""Integers in the width that they need."""
Bools = NDArray[np.bool_]

UNKNOWN = -1
"""Stands for "not recorded" in integer columns where a null would cost a float or a mask."""


class Kind(IntEnum):
    """What a GPU op does. Only these count as GPU work."""

    KERNEL = 0
    COMM = 1
    H2D = 2
    D2H = 3
    D2D = 4
    MEMSET = 5


class Call(IntEnum):
    """What a host call asks of the GPU."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY = 3
    MEMSET = 4
    SYNC = 5


class StreamEvent(IntEnum):
    """What a call does with an event, or with a whole stream or device."""

    RECORD = 0  # the event is ready once the stream has done what it was given before
    WAIT = 1  # what the stream is given from now on starts after the event
    HOST_WAIT = 2  # the call returns once the event, the stream or the device is ready


class Source(IntEnum):
    """Who wrote a host range."""

    USER = 0
    FRAMEWORK = 1
    PROFILER = 2
    MARK = 3
    QUEUE = 4
    """The driver, of a launch that waits for room in the device's queue."""


NOTES = (int(Source.PROFILER), int(Source.QUEUE))
"""Sources of rows that are in no program's code."""


class Role(IntEnum):
    """What autograd says about the operator that made a launch."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    """A forward operator that the backward pass runs, where no thread of its own tells it."""
    AFTER_UPDATE = 4
    """Changes parameters once the optimizer is done, as averages of them do."""


class Operation(IntEnum):
    """What a GPU op of kind COMM does; the report writes the name in lower case."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    SEND_RECV = 9
    BARRIER = 10
    COPY = 11


MODULE = "nn.Module: "
"""How the profiler begins the name of such a call, among the frames of Python."""
BACKWARD_NODES = ("autograd::engine::evaluate_function: ", "torch::autograd::")
"""How nodes of the backward pass are called, whatever they have of a forward operator."""
