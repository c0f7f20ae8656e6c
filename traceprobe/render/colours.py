"""Colours of classes, shares and losses, and the marks of findings.

The hues follow Okabe and Ito's set for colour-blind readers: blues and greens compute, purple
communicates, yellows copy, oranges and greys wait. Colour never stands alone: every use has the
label beside it or in a legend.
"""

from __future__ import annotations

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
"""For labels that are no class."""
PATH_COLOURS = {
    **CLASS_COLOURS,
    "host": CLASS_COLOURS["idle_host"],
    "data-wait": CLASS_COLOURS["idle_data_wait"],
    "launch": CLASS_COLOURS["idle_latency"],
    "delay": CLASS_COLOURS["idle_unexplained"],
}
"""Parts of a critical path; what a device waits for has the colour of its idle time."""
HOST_COLOURS = {
    "range": "#c8d0d9",
    "operator": "#a3b1c0",
    "call": "#6d7c8c",
    "wait": "#c2185b",
}
"""Rows of the host in a timeline; calls that wait stand out."""

SHARE_COLOURS = {
    "io": "#d55e00",
    "communication": "#cc79a7",
    "overhead": "#e69f00",
    "compute": "#0072b2",
    "other": "#8a847b",
}

LOSS_COLOURS = {
    "transfer": "#cc79a7",
    "skew": "#7b4f9e",
    "communication": "#cc79a7",
    "io": "#d55e00",
    "overhead": "#e69f00",
    "compute": "#0072b2",
    "other": "#8a847b",
}

STATUS_SHAPES = {
    "fail": "▲",
    "warn": "■",
    "inconclusive": "?",
    "pass": "●",
    "not-applicable": "○",
}
