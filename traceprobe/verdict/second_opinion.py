"""Whether what delays did to a program agrees with what its trace says.

A delay shows what a step waits for at the place where it is put, at the beginning of a region. The
verdict names what takes the most time, and the critical path has all of the step. They contradict
each other where the trace holds something to matter that a delay in it does not touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from traceprobe.formatting import percent
from traceprobe.model.taxonomy import PATH_LABELS, SHARE_LABELS
from traceprobe.records.causal import Causal, ProbedRegion
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.report import Verdict
from traceprobe.verdict.agreement import Agreement, named, parts
from traceprobe.verdict.thresholds import FIXED

REGION_LABELS: Mapping[tuple[str, str], str] = {
    ("between", "host"): "host between steps",
    ("loader", "host"): "loader in the process",
    ("loader", "workers"): "loader's workers",
    ("forward", "host"): "forward on the host",
    ("forward", "device"): "forward on the device",
    ("backward", "host"): "backward on the host",
    ("backward", "device"): "backward on the device",
    ("optimizer", "host"): "optimizer on the host",
    ("optimizer", "device"): "optimizer on the device",
    ("collectives", "network"): "collectives",
}
_ON_PATH: Mapping[tuple[str, str], str] = {
    ("loader", "workers"): "data-wait",
    ("loader", "host"): "data-wait",
    ("forward", "device"): "forward",
    ("backward", "device"): "backward",
    ("optimizer", "device"): "optimizer",
    ("collectives", "network"): "communication",
}
"""The part of a critical path that a region is."""


def label(region: ProbedRegion) -> str:
    """A region in words."""
    return REGION_LABELS.get((region.region, region.resource), region.region)


def compare(verdict: Verdict, causal: Causal) -> Agreement:
    """Set the verdict of a trace against the probes of the same program."""
    critical = [region for region in causal.regions if region.judgement in ("critical", "partly")]
    told = f"critical: {_listed(critical)}" if critical else "no region is critical"
    if verdict.bound == "inconclusive":
        return Agreement("unknown", f"{told}; the trace gives no verdict")
    words = named(verdict)
    about = {name: _about(name, causal) for name in parts(verdict)}
    confirmed = [name for name, found in about.items() if any(r in critical for r in found)]
    denied = [
        name
        for name, found in about.items()
        # A delay in the loader does not hold up copies, which are I/O too.
        if name != "io" and found and all(region.judgement == "hidden" for region in found)
    ]
    if len(confirmed) == len(about):
        return Agreement("agree", f"{told}, as the trace says ({words})")
    if confirmed:
        return Agreement("partly", f"{told}; the trace says {words}")
    if denied:
        hidden = _listed([region for name in denied for region in about[name]])
        of = " and ".join(SHARE_LABELS[name] for name in denied)
        return Agreement(
            "disagree", f"{told}; the trace says {words}, but delays in {of} are hidden: {hidden}"
        )
    return Agreement(
        "unknown", f"{told}; the trace says {words}, which no probe confirms or denies"
    )


def contradictions(path: CriticalPath, causal: Causal) -> Iterator[str]:
    """Where the critical path of the trace and the probes cannot both be right."""
    total: dict[str, float] = {}
    for part in path.parts:
        total[part.part] = total.get(part.part, 0.0) + part.ms
    for region in causal.regions:
        part_name = _ON_PATH.get((region.region, region.resource))
        if part_name is None:
            continue
        share = total.get(part_name, 0.0) / path.step_ms if path.step_ms else 0.0
        if region.judgement == "hidden" and share > FIXED.probed_path:
            yield (
                f"{PATH_LABELS[part_name]} is {percent(share)} of the critical path, but a delay "
                f"is hidden: {_listed([region])}"
            )
        elif region.judgement == "critical" and not share:
            yield (
                f"the critical path has no {PATH_LABELS[part_name]}, but a delay is not hidden: "
                f"{_listed([region])}"
            )


def _about(share: str, causal: Causal) -> list[ProbedRegion]:
    """The regions that a share of the step is about."""
    devices = any(region.resource == "device" for region in causal.regions)
    computing = "device" if devices else "host"
    return [
        region
        for region in causal.regions
        if {
            "io": region.region == "loader",
            "communication": region.region == "collectives",
            "compute": region.resource == computing and region.region not in ("loader", "between"),
            "overhead": region.resource == "host" and region.region != "loader" and devices,
        }.get(share, False)
    ]


def _listed(regions: Sequence[ProbedRegion]) -> str:
    return ", ".join(f"{label(region)} {region.slope.value:.2f}" for region in regions)
