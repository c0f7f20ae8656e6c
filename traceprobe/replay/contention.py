"""What communication and the host leave behind when they are taken out of a replay.

Kernels beside a collective are slower than alone, and DDP copies gradients into its buckets and
back: both go with it. A CUDA graph takes the host's time away, but not the gap between one kernel
and the next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceprobe.model.contention import GRAPH_GAP_NS
from traceprobe.replay.tasks import Tasks

COMMUNICATION = ("communication",)


def without_communication(tasks: Tasks) -> Tasks:
    """The tasks without collectives and what there is only for them, others as fast as alone."""
    which = tasks.of(COMMUNICATION)
    left = tasks.emptied(which).without_needs(which)
    shorter = left.duration * (left.alone - 1)
    return replace(
        left,
        duration=left.duration + shorter,
        tail=left.tail + np.maximum(shorter, -np.minimum(left.duration, left.tail) * (1 - left.alone)),
        first_host=np.minimum(left.first_host, left.host * left.alone_host),
        host=left.host * left.alone_host,
        alone=np.ones(len(left)),
        alone_host=np.ones(len(left)),
    )
