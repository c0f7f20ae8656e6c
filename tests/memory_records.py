"""Memory of steps, to put into reports."""

from __future__ import annotations

from typing import Any

from traceprobe.records.memory import PARTS, Memory, read

GB = 1 << 30
AT_PEAK = {
    "weights": 1,
    "optimizer_state": 2,
    "gradients": 0,
    "input": 0,
    "activations": 4,
    "temporary": 1,
    "held": 0,
}
"""GiB."""


def make_step(reserved: float = 10.0, **parts: float) -> dict[str, Any]:
    """A step with its peak in the backward pass, halfway through it."""
    at_peak = {part: int(GB * gb) for part, gb in {**AT_PEAK, **parts}.items()}
    lasting = {part: at_peak[part] for part in ("weights", "optimizer_state")}
    rise = [lasting.get(part, 0) for part in PARTS]
    return {
        "peak_bytes": sum(at_peak.values()),
        "peak_phase": "backward",
        "peak_operator": "mm",
        "parts": at_peak,
        "most": {**at_peak, "gradients": GB},
        "phases": {
            "forward": 7 * GB,
            "backward": sum(at_peak.values()),
            "optimizer": sum(lasting.values()) + 2 * GB,
        },
        "timeline": {
            "position": [0.0, 250.0, 500.0, 1000.0],
            "phase": ["", "forward", "backward", "optimizer"],
            "parts": {
                part: [before, before, at_peak[part], before]
                for part, before in zip(PARTS, rise, strict=True)
            },
        },
        "reserved_bytes": int(GB * reserved),
    }


def make_record(**changes: Any) -> dict[str, Any]:
    """What a capture records of a program on a GPU of 16 GiB."""
    measured = {**make_step(11.0, temporary=1.5, held=0.5), "allocated_bytes": 9 * GB}
    return {
        "optimizer": "AdamW",
        "implementation": "foreach",
        "measured": measured,
        "predicted": make_step(),
        "device_bytes": 16 * GB,
        "outside_bytes": GB // 2,
        **changes,
    }


def make_memory(**changes: Any) -> Memory:
    """The same, read."""
    found = read(make_record(**changes))
    assert found is not None
    return found
