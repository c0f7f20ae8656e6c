"""Where the graphs of torch.compile break, as Dynamo remembers it.

It keeps the stack of each break after which it went on. Where it could not, as in a loop, it leaves
the function uncompiled, and keeps the line among the facts of its last compilations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from traceprobe.capture.blame.function_name import function_name
from traceprobe.capture.blame.own_code import OwnCode
from traceprobe.model.owner_limits import LONGEST_OWNER, MOST_BREAKS

_BROKEN = "Unsupported"
"""Why a function is left uncompiled, where that is a break."""
_Place = tuple[str, int]
"""A file and a line."""


def graph_breaks(own: OwnCode) -> dict[str, Any] | None:
    """`breaks` and `lines` of `traceprobe.model.sidecar.CompilerNotes`.

    None where nothing was compiled.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is None or not dynamo.get_compilation_metrics():
        return None
    found = dict(_left_uncompiled(dynamo)) | dict(_gone_on_after(dynamo, own))
    lines = [
        f"{file}({line}): {function_name(function)}"
        for (path, line), function in found.items()
        if (file := own.name(path)) is not None
    ]
    return {
        "breaks": len(found),
        "lines": [line for line in lines if len(line) <= LONGEST_OWNER][:MOST_BREAKS],
    }


def _left_uncompiled(dynamo: Any) -> Iterator[tuple[_Place, str]]:
    """Places, with the function that is compiled; the last is the one that the place is in.

    What it calls was tried as a part of it before.
    """
    for each in dynamo.get_compilation_metrics():
        if each.fail_type == _BROKEN and each.fail_user_frame_lineno:
            yield (each.fail_user_frame_filename, each.fail_user_frame_lineno), each.co_name


def _gone_on_after(dynamo: Any, own: OwnCode) -> Iterator[tuple[_Place, str]]:
    """Places, with their functions: the innermost of the program's own, else the innermost."""
    for reason in dynamo.graph_break_reasons:
        frames = reason.user_stack[::-1]
        mine = [frame for frame in frames if own.name(frame.filename) is not None]
        for frame in (mine or frames)[:1]:
            yield (frame.filename, frame.lineno), frame.name
