"""How far kernels use tensor cores and memory, by counters that the profiler sampled."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.records.rank import Rank
from traceprobe.records.roofline import Limit, SampledUnits
from traceprobe.verdict.thresholds import FIXED


def sampled_units(ranks: Sequence[Rank]) -> SampledUnits | None:
    """Means over the time of the kernels of all ranks; None where most of it is not sampled.

    Each phase counts by its exclusive time. A phase that is too short to be sampled, or of which
    one of the units is not known, is left out.
    """
    whole = known = tensor = memory = 0.0
    for rank in ranks:
        summary = rank.summary
        times = {name: summary.partition_ns.get(name) or 0 for name in COMPUTE_PHASES}
        whole += sum(times.values())
        for phase in summary.gpu_metrics.phases if summary.gpu_metrics else ():
            if phase.phase in times and phase.tensor_active is not None and phase.dram is not None:
                known += times[phase.phase]
                tensor += times[phase.phase] * phase.tensor_active
                memory += times[phase.phase] * phase.dram
    if not known or known < FIXED.explained * whole:
        return None
    return SampledUnits(tensor_active=round(tensor / known, 4), dram=round(memory / known, 4))


def limit_of_units(units: SampledUnits | None) -> Limit | None:
    """The unit that is busy for most of the time; None where neither is.

    Math on other units than tensor cores is not sampled, so that two idle units tell nothing.
    """
    if units is None or max(units.tensor_active, units.dram) < FIXED.explained:
        return None
    return "math" if units.tensor_active >= units.dram else "memory"
