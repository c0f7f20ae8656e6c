"""Mistakes that operators give away by being called at all: what nobody else calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from traceprobe.findings.evidence import Evidence
from traceprobe.formatting import significant
from traceprobe.records.operator_calls import OperatorPace
from traceprobe.verdict.thresholds import FIXED


class _Sign(NamedTuple):
    """What calls of an operator say.

    Args:
        names: ends of the names of the operators.
        waits: whether the host waits for the GPU in each.
        per_step: calls, all together, at least.
        host_us, operations: how long a call lasts, and what it launches, at least.
    """

    names: tuple[str, ...]
    advice: str
    waits: bool = False
    per_step: float = FIXED.telling_calls
    host_us: float = 0.0
    operations: float = 0.0

    def shown_by(self, called: Mapping[str, OperatorPace]) -> bool:
        """Whether these operators are called so."""
        own = [
            each.per_step
            for name, each in called.items()
            if name.endswith(self.names)
            and each.host_us >= self.host_us
            and each.operations >= self.operations
        ]
        return bool(own) and sum(own) >= self.per_step


_SIGNS = (
    # One element of a mask at a time is what compiled code never looks up (`torch.vmap` puts its
    # own words before the name).
    _Sign(
        ("ModIndex",),
        "Compile `flex_attention`: call what `torch.compile(flex_attention)` returns, in all "
        "layers. Uncompiled it runs masks and scores operator by operator, and keeps all scores in "
        "memory.",
    ),
    # Autograd looks in each gradient for NaN, and for nothing else by this operator.
    _Sign(
        ("aten::_is_any_true",),
        "Leave out `torch.autograd.set_detect_anomaly`, and `detect_anomaly` of trainers. They "
        "read each gradient for NaN, and note where in the program each operator was called.",
        waits=True,
    ),
    _Sign(
        ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell"),
        "Call `nn.LSTM`, `nn.GRU` or `nn.RNN` with the whole sequence instead of a cell for each "
        "time step: cuDNN runs all of its steps with few launches.",
    ),
    # PyTorch's own cells, where cuDNN would have run the whole sequence.
    _Sign(
        ("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell"),
        "Let cuDNN run `nn.LSTM` and `nn.GRU`: without it PyTorch runs each of their time steps by "
        "itself. Leave `torch.backends.cudnn.enabled` on.",
    ),
    _Sign(
        ("aten::cudnn_convolution", "aten::convolution_backward"),
        "Turn `torch.backends.cudnn.benchmark` off, or pad inputs to a few sizes: cuDNN tries its "
        "algorithms for each size that it has not seen.",
        waits=True,
        per_step=0.0,
        operations=FIXED.tried_operations,
    ),
    _Sign(
        ("aten::_cudnn_attention_forward",),
        "Pad inputs to a few lengths, or choose another kernel of attention "
        "(`torch.nn.attention.sdpa_kernel`): cuDNN compiles its own for each size that it has not "
        "seen.",
        per_step=0.0,
        host_us=FIXED.prepared_us,
    ),
)


_DRAWS = frozenset(
    f"aten::{name}_"
    for name in ("normal", "uniform", "bernoulli", "random", "exponential", "log_normal")
)
_NEW_MEMORY = ("aten::empty", "aten::empty_strided", "aten::resize_")
_DETERMINISTIC = (
    "Leave `torch.use_deterministic_algorithms` off but for runs that have to be repeated to the "
    "bit: it fills all new memory, and takes slower kernels (sorts instead of atomic additions). "
    "Where it has to stay on, set `torch.utils.deterministic.fill_uninitialized_memory` to "
    "`False`."
)


def told_by_operators(evidence: Evidence, *, waits: bool = False) -> str:
    """What to do about the first such mistake; empty where none shows.

    Args:
        waits: of those alone in which the host waits for the GPU.
    """
    shown = (sign for sign in _SIGNS if sign.shown_by(evidence.operators))
    told = next((sign.advice for sign in shown if sign.waits or not waits), "")
    if told or waits:
        return told
    return _DETERMINISTIC if _fills_new_memory(evidence.operators) else ""


def drawn_on_the_host(evidence: Evidence) -> str:
    """That random numbers are drawn on the CPU, where that takes time worth a word; else empty."""
    drawn = [each for name, each in evidence.operators.items() if name in _DRAWS]
    ms = sum(each.per_step * each.host_us for each in drawn if not each.operations) / 1e3
    if evidence.on_cpu or evidence.flag(ms) == "pass":
        return ""
    return (
        "Draw random numbers on the GPU (`torch.randn_like`, `torch.rand(..., device='cuda')`): "
        f"the CPU does it for {significant(ms)} ms {evidence.per}. "
    )


def _fills_new_memory(called: Mapping[str, OperatorPace]) -> bool:
    """Whether all new memory is filled, as with deterministic algorithms, and not only zeros.

    Each tensor that begins without values is then filled (with NaN, to tell reads of it), so that
    there are at least as many such calls beside those of `zero_` as new tensors.
    """
    calls = {name: each.per_step for name, each in called.items()}
    filled = calls.get("aten::fill_", 0.0) - calls.get("aten::zero_", 0.0)
    new = sum(calls.get(name, 0.0) for name in _NEW_MEMORY)
    return filled >= new >= FIXED.telling_calls
