"""Which implementations an optimizer has, and what that leaves to do about its cost.

PyTorch implements an optimizer as a loop over the parameters, with operators for lists of tensors
(`foreach`, only on a GPU faster), and for some as one fused kernel. Which have which is in the
documentation of `torch.optim`, as of PyTorch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from traceprobe.records.operator_calls import OperatorPace
from traceprobe.records.rank import Rank
from traceprobe.records.tree import Tree

FUSED_FORM = ("Adagrad", "Adam", "AdamW", "SGD")
"""Optimizers of PyTorch that take `fused`, and `foreach` too."""
_AFTER = " (of Adagrad on a GPU PyTorch has it after 2.11)"
FOREACH_FORM = ("ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Those that take `foreach` alone."""
_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_IS_FUSED = re.compile(r"(?<!un)fused", re.IGNORECASE)
"""PyTorch's, Apex's and a compiler's kernels are called so."""
_IS_FOREACH = re.compile(r"multi_?tensor|foreach", re.IGNORECASE)
_OF_A_GROUP = re.compile(r"aten::(_foreach_addcdiv_|_fused_\w+_)")
"""Operators that Adam and its kind, or a fused optimizer, call once for each group."""
_FEWER = "accumulate gradients over more samples, so that there are fewer updates"


def advice(ranks: Sequence[Rank], *, on_cpu: bool) -> str:
    """What makes the optimizer of some ranks cheaper, by its name and what its kernels are."""
    if is_fused(ranks):
        return (
            f"It is already fused, so its time is that of moving its state: {_FEWER}, or use one "
            "with less state."
        )
    form = better_form(ranks, on_cpu=on_cpu)
    return f"{form}." if optimizers(ranks) == ["LBFGS"] else f"{form}; {_FEWER}."


def better_form(ranks: Sequence[Rank], *, on_cpu: bool) -> str:
    """The same of one that is not fused, without doing less of it; no full stop."""
    names = optimizers(ranks)
    if not names:
        return f"Use `fused=True` (Adam, AdamW, SGD){_or_foreach(ranks, on_cpu)}"
    if any(name in FUSED_FORM for name in names):
        late = _AFTER if "Adagrad" in names and not on_cpu else ""
        return f"Use `fused=True`{late}{_or_foreach(ranks, on_cpu)}"
    name = names[0]
    if name == "LBFGS":
        return (
            "LBFGS has no fused form: reduce `history_size` (each update reads that many vectors) "
            "and `max_iter`; or train with another optimizer"
        )
    if name in FOREACH_FORM and not on_cpu and not is_called(_IS_FOREACH, ranks):
        return f"Use `foreach=True`, since {name} has no fused form"
    if name in FOREACH_FORM:
        return f"{name} has no fused form: compile its step (`torch.compile(opt.step)`)"
    return f"Check whether {name}, or a similar optimizer, has a fused form"


def may_be_fused(ranks: Sequence[Rank]) -> bool:
    """Whether the optimizer is not fused and may be: what is not named may be any."""
    names = optimizers(ranks)
    return not is_fused(ranks) and (
        not names or any(name in (*FUSED_FORM, *FOREACH_FORM) for name in names)
    )


def parameter_groups(called: Mapping[str, OperatorPace]) -> float:
    """Groups of parameters that are updated in a step, one after the other; 0 if nothing tells.

    Parameters of several types in a group count apart.
    """
    each = (pace.per_step for name, pace in called.items() if _OF_A_GROUP.fullmatch(name))
    return max(each, default=0.0)


def optimizers(ranks: Sequence[Rank]) -> list[str]:
    """Names of the optimizers whose steps the trace names, in alphabetical order."""
    ranges = {name for r in ranks if isinstance(r.tree, Tree) for name in r.tree.names}
    return sorted({found[1] for name in ranges if (found := _STEP.fullmatch(name))})


def is_fused(ranks: Sequence[Rank]) -> bool:
    """Whether fused optimizers, by their names, have half of its listed kernels' time or more.

    A program may have one for its model and another for a large table.
    """
    listed = [k for rank in ranks for k in rank.summary.top_kernels if k.phase == "optimizer"]
    fused = sum(kernel.total_ns for kernel in listed if _IS_FUSED.search(kernel.name))
    return fused > 0 and 2 * fused >= sum(kernel.total_ns for kernel in listed)


def is_called(pattern: re.Pattern[str], ranks: Sequence[Rank]) -> bool:
    """Whether one of the optimizer's kernels among those with most time has such a name."""
    return any(
        kernel.phase == "optimizer" and pattern.search(kernel.name)
        for rank in ranks
        for kernel in rank.summary.top_kernels
    )


def _or_foreach(ranks: Sequence[Rank], on_cpu: bool) -> str:
    """The second best, where the optimizer is neither that yet nor on a CPU."""
    return "" if on_cpu or is_called(_IS_FOREACH, ranks) else ", or at least `foreach=True`"
