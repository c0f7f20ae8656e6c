"""Is the memory of the device nearly full?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import percent, size
from traceprobe.records.memory import PARTS, Memory, MemoryStep
from traceprobe.verdict.thresholds import FIXED

MOST_NAMED = 3
"""Parts of the peak that the evidence names."""


@rule(
    "memory-peak",
    title="Device memory is nearly full",
    definition="What the allocator reserved and what the process uses outside of it, over the "
    "memory of the device, in the step whose memory was measured. No saving is computed: it is "
    "about what fits, not about time.",
    verify="`torch.cuda.max_memory_reserved()` and `nvidia-smi` before and after.",
    of_gpu=True,
)
def memory_peak(evidence: Evidence) -> Answer:
    """How much of the device a step keeps, and what would lower its peak."""
    memory = evidence.memory
    if memory is None or memory.measured is None:
        reason = memory and memory.not_measured
        return not_applicable(reason or "the recording does not say what memory is used for")
    step = memory.measured
    kept = step.reserved_bytes if memory.used_bytes is None else memory.used_bytes
    if not memory.device_bytes:
        return inconclusive("the memory size of the device is not known")
    share = kept / memory.device_bytes
    full = share >= FIXED.memory_full
    return Answer(
        "warn" if full else "pass",
        [
            f"{size(kept)} of {size(memory.device_bytes)} are in use: {percent(share)}",
            f"at the peak {_largest(step)}",
            ""
            if memory.used_bytes is not None
            else "the CUDA context is not counted: others use the device too",
        ],
        advice=_advice(memory, step, evidence) if full else "",
    )


def _largest(step: MemoryStep) -> str:
    parts = sorted(PARTS, key=lambda part: -getattr(step.parts, part))[:MOST_NAMED]
    amounts = [f"{part.replace('_', ' ')} {size(getattr(step.parts, part))}" for part in parts]
    at = f" in {step.peak_phase}" if step.peak_phase else ""
    return f"{', '.join(amounts)}{at}"


def _advice(memory: Memory, step: MemoryStep, evidence: Evidence) -> str:
    """What lowers the peak as it is; a peak of activations needs other means than one of state."""
    parts = step.parts
    if step.peak_phase == "optimizer" and memory.implementation == "foreach":
        return (
            f"The peak is in the update: the foreach optimizer makes {size(parts.temporary)} of "
            "intermediate results. `fused=True` makes none, and is faster."
        )
    if parts.activations + parts.temporary >= parts.weights + parts.optimizer_state:
        lower = " Run the forward pass under `torch.autocast('cuda', dtype=torch.bfloat16)`."
        return (
            "Split the batch into micro-batches and accumulate gradients; or keep fewer "
            "activations and compute them again in the backward pass (`torch.utils.checkpoint`)."
            + (lower if _takes_bf16(evidence) and _single(evidence) else "")
        )
    return (
        "Weights, gradients and optimizer state take the most, so a smaller batch helps little: "
        "shard them over the ranks (FSDP, `ZeroRedundancyOptimizer`), or use an optimizer that "
        "keeps less."
    )


def _takes_bf16(evidence: Evidence) -> bool:
    """Whether every device is known to compute in bf16."""
    capabilities = [r.device.capability for r in evidence.ranks]
    return bool(capabilities) and all(
        c is not None and int(c.partition(".")[0]) >= FIXED.bf16_capability for c in capabilities
    )


def _single(evidence: Evidence) -> bool:
    """Whether matrices are computed in 32 bits, TF32 included."""
    return evidence.kernel_ms("matmul_fp32", "matmul_tf32") > evidence.kernel_ms("matmul_half")
