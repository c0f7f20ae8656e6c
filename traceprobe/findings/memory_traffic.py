"""Do copies and memsets inside the GPU cost time of their own?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.offloading import KEEP, offloads_activations
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.replay.scenario import Changes


@rule(
    "memory-traffic",
    title="Copies and memsets on the GPU are not overlapped with kernels",
    definition="Time per step in copies inside the device, copies back to the host and memsets, "
    "while no kernel runs. The saving is all of it.",
    verify="`partition_ns.memory` and `partition_ns.d2h` fall after the change, and the step gets "
    "shorter by as much.",
    of_gpu=True,
)
def memory_traffic(evidence: Evidence) -> Answer:
    """Device-to-device and device-to-host copies and memsets during which no kernel runs."""
    if not evidence.observed("memory", "d2h"):
        return not_applicable("no such operations")
    ms = evidence.exclusive_ms("memory", "d2h")
    return Answer(
        evidence.flag(ms),
        [f"{evidence.amount(ms)} while no kernel runs"],
        evidence.saving(ms, "memory", "d2h"),
        _advice(evidence),
        changes=_without(evidence),
    )


def _advice(evidence: Evidence) -> str:
    if evidence.cpu_update_ms:
        return (
            "Gradients are copied to an optimizer on the CPU: copy each as soon as it is there, "
            "from hooks of the backward pass (`register_post_accumulate_grad_hook`), into pinned "
            "memory on a stream of its own."
        )
    if offloads_activations(evidence):
        return KEEP
    return (
        "Avoid needless `.contiguous()`, `.clone()` and `.cpu()`; use "
        "`zero_grad(set_to_none=True)`, and `gradient_as_bucket_view=True` for DDP."
    )


def _without(evidence: Evidence) -> Changes | None:
    """Without copies to the host; those inside the GPU are part of the phases that make them."""
    return Changes(removed=frozenset({"d2h"})) if evidence.busy_ms("d2h") else None
