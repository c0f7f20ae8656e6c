"""Probes of a program, made by hand."""

from __future__ import annotations

from typing import Any

from traceprobe.records.causal import Causal, Delayed, ProbedRegion, RegionName, Resource, Slope
from traceprobe.verdict.criticality import judge

STEP_MS = 100.0
DELAYS_MS = (0.0, 5.0, 10.0)
DEVICE_BOUND: dict[tuple[RegionName, Resource], float] = {
    ("between", "host"): 0.01,
    ("loader", "workers"): 0.0,
    ("forward", "host"): 0.02,
    ("forward", "device"): 0.99,
    ("backward", "device"): 1.0,
    ("optimizer", "device"): 0.98,
}
HOST_BOUND = {place: 1.0 - value for place, value in DEVICE_BOUND.items()} | {
    ("loader", "workers"): 0.0
}
LOADER_BOUND = dict.fromkeys(DEVICE_BOUND, 0.0) | {("loader", "workers"): 1.0}


def make_region(region: RegionName, resource: Resource, slope: float) -> ProbedRegion:
    """A region whose steps lie on the line."""
    found = Slope(value=slope, low=slope - 0.05, high=slope + 0.05)
    return ProbedRegion(
        region=region,
        resource=resource,
        slope=found,
        judgement=judge(found),
        blocks=[
            Delayed(delay_ms=delay, step_ms=STEP_MS + slope * delay)
            for delay in (DELAYS_MS[region == "collectives" :])
        ],
    )


def make_causal(
    slopes: dict[tuple[RegionName, Resource], float] | None = None, **changes: Any
) -> Causal:
    """Probes with these slopes by region and resource; those of a loop that a GPU bounds."""
    fields: dict[str, Any] = {
        "schema_version": Causal.SCHEMA_VERSION,
        "traceprobe_version": "0.1.0",
        "workload": {"name": "resnet50"},
        "hardware": {"gpu": "NVIDIA H200"},
        "libraries": {"torch": "2.9"},
        "flags": {"allow_tf32": True},
        "ranks": 1,
        "rounds": 5,
        "steps_per_block": 10,
        "workers": 4,
        "step_ms": STEP_MS,
        "hooks_ms": Slope(value=0.01, low=-0.02, high=0.04),
        "regions": [make_region(*key, slope) for key, slope in (slopes or DEVICE_BOUND).items()],
        "absent": {"collectives": "the program has one rank"},
    }
    return Causal(**{**fields, **changes})
