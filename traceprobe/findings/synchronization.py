"""Does the program wait for the GPU where it need not?"""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "synchronization"
RULE = (
    "Blocking calls per step; idle time inside them, and after them until the host is ahead of "
    "the GPU again. Waiting for data is not counted twice. The saving is that idle time."
)
VERIFY = (
    '`torch.cuda.set_sync_debug_mode("warn")` names the lines. After the change '
    "`host.syncs_per_step` is near 0."
)


def check(evidence: Evidence) -> Finding:
    """Blocking calls, and the idle GPU until the host is ahead of it again."""
    title = "Synchronisation drains the device"
    if not evidence.observed("idle_sync"):
        return unanswered(
            ID,
            "inconclusive",
            title,
            "the trace has no CUDA calls",
            "Record the CUDA runtime (`ProfilerActivity.CUDA`, `nsys profile --trace=cuda`).",
        )
    count = sum(r.summary.host.syncs_per_step for r in evidence.ranks) / len(evidence.ranks)
    after = [
        r.summary.host.idle_after_sync_ns / max(r.summary.iterations_used, 1)
        for r in evidence.ranks
    ]
    waited = evidence.exclusive_ms("idle_data_wait")
    ms = max(sum(after) / len(after) / 1e6 - waited, 0.0) + evidence.exclusive_ms("idle_sync")
    ms = min(ms, evidence.exclusive_ms("idle_sync", "idle_host"))
    return Finding(
        id=ID,
        status=evidence.grade(evidence.share(ms)) if count >= 0.5 else "pass",
        title=title,
        saving_ms_per_step=evidence.saving(ms) if count >= 0.5 else None,
        evidence=[
            f"{count:.1f} blocking calls {evidence.per}{_named(evidence)}",
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of idle GPU in them and until "
            "the host is "
            "ahead again",
        ],
        advice=(
            "Keep values on the GPU: no `.item()`, `.cpu()`, `print(loss)` or `if tensor:` in "
            "the step; "
            "log every N steps, and copy with `non_blocking=True`."
        ),
    )


def _named(evidence: Evidence) -> str:
    """The calls by name, of the rank with most of them."""
    found = [r.summary.host.blocking_calls for r in evidence.ranks]
    known = [calls for calls in found if not isinstance(calls, UnsetType)]
    most = max(known, key=lambda calls: sum(calls.values()), default={})
    return ": " + ", ".join(f"{n:.3g} {name}" for name, n in most.items()) if most else ""
