"""Does the program wait for the GPU where it need not?"""

from __future__ import annotations

from statistics import fmean

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, rule
from traceprobe.formatting import plain
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED


@rule(
    "synchronization",
    title="Synchronisation keeps the GPU waiting",
    definition="Blocking calls per step; idle time inside them, and after them until the host is "
    "ahead of the GPU again, but no more than the calls have lasted: without them the host would "
    "be earlier by that, and what it does after them takes its time in either case. Waiting for "
    "data is not counted. The saving is that idle time.",
    verify='`torch.cuda.set_sync_debug_mode("warn")` names the lines. After the change '
    "`host.syncs_per_step` is near 0.",
    of_gpu=True,
)
def synchronization(evidence: Evidence) -> Answer:
    """Blocking calls, and the idle GPU until the host is ahead of it again."""
    if not evidence.observed("idle_sync"):
        return inconclusive(
            "the trace has no CUDA calls",
            "Record the CUDA runtime (`ProfilerActivity.CUDA`, `nsys profile --trace=cuda`).",
        )
    count = fmean(r.summary.host.syncs_per_step for r in evidence.ranks)
    cost = fmean(r.summary.host.sync_cost_ns / r.summary.steps for r in evidence.ranks)
    ms = min(cost / 1e6, evidence.exclusive_ms("idle_sync", "idle_host"))
    matters = count >= FIXED.syncs
    return Answer(
        evidence.grade(evidence.share(ms)) if matters else "pass",
        [
            f"{count:.1f} blocking calls {evidence.per}{_calls(evidence)}",
            f"{evidence.amount(ms)} of idle GPU in them and until the host is ahead again, as far "
            "as the calls delayed the host",
        ],
        evidence.saving(ms, "idle_sync", "idle_host") if matters else None,
        "Keep values on the GPU: no `.item()`, `.cpu()`, `print(loss)` or `if tensor:` in the "
        "step; log every N steps, and copy with `non_blocking=True`.",
        evidence.sites("idle_sync"),
        Changes(removed=frozenset({"sync"})),
    )


def _calls(evidence: Evidence) -> str:
    """The calls by name, of the rank with most of them."""
    ranks = [r.summary.host.blocking_calls for r in evidence.ranks]
    known = [calls for calls in ranks if not isinstance(calls, UnsetType)]
    most = max(known, key=lambda calls: sum(calls.values()), default={})
    return ": " + ", ".join(f"{plain(n)} {name}" for name, n in most.items()) if most else ""
