"""Do threads of one process drive all of its GPUs?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, percent
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

SEE = (
    "See `data-parallel` first: of what the threads of `nn.DataParallel` do in a forward pass the "
    "trace has only the launches, and what cuDNN tried for a thread is gone with it."
)
_GRADIENTS = "autograd::engine::evaluate_function: BroadcastBackward"
"""The node of autograd that adds up the gradients of the copies that `nn.DataParallel` makes."""


@rule(
    "data-parallel",
    title="Threads of one process drive all GPUs",
    definition="`nn.DataParallel`, by the gradient of its broadcast: in every step it copies all "
    "parameters to every GPU, launches the forward pass of each from a new thread of the same "
    "Python process, one at a time, gathers results and gradients on one GPU and updates there "
    "alone. The saving is the idle time of `host-overhead`, with pauses and stalls.",
    verify="Start a process for each GPU (`torchrun`) with `DistributedDataParallel`, and time the "
    "loop without a profiler.",
    of_gpu=True,
)
def data_parallel(evidence: Evidence) -> Answer:
    """Idle GPUs of a process that launches for all of them."""
    if not by_threads(evidence):
        return not_applicable("no process copies its parameters to several GPUs in each step")
    gpus = len(evidence.ranks)
    ms = evidence.host_ms()
    share = min(evidence.verdict.shares.get("overhead", 0.0), evidence.share(ms))
    return Answer(
        evidence.grade(share),
        [
            f"one process launches for {counted(gpus, 'GPU')}: `nn.DataParallel`",
            f"overhead takes {percent(share)} of the step",
        ],
        evidence.saving(ms, *HOST_IDLE),
        "Use `DistributedDataParallel` with a process for each GPU (`torchrun --nproc-per-node "
        f"{gpus}`): each launches for its own GPU alone, keeps its parameters and updates them, "
        "and gradients are added up during the backward pass.",
        changes=Changes(
            removed=frozenset({"pauses", "stalls"}),
            speedup={"host": float(gpus)},
            margin=FIXED.usual_margin,
        ),
    )


def by_threads(evidence: Evidence) -> bool:
    """Whether `nn.DataParallel` trains on several GPUs, which are those of one process."""
    alone = len({rank.pid for rank in evidence.ranks}) == 1
    return alone and len(evidence.ranks) > 1 and _GRADIENTS in evidence.operators
