"""Words and colours for the classes of the partition, the bounds and the findings' states.

The hues follow Okabe and Ito's set for colour-blind readers: blues and greens compute, purple
communicates, yellows copy, oranges and greys wait. Colour never stands alone: every use has the
word beside it or in a legend.
"""

from __future__ import annotations

CLASS_WORDS = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "recompute",
    "optimizer": "optimizer",
    "graph": "CUDA graph",
    "input": "input on GPU",
    "unattributed": "unattributed kernels",
    "communication": "exposed communication",
    "h2d": "exposed host-to-device",
    "d2h": "exposed device-to-host",
    "memory": "exposed memory ops",
    "idle_data_wait": "idle: waiting for data",
    "idle_host": "idle: host busy",
    "idle_sync": "idle: synchronisation",
    "idle_latency": "idle: launch latency",
    "idle_profiler": "idle: profiler",
    "idle_unexplained": "idle: unexplained",
}
"""The exclusive classes of a GPU window, so copies and communication are the exposed part."""

BUSY_WORDS = {
    **CLASS_WORDS,
    "communication": "communication",
    "h2d": "host-to-device",
    "d2h": "device-to-host",
    "memory": "memory ops",
}
"""The same classes where overlapped time counts too."""

CLASS_COLOURS = {
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "recompute": "#7fd1c7",
    "optimizer": "#009e73",
    "graph": "#5b6fc4",
    "input": "#a6d96a",
    "unattributed": "#8fa3b8",
    "communication": "#cc79a7",
    "h2d": "#f0e442",
    "d2h": "#c9b037",
    "memory": "#94801f",
    "idle_data_wait": "#d55e00",
    "idle_host": "#e69f00",
    "idle_sync": "#f7c778",
    "idle_latency": "#b8b2a7",
    "idle_profiler": "#8a847b",
    "idle_unexplained": "#5f5a54",
}
OTHER_COLOUR = "#9aa0a6"
"""For labels that are no class: host calls and ranges."""

SHARE_WORDS = {
    "io": "I/O",
    "communication": "communication",
    "overhead": "overhead",
    "compute": "compute",
    "other": "other",
}
SHARE_COLOURS = {
    "io": "#d55e00",
    "communication": "#cc79a7",
    "overhead": "#e69f00",
    "compute": "#0072b2",
    "other": "#8a847b",
}
SHARE_MEANING = {
    "io": "waiting for the data loader and exposed host-to-device copies",
    "communication": "communication that no computation hides",
    "overhead": "idle while the host prepares, synchronises or launches work",
    "compute": "kernels and memory operations on the GPU",
    "other": "profiler, unexplained idle and exposed device-to-host copies",
}

LOSS_WORDS = {
    "transfer": "exposed transfer",
    "skew": "waiting for ranks",
    "communication": "exposed transfer or waiting",
    "io": "loading and copying",
    "overhead": "overhead",
    "compute": "computation",
    "other": "other",
}
"""What a step loses time to when it runs on more ranks."""
LOSS_COLOURS = {
    "transfer": "#cc79a7",
    "skew": "#7b4f9e",
    "communication": "#cc79a7",
    "io": "#d55e00",
    "overhead": "#e69f00",
    "compute": "#0072b2",
    "other": "#8a847b",
}

BOUND_WORDS = {
    "io": "I/O-bound",
    "compute": "Compute-bound",
    "communication": "Communication-bound",
    "overhead": "Overhead-bound",
    "mixed": "Mixed",
    "inconclusive": "Inconclusive",
}

AGREEMENT_WORDS = {
    "agree": "They agree",
    "partly": "They agree in part",
    "disagree": "They disagree",
    "unknown": "They cannot be compared",
}

STATUS_WORDS = {
    "fail": "fail",
    "warn": "warning",
    "inconclusive": "could not check",
    "pass": "passed",
    "not-applicable": "not applicable",
}
"""In the order in which findings are listed."""
STATUS_SHAPES = {
    "fail": "▲",
    "warn": "■",
    "inconclusive": "?",
    "pass": "●",
    "not-applicable": "○",
}


def word_for(key: str) -> str:
    """The word for a class or a share; `key` itself where it names neither."""
    return CLASS_WORDS.get(key) or SHARE_WORDS.get(key) or key
