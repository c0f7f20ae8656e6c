"""Mistakes that operators give away by being called at all: what nobody else calls."""

from __future__ import annotations

from typing import NamedTuple

from traceprobe.findings.evidence import Evidence
from traceprobe.verdict.thresholds import FIXED


class _Sign(NamedTuple):
    """What calls of an operator say.

    Args:
        names: ends of the names of the operators.
        waits: whether the host waits for the GPU in each.
    """

    names: tuple[str, ...]
    advice: str
    waits: bool = False


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
)


def told_by_operators(evidence: Evidence, *, waits: bool = False) -> str:
    """What to do about the first such mistake; empty where none shows.

    Args:
        waits: of those alone in which the host waits for the GPU.
    """
    called = evidence.calls_per_step
    for sign in _SIGNS:
        count = sum(per_step for name, per_step in called.items() if name.endswith(sign.names))
        if (sign.waits or not waits) and count >= FIXED.telling_calls:
            return sign.advice
    return ""
