"""Backward work for gradients that no update uses.

The backward pass gives a parameter its gradient, or adds to the one that it has. An optimizer's
`zero_grad()` takes away those of its own parameters. Hence a parameter whose gradient is added to
in the first pass after an update, where others begin anew, is in no optimizer that was zeroed, or
belongs to another network, whose gradients are zeroed before its own pass: nobody uses the sum.
So are the sums of all passes that follow, up to one which begins as many gradients anew before any
update, as that of a training step does after the passes of an attack on its inputs.
Gradients that are set to zero instead of taken away are added to as well: of a program that sets
anything to zero between its passes nothing is told, apart from the few that an attack clears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s
from traceprobe.model.events import rows_named
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.backward_passes import NODE, Launched, Nodes, launched, program_operators
from traceprobe.timeline.process_timeline import ProcessTimeline

_ACCUMULATES = f"{NODE}torch::autograd::AccumulateGrad"
_CAST = f"{NODE}ToCopyBackward"
_ADDS, _BEGINS = "aten::add_", "aten::detach"
"""What accumulating a gradient calls: one that begins anew is detached, and a hook may add it to
something else then."""
_ZEROES, _ZEROES_MANY = "aten::zero_", "aten::_foreach_zero_"
_FEW = 0.2
"""Gradients of inputs in an attack, over those of weights, at most; they are begun anew, or set to
zero behind each pass."""
_OF_WEIGHTS = "wgrad"
"""What libraries call a convolution's product for its weights; the other is `dgrad`."""
_RUN = 3
"""Products that a network has at least of which another run is told."""
_NEAR = 6
"""Nodes of views and casts between a product and the gradient that it is for, at most."""


class UnusedGradients(msgspec.Struct, frozen=True):
    """Kernels of backward passes that compute such gradients.

    Args:
        ns: sum of their durations. kernels: how many. gradients: how many were added to.
            iterations: in how many they were looked for.
    """

    ns: int
    kernels: int
    gradients: int
    iterations: int


def unused_gradients(
    ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> UnusedGradients | None:
    """Those of one device; None without any.

    Args:
        ops: of the process and of judged iterations, with columns kind, phase, thread, name,
            launch_t0, t0, t1.
        names: of the trace.
    """
    marker = process.marker
    if marker is None or ops.is_empty():
        return None
    adding = rows_named(process.operators, names, lambda name: name == _ACCUMULATES)
    if adding.is_empty():
        return None
    program = program_operators(ops, process.operators, names)
    if not rows_named(program, names, lambda name: name == _ZEROES_MANY).is_empty():
        return None
    judged = np.unique(marker.iteration_at(ops["launch_t0"].to_numpy()))
    judged = judged[judged != UNKNOWN]
    updates = ops.filter(pl.col("phase") == int(Phase.OPTIMIZER))["launch_t0"].to_numpy()
    fresh = np.sort(np.concatenate([updates, marker.starts]))
    count, wasted, thrown_away = 0, [], False
    for thread in adding["thread"].unique().to_list():
        of_thread = pl.col("thread") == thread
        gradients = _Gradients(process.operators.filter(of_thread), names)
        if not gradients.adds.any():
            continue
        kernels = _Kernels(ops.filter(of_thread), gradients, names)
        for passes in gradients.between_updates(program, fresh):
            if marker.iteration_at(gradients.nodes.t0[[passes[0][0]]])[0] not in judged:
                continue
            unused = gradients.unused(passes)
            thrown_away |= len(unused) > 1
            for first, end in unused:
                count += int(gradients.adds[first:end].sum())
                wasted.append(kernels.wasted(first, end))
    zeroed = rows_named(program, names, lambda name: name == _ZEROES)
    cleared = np.isin(marker.iteration_at(zeroed["t0"].to_numpy()), judged).sum()
    if not count or cleared > thrown_away * _FEW * count:
        return None
    ns, number = (sum(each) for each in zip(*wasted, strict=True))
    return UnusedGradients(round(ns), round(number), count, len(judged))


class _Gradients:
    """What the nodes that one thread ran do to gradients.

    Attributes:
        casts: which nodes cast one. anew, adds: which begin one, or add to one.
    """

    def __init__(self, operators: pl.DataFrame, names: Sequence[str]) -> None:
        self.nodes = Nodes(operators, names)
        self.casts = self.nodes.holding(_CAST)
        accumulates = self.nodes.holding(_ACCUMULATES)
        self.anew: Bools = accumulates & self.nodes.holding(_BEGINS)
        self.adds: Bools = accumulates & ~self.anew & self.nodes.holding(_ADDS)

    def between_updates(
        self, program: pl.DataFrame, fresh: Int64s
    ) -> Iterator[list[tuple[int, int]]]:
        """Nodes (first, end) of passes with gradients; those without an update between together.

        Args:
            fresh: ascending times of updates.
        """
        group: list[tuple[int, int]] = []
        for first, end in self.nodes.passes(program):
            if not (self.adds | self.anew)[first:end].any():
                continue
            before = int(self.nodes.t1[group[-1][1] - 1]) if group else np.iinfo(np.int64).min
            last, now = np.searchsorted(fresh, [before, self.nodes.t0[first]]).tolist()
            if now > last and group:
                yield group
                group = []
            group.append((first, end))
        if group:
            yield group

    def unused(self, passes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of such passes that add to gradients which nobody uses.

        They are the first, where it adds to some and begins others anew, and those after it, as far
        as one follows that begins as many anew. These begin but few themselves, as that of an
        input: what a network begins in one pass and adds to in the next is used.
        """
        added = [int(self.adds[first:end].sum()) for first, end in passes]
        begun = [int(self.anew[first:end].sum()) for first, end in passes]
        if not added[0] or not begun[0]:
            return []
        until = next((k for k, new in enumerate(begun) if k and new >= added[0]), 1)
        if max(begun[:until]) > _FEW * added[0]:
            until = 1
        return [each for each, adds in zip(passes[:until], added, strict=False) if adds]


class _Kernels:
    """Kernels that the nodes of one thread launched: all, and products for weights."""

    def __init__(self, ops: pl.DataFrame, gradients: _Gradients, names: Sequence[str]) -> None:
        def of(*words: str) -> Launched:
            def wanted(name: str) -> bool:
                return multiplies(name) and all(word in name.lower() for word in words)

            return launched(ops, gradients.nodes, names, wanted)

        self._gradients = gradients
        self._all = launched(ops, gradients.nodes, names, lambda _: True)
        self._products = products = of()
        named = of(_OF_WEIGHTS)
        # Of several products without a word one half is for what the node was given.
        part = np.where(products.kernels > 1, 0.5, 1.0)
        self._of_weights = Launched(
            *(
                np.where(named.kernels > 0, of_names, part * of_all)
                for of_names, of_all in zip(named, products, strict=True)
            )
        )

    def wasted(self, first: int, end: int) -> tuple[float, float]:
        """Time, ns, and number of those of a pass that are for gradients which it adds to.

        Behind the last gradient that begins anew all of them are. Before it, and where none does,
        these are what adds, the cast of a gradient that is added, and what computes it; and all of
        a run of the same network whose gradients wait for them.
        """
        gradients = self._gradients
        adds = np.flatnonzero(gradients.adds[first:end]) + first
        begun = np.flatnonzero(gradients.anew[first:end])
        last = int(begun[-1]) + first if len(begun) else end
        whole, products = [*range(last + 1, int(adds[-1]) + 1)], []
        for node in adds[adds < last].tolist():
            whole.append(node)
            for before in range(node - 1, max(node - _NEAR, first) - 1, -1):
                if gradients.adds[before] or gradients.anew[before]:
                    break
                if before == node - 1 and gradients.casts[before]:
                    whole.append(before)
                if self._of_weights.kernels[before]:
                    products.append(before)
                    break
        whole += self._waiting(first, products)
        each = zip(self._all, self._of_weights, strict=True)
        ns, kernels = (float(a[whole].sum() + b[products].sum()) for a, b in each)
        return ns, kernels

    def _waiting(self, first: int, added: Sequence[int]) -> range:
        """Nodes of another run of the network, whose gradients wait for those that are added.

        A loss of features runs a network on what was made and on what was wanted. Autograd goes
        back through the second run first, down to its input, which needs no gradient: its last
        product is for weights alone, and all others are those of the first run.

        Args:
            added: nodes with the products for weights of which the gradients are added.
        """
        if len(added) < _RUN:
            return range(0)
        before = np.flatnonzero(self._of_weights.kernels[first : added[0]]) + first
        anew = self._gradients.anew[first : added[-1]]
        if anew.any() or len(before) != len(added):
            return range(0)
        other, own = self._products.kernels[before], self._products.kernels[list(added)]
        ends = (other[:-1] == own[:-1]).all() and other[-1] < own[-1]
        return range(int(before[0]), int(before[-1]) + 1) if ends else range(0)
