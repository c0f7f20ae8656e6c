"""Owners of the kernels that torch.compile makes, from what inductor writes into its code.

The code that inductor generates says before each call which nodes of the program's graph it stands
for. The nodes know line and modules. They are noted when a graph is handed to inductor, and again
when it generates code, where the nodes of the backward pass are too; code that comes out of a cache
is not generated, and its backward pass has owners only where it names nodes of the forward pass.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

from traceprobe.capture.blame.module_names import MODULE
from traceprobe.capture.blame.own_code import OwnCode, own_code
from traceprobe.capture.owners.owner_table import Owner
from traceprobe.model.owner_limits import MOST_GRAPHS

_NODES = re.compile(
    r"\s*(?:#|//) (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], "
    r"Original ATen: \[(.*?)\]"
)
_CALL = re.compile(
    r"\s+(?:\w+ = )?(?:(?P<kernel>\w+)\.run\(|extern_kernels\.(?P<extern>\w+)\(|(?P<cpp>cpp_\w+)\("
    r"|torch\.ops\.(?P<space>\w+)\.(?P<operator>\w+)[.(])"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]+)')
_PATH = re.compile(r"^L\['\w+'\]\.?|^\w+\['\w+'\]\.?")
_QUOTED = re.compile(r"\._modules\['([^']+)'\]|\['?([^'\]]+)'?\]")
_WRAPPER = re.compile(r"(?:^|(?<=\.))_orig_mod(?:\.|$)")
_VIEWS = frozenset(
    {
        *("t", "transpose", "permute", "view", "_unsafe_view", "reshape", "expand", "unsqueeze"),
        *("squeeze", "slice", "select", "detach", "alias", "as_strided", "split", "chunk"),
        "unbind",
    }
)
"""Operators that move nothing; a kernel is named after the others."""
_MOST_NAMED = 4
"""Operators that the name of a fused kernel's owner lists."""
_ALIASES = {"bias_addmm": "addmm"}
"""Kernels of inductor's own that stand for an operator."""
_LARGEST_CODE = 1 << 24

Places = dict[str, Owner]
"""Modules and line of nodes, by their names."""


class CompiledCode:
    """What inductor compiled in this process."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._own: OwnCode | None = None
        self._by_file: dict[str, Places] = {}
        self._graphs: list[tuple[Places, set[str]]] = []
        """Graphs that were handed to inductor, and the files that were loaded meanwhile."""

    def watch_compiler(self, module: Any) -> None:
        """Note the graphs that `torch._inductor.compile_fx`, just imported, is given."""
        compiles = module.compile_fx

        @wraps(compiles)
        def compile_fx(graph: Any, *arguments: Any, **options: Any) -> Any:
            places = self._try(lambda: self._places(graph), {})
            before = _loaded()
            result = compiles(graph, *arguments, **options)
            if len(self._graphs) < MOST_GRAPHS:
                self._graphs.append((places, _loaded() - before))
            return result

        module.compile_fx = compile_fx

    def watch_generator(self, module: Any) -> None:
        """Note the graphs that `torch._inductor.graph`, just imported, generates code for."""
        lowering = module.GraphLowering
        generates = lowering.compile_to_module

        @wraps(generates)
        def compile_to_module(graph: Any, *arguments: Any, **options: Any) -> Any:
            result = generates(graph, *arguments, **options)
            places = self._try(lambda: self._places(graph.orig_gm), {})
            file = getattr(result, "__file__", None)
            if file and len(self._by_file) < MOST_GRAPHS:
                self._by_file[file] = places
            return result

        lowering.compile_to_module = compile_to_module

    def calls(self) -> list[tuple[str, list[tuple[str, Owner]]]]:
        """All compiled code: how profilers call it, and what it calls, in order, with owners.

        A kernel goes by its name, any other call by that of its operator.
        """
        keys = self._try(_keys, {})
        found = []
        for file in sorted(_loaded())[:MOST_GRAPHS]:
            calls = self._try(partial(self._of_file, file), [])
            if calls:
                found.append((keys.get(Path(file).stem, ""), calls))
        return found

    def _of_file(self, file: str) -> list[tuple[str, Owner]]:
        path = Path(file)
        if path.stat().st_size > _LARGEST_CODE:
            return []
        text = path.read_text(errors="replace")
        places = self._places_of(file, text)
        found = []
        for name, nodes, operators in generated_calls(text):
            known = [places[node] for node in nodes if node in places]
            # Those of an operator are what its arguments come from, and it the last one.
            known = known[-1:] if "::" in name else known
            found.append((name, fused(known, operators)))
        return found

    def _places_of(self, file: str, text: str) -> Places:
        """Of the nodes that a file names: those of its own graph, else of the likeliest one."""
        named = {node for _, nodes, _ in generated_calls(text) for node in nodes}
        own = self._by_file.get(file, {})
        with_it = [places for places, files in self._graphs if file in files]
        others = with_it or [places for places, _ in self._graphs]
        best = max(others, key=lambda places: len(named & places.keys()), default={})
        return {**best, **own}

    def _places(self, graph: Any) -> Places:
        found: Places = {}
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            meta = node.meta
            stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
            owner = Owner(
                tuple(dict.fromkeys(filter(None, map(_module, stack.values())))),
                self._line(meta.get("stack_trace")),
            )
            for name in (node.name, *(each.name for each in (meta.get("from_node") or [])[:1])):
                if owner != Owner():
                    found.setdefault(name, owner)
        return found

    def _line(self, stack: Any) -> str | None:
        """The innermost frame of the program's own in a stack, which ends with the innermost."""
        self._own = self._own or own_code()
        for file, line, function in reversed(_FRAME.findall(stack or "")):
            name = self._own.name(file)
            if name is not None:
                return f"{name}({line}): {function}"
        return None

    def _try(self, note: Callable[[], Any], otherwise: Any) -> Any:
        """Whatever fails here is no matter of the program's."""
        try:
            return note()
        except Exception as error:
            self.reasons.append(f"{type(error).__name__}: {error}"[:200])
            return otherwise


def generated_calls(code: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The calls in code of inductor's, in order: name, nodes and operators that it stands for.

    Kernels are written as texts between triple quotes, and what is in those is passed over.
    """
    nodes: list[str] = []
    operators: list[str] = []
    inside = False
    for line in code.splitlines():
        if line.count("'''") % 2:
            inside = not inside
            continue
        if inside:
            continue
        if match := _NODES.match(line):
            nodes, operators = (_listed(part) for part in match.groups())
        elif match := _CALL.match(line):
            name = match["kernel"] or match["cpp"]
            if match["extern"]:
                name = f"aten::{_ALIASES.get(match['extern'], match['extern'])}"
            elif match["operator"]:
                name = f"{match['space']}::{match['operator']}"
            yield name, nodes, [name] if "::" in name else operators
            nodes, operators = [], []


def fused(places: Iterable[Owner], operators: Iterable[str]) -> Owner:
    """One owner of what several nodes were fused into.

    The line that most of them are on, the modules that all on it are in, and all operators but
    those that move nothing.
    """
    known = list(places)
    lines = Counter(owner.line for owner in known if owner.line is not None)
    line = lines.most_common(1)[0][0] if lines else None
    there = [owner.modules for owner in known if owner.line == line and owner.modules]
    named = list(dict.fromkeys(operator.replace(".", "::", 1) for operator in operators))
    works = [name for name in named if name.split("::")[-1] not in _VIEWS] or named
    text = " + ".join(works[:_MOST_NAMED]) + (" + …" if len(works) > _MOST_NAMED else "")
    return Owner(_common(there), line, text or None)


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """What all of some paths begin with."""
    found = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        found.append(steps[0])
    return tuple(found)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _module(entry: Any) -> str | None:
    """How a call of a module is written, of Dynamo's path and class of it."""
    path, kind = entry
    path = _QUOTED.sub(lambda m: f".{m[1] or m[2]}", _PATH.sub("", str(path))).strip(".")
    path = _WRAPPER.sub("", path).rstrip(".")
    name = getattr(kind, "__name__", str(kind).rsplit(".", 1)[-1])
    return f"{MODULE}{path}.{name}" if path else f"{MODULE}{name}"


def _loaded() -> set[str]:
    """Files of generated code that are in use."""
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    modules = getattr(cache, "modules", None) or ()
    if not modules:
        modules = (getattr(cache, "cache", None) or {}).values()  # before 2.6
    return {file for module in modules if (file := getattr(module, "__file__", None))}


def _keys() -> Mapping[str, str]:
    """What profilers call each piece of code, by the stem of its file."""
    import gc

    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    if kind is None:
        return {}
    found = {}
    for each in gc.get_objects():
        if type(each) is kind:
            key = getattr(each, "_fx_graph_cache_key", None)
            if key and getattr(each, "cache_key", None):
                found[str(each.cache_key)] = str(key)
    return found


compiled_code = CompiledCode()
"""That of this process."""
