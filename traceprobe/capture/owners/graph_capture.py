"""Owners of the nodes of CUDA graphs, noted while they are captured.

A mode of PyTorch's dispatcher sees every operator of the capture, also those of the backward pass,
which runs on a thread of autograd's. The nodes that the graph has gained when an operator returns
are that operator's; what is between two operators, such as kernels that Triton launches, has none.
No module is hooked and nothing of the program is changed, or it might be compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from traceprobe.capture.owners.driver_graph import DriverGraph
from traceprobe.capture.owners.owner_table import Owner
from traceprobe.capture.owners.program_place import ProgramPlace
from traceprobe.model.owner_limits import MOST_NODES, MOST_REPLAYS

_MOST_FORWARD = 1_000_000
"""Forward operators whose backward ones are still looked for."""
_NUMBER = "_traceprobe_number"
_NOBODY = Owner()


@dataclass
class CapturedGraph:
    """One graph.

    Args:
        names: of its nodes, as `DriverGraph.names` gives them.
        calls: nodes and owner of each call, in order; together they are all nodes.
    """

    names: list[str | None] = field(default_factory=list)
    calls: list[tuple[int, Owner]] = field(default_factory=list)
    _noted: int = 0

    def until(self, count: int, owner: Owner) -> None:
        """Nodes up to a number of them belong to an owner, as far as they have none."""
        if count > self._noted:
            self.calls.append((count - self._noted, owner))
            self._noted = count


class GraphCaptures:
    """The graphs that this process captures, and the order in which it replays them."""

    def __init__(self) -> None:
        self.graphs: list[CapturedGraph] = []
        self.replays: list[int] = []
        self.reasons: list[str] = []
        """Why graphs have no owners."""
        self._place: ProgramPlace | None = None
        self._forward: dict[int, Owner] = {}
        self._nodes = 0

    def watch(self, graph_class: Any) -> None:
        """Note what a class of graphs, `torch.cuda.CUDAGraph`, captures and replays from now on."""
        if getattr(graph_class, "_traceprobe_watched", False):
            return
        graph_class._traceprobe_watched = True
        begin, end, replay = (
            getattr(graph_class, name) for name in ("capture_begin", "capture_end", "replay")
        )

        @wraps(begin)
        def capture_begin(graph: Any, *arguments: Any, **options: Any) -> Any:
            result = begin(graph, *arguments, **options)
            self._try(lambda: self._begin(graph))
            return result

        @wraps(end)
        def capture_end(graph: Any, *arguments: Any, **options: Any) -> Any:
            self._try(lambda: self._end(graph))
            return end(graph, *arguments, **options)

        @wraps(replay)
        def replayed(graph: Any, *arguments: Any, **options: Any) -> Any:
            self.replays.append(graph.__dict__.get(_NUMBER, -1))
            if len(self.replays) > 2 * MOST_REPLAYS:
                del self.replays[:MOST_REPLAYS]
            return replay(graph, *arguments, **options)

        graph_class.capture_begin, graph_class.capture_end = capture_begin, capture_end
        graph_class.replay = replayed

    def place(self) -> ProgramPlace:
        """Where the program is."""
        self._place = self._place or ProgramPlace()
        return self._place

    def owner(self, operator: str) -> Owner:
        """The owner of an operator that runs now, on whatever thread."""
        import torch

        here = self.place().here(above=2)
        node = torch._C._current_autograd_node()
        if node is not None:
            forward = self._forward.get(node._sequence_nr(), _NOBODY)
            modules = here.modules or forward.modules
            return Owner(modules, here.line or forward.line, operator)
        if torch.is_grad_enabled() and len(self._forward) < _MOST_FORWARD:
            # The node of this operator was numbered just before.
            number = torch.autograd._get_sequence_nr() - 1
            self._forward.setdefault(number, here)
        return replace(here, operator=operator)

    def _try(self, note: Callable[[], None]) -> None:
        """Whatever fails here is no matter of the program's."""
        try:
            note()
        except Exception as error:
            self.reasons.append(f"{type(error).__name__}: {error}"[:200])

    def _begin(self, graph: Any) -> None:
        import torch

        graph.__dict__.pop(_NUMBER, None)
        nodes = DriverGraph(torch.cuda.current_stream().cuda_stream)
        mode = _mode(self, nodes)
        mode.__enter__()
        graph.__dict__["_traceprobe_mode"] = mode

    def _end(self, graph: Any) -> None:
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        mode = graph.__dict__.pop("_traceprobe_mode", None)
        if mode is None:
            return
        mode.ended = True
        if _get_current_dispatch_mode() is mode:
            mode.__exit__(None, None, None)
        captured: CapturedGraph = mode.captured
        captured.names = mode.nodes.names()
        captured.until(len(captured.names), _NOBODY)
        self._nodes += len(captured.names)
        if mode.failure is not None:
            self.reasons.append(mode.failure)
        elif self._nodes > MOST_NODES:
            self.reasons.append("there are more nodes than are noted")
        else:
            graph.__dict__[_NUMBER] = len(self.graphs)
            self.graphs.append(captured)


def _mode(captures: GraphCaptures, nodes: DriverGraph) -> Any:
    """A mode of the dispatcher that notes which operator adds which nodes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.nodes = nodes
            self.captured = CapturedGraph()
            self.ended = False
            self.failure: str | None = None

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if self.ended or self.failure is not None:
                return func(*args, **(kwargs or {}))
            owner = self._before(func)
            result = func(*args, **(kwargs or {}))
            self._after(owner)
            return result

        def _before(self, func: Any) -> Owner:
            try:
                self.captured.until(nodes.count(), _NOBODY)
                return captures.owner(func._schema.name)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"[:200]
                return _NOBODY

        def _after(self, owner: Owner) -> None:
            try:
                self.captured.until(nodes.count(), owner)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"[:200]

    return Watch()


graph_captures = GraphCaptures()
"""Those of this process."""
