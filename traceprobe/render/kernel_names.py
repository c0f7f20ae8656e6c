"""Names of kernels in a few words: what a reader calls them, instead of a whole C++ signature."""

from __future__ import annotations

import re
from functools import lru_cache

from traceprobe.formatting import clean

_RETURN = re.compile(r"^(?:void|(?:typename )?std::enable_if<.*?>::type) ")
_SCOPE = re.compile(r"(?:[\w~]|\(anonymous namespace\)|<unnamed>)+::")
_WORD = re.compile(r"[A-Za-z_]\w*")
_DOING = re.compile(r"Functor|^launch_|(?:Ops?|_functor|KernelImpl|_kernel(?:_impl|_cuda)?)$")
"""Template arguments that say what a general kernel does."""
_GENERAL = re.compile(r"elementwise|reduce_kernel|multi_tensor_apply|DeviceScan|DeviceReduce")
"""Kernels that do what an argument of their template says."""
_WRAPPERS = frozenset(
    {"AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "ReduceOp", "UnaryFunctor"}
)
"""Arguments that wrap the one that says it."""
_GRAPH = re.compile(r"## Call CompiledFxGraph (\S{1,8})\S* ##")
"""What inductor calls a compiled graph: by a hash, of which the beginning tells enough."""
_WRAPPED = re.compile(r"Kernel\d?")
_DETAIL = re.compile(
    r"_(?:tilesize|stage|warpsize|warpgroupsize|execute|kernel__5x|nhwckrsc|g\d|aligna|alignc|"
    r"simple|knob)\w*$"
)
"""From here on a name of a library's kernel says only how it is tiled."""


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """`name` without return type, scopes, template arguments and tile sizes.

    `void at::native::vectorized_elementwise_kernel<4, …MulFunctor<float>…>(…)` becomes
    `vectorized_elementwise_kernel: MulFunctor`.
    """
    text = _RETURN.sub("", clean(name))
    if graph := _GRAPH.fullmatch(text):
        return f"compiled graph {graph[1]}"
    if not ("(" in text or "<" in text) or text.startswith("Mem"):  # no C++, or a copy
        return _detail_left_out(text)
    head, bracket, rest = _unscoped(text).partition("<")
    head = head.partition("(")[0].strip()
    if not _WORD.search(head):
        return text
    if bracket and _GENERAL.search(head):
        words = [word for word in _WORD.findall(rest) if _DOING.search(word)]
        told = next((word for word in words if word not in _WRAPPERS), None)
        return f"{head}: {told}" if told else head
    if bracket and _WRAPPED.fullmatch(head):  # CUTLASS: the argument is the kernel
        told = _WORD.search(rest)
        return _detail_left_out(told.group()) if told else head
    return _detail_left_out(head)


def _unscoped(text: str) -> str:
    """Without the namespaces before the first bracket."""
    text = text.replace("(anonymous namespace)", "<unnamed>")
    while found := _SCOPE.match(text):
        text = text[found.end() :]
    return text


def _detail_left_out(name: str) -> str:
    return _DETAIL.sub("", name) or name
