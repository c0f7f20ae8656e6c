"""What a step is made of for scaling: the shares of the verdict, with waiting for ranks apart.

The verdict counts waiting for ranks for what made the late ranks late, since that is what to
change. Scaling asks another question, what more ranks cost: there waiting is a cost of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

from traceprobe.compare.run import Observed
from traceprobe.model.taxonomy import LOSSES, SHARES

Parts = Mapping[str, float | None]

DIGITS = 6
"""Of a ms in a record."""


def is_divided(run: Observed) -> bool:
    """Whether transfer is told from waiting for ranks."""
    run_record = run.report.run
    return run.world_size == 1 or (run_record is not None and run_record.transfer_ns is not None)


def waiting(run: Observed) -> float | None:
    """Share of the step that is waiting for ranks; None where the report does not say."""
    if run.world_size == 1:
        return 0.0
    skew = run.report.verdict.skew
    return None if isinstance(skew, UnsetType) else skew


def parts(run: Observed, step_ms: float, *, divided: bool, apart: bool) -> dict[str, float | None]:
    """The step in `LOSSES`, ms; what is not None sums to it.

    Args:
        divided: whether to tell transfer from the rest of communication.
        apart: whether to take waiting for ranks out of what caused it.
    """
    shares = run.report.verdict.shares
    whole = sum(shares.values())
    own = {name: step_ms * shares[name] / whole for name in SHARES}
    skew = None
    if apart:
        skew = step_ms * (waiting(run) or 0.0) / whole
        run_record = run.report.run
        causes = (run_record and run_record.skew_causes) or {"other": 1.0}
        own = {name: ms - causes.get(name, 0.0) * skew for name, ms in own.items()}
    communication = own.pop("communication")
    first = {
        "transfer": communication if divided else None,
        "skew": skew,
        "communication": None if divided else communication,
    }
    return {name: first[name] if name in first else own[name] for name in LOSSES}


def losses(base: Parts, point: Parts, scale: float, loss_ms: float) -> dict[str, float | None]:
    """Parts of `point` beyond those of `base` times `scale`; even rounded they sum to the loss."""
    lost: dict[str, float | None] = {}
    for name in LOSSES:
        ideal, now = base[name], point[name]
        lost[name] = None if ideal is None or now is None else round(now - ideal * scale, DIGITS)
    known = {name: ms for name, ms in lost.items() if ms is not None}
    largest = max(known, key=lambda name: abs(known[name]))
    rounding = round(loss_ms, DIGITS) - sum(known.values())
    lost[largest] = round(known[largest] + rounding, DIGITS)
    return lost
