"""What a recording says of kernels that nothing encloses: `KernelOwners` of the sidecar."""

from __future__ import annotations

import sys
from typing import Any

from traceprobe.capture.owners.compiled_code import compiled_code
from traceprobe.capture.owners.graph_capture import graph_captures
from traceprobe.capture.owners.owner_table import OwnerTable
from traceprobe.model.owner_limits import MOST_CALLS, MOST_GRAPHS, MOST_REPLAYS

WATCHED = ("torch._inductor.compile_fx", "torch._inductor.graph")
"""Modules that are watched from when they are imported."""
_MOST_REASONS = 5


def watch_graphs() -> None:
    """Note what CUDA graphs capture from now on, in a program that has imported torch.cuda."""
    graphs = sys.modules.get("torch.cuda.graphs")
    graph_class = getattr(graphs, "CUDAGraph", None)
    if graph_class is not None and hasattr(graph_class, "capture_begin"):
        graph_captures.watch(graph_class)


def watch_module(name: str, module: Any) -> None:
    """Note what one of `WATCHED`, just imported, compiles from now on."""
    if name.endswith("compile_fx") and hasattr(module, "compile_fx"):
        compiled_code.watch_compiler(module)
    elif hasattr(getattr(module, "GraphLowering", None), "compile_to_module"):
        compiled_code.watch_generator(module)


def kernel_owners() -> dict[str, Any] | None:
    """The record; None where no graph was captured and nothing compiled."""
    table = OwnerTable()
    graphs = [
        {
            "names": [table.text(name) for name in graph.names],
            "calls": [[nodes, table.owner(owner)] for nodes, owner in graph.calls],
        }
        for graph in graph_captures.graphs[:MOST_GRAPHS]
    ]
    compiled, left = [], MOST_CALLS
    for key, calls in compiled_code.calls():
        left -= len(calls)
        if left < 0:
            break
        numbers = [[table.text(name), table.owner(owner)] for name, owner in calls]
        compiled.append({"key": key, "calls": [each for each in numbers if each[0] >= 0]})
    reasons = [*graph_captures.reasons, *compiled_code.reasons]
    if not graphs and not compiled and not reasons:
        return None
    return {
        **table.record(),
        "graphs": graphs,
        "compiled": compiled,
        "replays": graph_captures.replays[-MOST_REPLAYS:],
        "reasons": list(dict.fromkeys(reasons))[:_MOST_REASONS],
    }
