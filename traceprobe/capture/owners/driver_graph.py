"""The nodes of a CUDA graph while it is captured, asked of CUDA's driver."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

_KERNEL, _MEMCPY, _MEMSET = 0, 1, 2
_OTHER_WORK = {_MEMCPY: "memcpy", _MEMSET: "memset"}
_CAPTURING = 1
_RELAXED = 2
_PARAMETERS = 256
"""Bytes for `CUDA_KERNEL_NODE_PARAMS`, which has 72."""
_KERNEL_AT = 56
"""Where in it the `CUkernel` is."""


class DriverGraph:
    """The graph that a stream is being captured into.

    Raises:
        OSError, AttributeError, ValueError: the driver cannot be asked, or no graph is captured.
    """

    def __init__(self, stream: int) -> None:
        self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        self._cuda.cuGraphGetNodes.restype = ctypes.c_int
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        code = self._cuda.cuStreamGetCaptureInfo_v2(
            *(ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph)),
            *(None, None),
        )
        if code or status.value != _CAPTURING or not graph.value:
            raise ValueError(f"no graph is captured (error {code}, status {status.value})")
        self._graph = graph

    def count(self) -> int:
        """Nodes so far."""
        number = ctypes.c_size_t()
        code = self._cuda.cuGraphGetNodes(self._graph, None, ctypes.byref(number))
        if code:
            raise ValueError(f"the nodes of a graph cannot be counted (error {code})")
        return number.value

    def names(self) -> list[str | None]:
        """What each node does, in the order in which they were added.

        Returns:
            The kernel's name as profilers write it ("" where the driver does not tell it),
            "memcpy", "memset"; None of what leaves no row in a trace.
        """
        before = ctypes.c_int(_RELAXED)
        # Nothing that is asked here may end the capture.
        self._cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(before))
        try:
            return [self._name(node) for node in self._nodes()]
        finally:
            self._cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(before))

    def _nodes(self) -> list[int]:
        number = ctypes.c_size_t(self.count())
        nodes = (ctypes.c_void_p * number.value)()
        if number.value and self._cuda.cuGraphGetNodes(self._graph, nodes, ctypes.byref(number)):
            raise ValueError("the nodes of a graph cannot be listed")
        return [int(node or 0) for node in nodes]

    def _name(self, node: int) -> str | None:
        kind = ctypes.c_int(-1)
        if self._cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
            return None
        if kind.value != _KERNEL:
            return _OTHER_WORK.get(kind.value)
        buffer = ctypes.create_string_buffer(_PARAMETERS)
        if self._cuda.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), buffer):
            return ""
        for place, ask in ((0, "cuFuncGetName"), (_KERNEL_AT, "cuKernelGetName")):
            handle = ctypes.c_void_p.from_buffer(buffer, place).value
            if handle and hasattr(self._cuda, ask):
                name = ctypes.c_char_p()
                code = getattr(self._cuda, ask)(ctypes.byref(name), ctypes.c_void_p(handle))
                if not code and name.value:
                    return demangled(name.value)
        return ""


def demangled(name: bytes) -> str:
    """The name of a function as C++ writes it."""
    try:
        library: Any = ctypes.CDLL("libstdc++.so.6")
        ask = library.__getattr__("__cxa_demangle")
    except (OSError, AttributeError):
        return name.decode("utf-8", "replace")
    ask.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = ask(name, None, None, ctypes.byref(status))
    if status.value or not found:
        return name.decode("utf-8", "replace")
    try:
        return ctypes.string_at(found).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(found))
