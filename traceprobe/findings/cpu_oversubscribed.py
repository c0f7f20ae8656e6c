"""Does the program start more threads than it has cores for?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.recorded_cores import RecordedCores, recorded_cores
from traceprobe.findings.rule import Answer, not_applicable, rule

WAITING = (*HOST_IDLE, "idle_data_wait")
"""What is longer, where the device waits for a loop that has no core."""


@rule(
    "cpu-oversubscribed",
    title="The program has more busy threads than cores",
    definition="Read by `traceprobe profile` in steps without the profiler: for how much of the "
    "time the thread of the loop could run and had no core, on the worst rank. Not where other "
    "programs used at least half as many cores as threads of the process waited for. On a GPU no "
    "more than the idle time of late launches and of waiting for data, which is the saving; none "
    "is given on a CPU, where threads of a pool that lack a core also hold up the others.",
    verify="`pidstat -t -p PID 1` (column %wait) shows threads that wait for a core; time the loop "
    "with fewer threads.",
)
def cpu_oversubscribed(evidence: Evidence) -> Answer:
    """Threads of the program wait for each other's cores."""
    each = {rank: recorded_cores(blocks) for rank, blocks in evidence.blocks.items()}
    known = {rank: cores for rank, cores in each.items() if cores is not None}
    if not known:
        return not_applicable("CPU use was not recorded")
    rank, worst = max(known.items(), key=lambda item: item[1].loop_waited)
    if worst.shared:
        return Answer("pass", ["other programs have the cores"])
    on = f"rank {rank}: " if len(evidence.ranks) > 1 else ""
    if evidence.on_cpu:
        status, saving = evidence.grade(worst.loop_waited), None
    else:
        step_ms = evidence.corrected_step_ms()
        ms = min(worst.loop_waited * step_ms, evidence.exclusive_ms(*WAITING))
        status, saving = evidence.grade(ms / step_ms if step_ms else 0.0), ms
    return Answer(
        status,
        [f"{on}{worst.sentence}", f"it has {worst.cores} cores"],
        None if saving is None else evidence.saving(saving, *WAITING),
        "" if status == "pass" else _advice(worst),
    )


def _advice(found: RecordedCores) -> str:
    return (
        f"Let ranks × threads + loader workers be at most the {found.cores} cores: "
        "`OMP_NUM_THREADS` or `torch.set_num_threads` for each process, `num_workers` for its "
        "loaders; or give the program more cores (a container's CPU limit, a job's CPUs per task)."
    )
