"""What of a result may be passed on: the decision about every field of every record.

A field that is not here is left out of a redacted result, so that a new one is private until
somebody decides otherwise. Numbers are kept by every rule but `DROP`, records inside are gone
through by their own rules; the rule is about texts, also those that are keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from traceprobe.records import (
    ablation,
    base,
    comparison,
    ladder,
    memory,
    peaks,
    replay,
    roofline,
    scaling,
    sweep,
    whatif,
)
from traceprobe.records import diagnosis as doctor
from traceprobe.records import gpus as gpu_records
from traceprobe.records import report as result

if TYPE_CHECKING:
    import msgspec


class Rule(Enum):
    """What becomes of a text."""

    KEEP = "stays, if all its words are traceprobe's own; else its digest"
    NAME = "its digest"
    PHASE = "stays, if it is a phase or class of traceprobe's; else its digest"
    OPTIMIZER = "stays, if it is a class of PyTorch; else its digest"
    SENTENCE = "stays but for words that are neither traceprobe's nor those of public libraries"
    CHECKSUM = "stays, if it is one; else its digest"
    COLUMN = "stays, if it consists of whole numbers; else empty"
    FACTS = "a mapping of what a capture noted: known keys, with numbers and texts of known words"
    DROP = "left out"


def _fields(
    keep: str = "",
    name: str = "",
    phase: str = "",
    optimizer: str = "",
    sentence: str = "",
    checksum: str = "",
    column: str = "",
    facts: str = "",
    drop: str = "",
) -> dict[str, Rule]:
    """Rules by field, from the fields of each rule."""
    given = locals()
    return {field: rule for rule in Rule for field in given[rule.name.lower()].split()}


FIELDS: Mapping[type[msgspec.Struct], Mapping[str, Rule]] = {
    result.Report: _fields(
        keep="schema_version traceprobe_version inputs quality ranks run verdict findings ablation "
        "memory roofline",
        drop="workload",
    ),
    result.Input: _fields(
        keep="format bytes",
        name="name",
        checksum="sha256",
        sentence="dialect producer",
        column="origin_ns base_ns",
    ),
    result.Message: _fields(keep="code", sentence="message"),
    result.ObserverEffect: _fields(keep="profiled_step_ms unprofiled_step_ms ratio"),
    result.LostInput: _fields(name="name", sentence="reason"),
    result.Quality: _fields(
        keep="gpu_ops gpu_ops_linked launches_without_gpu_op events_repaired events_lost "
        "observer_effect warnings damage lost"
    ),
    result.Rank: _fields(
        keep="rank pid device step_marker iterations summary gaps timeline worst input replay"
    ),
    result.DeviceInfo: _fields(
        keep="index kind capability multiprocessors memory_bytes warp_size", sentence="name"
    ),
    result.StepMarker: _fields(keep="kind count confidence", name="pattern"),
    result.Iteration: _fields(
        keep="index start_ns end_ns coverage used collectives launches partition_ns busy_ns "
        "skew_exposed_ns",
        name="label",
        sentence="skip_reason",
    ),
    result.StepTimes: _fields(keep="mean p10 p50 p90"),
    result.Communication: _fields(
        keep="total_ns exposed_ns overlapped_ns overlap_pct skew_exposed_ns all_reduces_per_step "
        "bytes_per_step",
        sentence="sizes",
    ),
    result.CollectiveGroup: _fields(
        keep="operation bytes group_size count count_per_step total_ns exposed_ns overlapped_ns "
        "duration_ns matched transfer_ns skew_ns algbw_gbps busbw_gbps algbw_at_least_gbps "
        "busbw_at_least_gbps"
    ),
    result.HostToDevice: _fields(
        keep="total_ns exposed_ns overlapped_ns overlap_pct bytes gbps pageable_bytes"
    ),
    result.HostActivity: _fields(
        keep="launches_per_step kernels_per_step mean_kernel_us launch_to_start_us_p50 "
        "syncs_per_step idle_after_sync_ns data_wait_inferred_ns phase_kernels",
        sentence="blocking_calls",
    ),
    result.KernelShare: _fields(
        keep="count total_ns mean_ns phase_share tensor_cores", name="name", phase="phase"
    ),
    result.Summary: _fields(
        keep="iterations_used step_ms window_ns partition_ns share busy_ns attributed_share "
        "communication h2d collectives_per_step coverage host kernel_ns top_kernels collectives "
        "collectives_left_out"
    ),
    result.Gap: _fields(
        keep="start_ns end_ns iteration cause", name="before after", sentence="evidence"
    ),
    result.Lane: _fields(keep="name start_ns duration_ns", phase="label detail"),
    result.Timeline: _fields(keep="iteration start_ns duration_ns lanes merged"),
    replay.Replay: _fields(
        keep="iterations latency_ns",
        phase="kinds",
        column="iteration kind stream first_host_ns host_ns duration_ns lag_ns tail_ns "
        "data_wait_ns awaits needs bytes",
    ),
    result.RankGroup: _fields(keep="members median_rank"),
    result.StepMatrix: _fields(keep="ranks iterations_per_bin step_ms", name="labels"),
    result.Overview: _fields(keep="groups worst_rank median_rank detailed_ranks steps"),
    result.Links: _fields(keep="gbps latency_us fit_error messages nvlink_gbps"),
    result.Run: _fields(
        keep="world_size collectives_matched transfer_ns skew_ns straggler_rank straggler_cause "
        "skew_causes overview links"
    ),
    result.Term: _fields(keep="name value", sentence="why"),
    result.Verdict: _fields(
        keep="bound secondary confidence confidence_terms shares thresholds limit skew",
        sentence="headline reasons missing",
    ),
    result.Finding: _fields(
        keep="id status saving_ms_per_step", sentence="title evidence advice rule verify"
    ),
    ablation.Interval: _fields(keep="median low high p10 p90"),
    ablation.Variant: _fields(
        keep="name steps_per_trial trial_ms step_ms samples_per_second tokens_per_second",
        sentence="includes",
    ),
    ablation.Overlap: _fields(keep="serial full parallel position"),
    ablation.Share: _fields(keep="value low high"),
    ablation.AblationVerdict: _fields(
        keep="bound secondary margin shares thresholds", sentence="reasons"
    ),
    ablation.Ablation: _fields(
        keep="schema_version traceprobe_version ranks variants gpu_busy_ms overlap oracle",
        sentence="absent",
        facts="hardware libraries flags",
        drop="workload",
    ),
    memory.MemoryParts: _fields(keep=" ".join(memory.PARTS)),
    memory.MemoryTimeline: _fields(keep="position parts", phase="phase"),
    memory.MemoryStep: _fields(
        keep="peak_bytes parts most timeline reserved_bytes allocated_bytes",
        name="peak_operator",
        phase="peak_phase phases",
    ),
    memory.Memory: _fields(
        keep="implementation measured predicted device_bytes outside_bytes input",
        optimizer="optimizer",
        sentence="not_measured not_predicted",
    ),
    roofline.Peaks: _fields(keep="tflops bandwidth_gbps", sentence="source"),
    roofline.PhaseWork: _fields(
        keep="ms flops bytes math_ms memory_ms floor_ms tflops gbps intensity", phase="phase"
    ),
    roofline.Utilisation: _fields(keep="busy covered occupancy mfu"),
    roofline.Roofline: _fields(
        keep="step_ms unprofiled published measured flops_per_step achieved_tflops mfu hfu phases "
        "kernel_ms math_ms memory_ms rest_ms limit utilisation",
        sentence="device notes",
    ),
    base.Record: _fields(keep="kind schema_version traceprobe_version"),
    roofline.RooflineRecord: _fields(keep="roofline", name="inputs", sentence="headline"),
    peaks.MeasuredPeaks: _fields(
        keep="device_kind torch matrix_side repetitions tflops copy_gbps h2d_gbps",
        sentence="device",
    ),
    comparison.RunSummary: _fields(
        keep="formats world_size steps samples_per_step tokens_per_step basis step_ms "
        "traced_step_ms unprofiled_step_ms samples_per_second tokens_per_second partition_ms "
        "shares bound secondary confidence",
        name="label inputs",
        sentence="devices",
        drop="settings",
    ),
    comparison.Change: _fields(keep="name unit base new delta low high floor real"),
    comparison.KernelChange: _fields(
        keep="state base_ms new_ms base_count new_count", name="name", phase="phase"
    ),
    comparison.Gate: _fields(keep="allowed decision", sentence="reason"),
    comparison.Comparison: _fields(
        keep="kind base new per direction step traced_step classes measures kernels cautions "
        "steps_ms gate",
        sentence="headline explanation",
        drop="settings",
    ),
    ladder.Rung: _fields(
        keep="run speedup total_speedup step classes cautions", sentence="change explanation"
    ),
    ladder.Missing: _fields(name="label", sentence="change reason"),
    ladder.Suggestion: _fields(keep="finding saving_ms_per_step speedup", sentence="title advice"),
    ladder.Ladder: _fields(
        keep="kind per rungs missing suggestions", name="name", sentence="headline limits"
    ),
    scaling.Synchronisation: _fields(
        keep="loop with_ms without_ms overhead with_per_second without_per_second"
    ),
    scaling.ScalingPoint: _fields(
        keep="world_size run step_ms ideal_step_ms per_second ideal_per_second efficiency "
        "efficiency_low efficiency_high loss_ms losses_ms transfer_ms exposed_ms synchronisation"
    ),
    scaling.Fit: _fields(keep="algorithm chosen world_sizes gbps latency_us error between_nodes"),
    scaling.Prediction: _fields(
        keep="world_size sources step_ms low_ms high_ms per_second efficiency transfer_ms "
        "exposed_ms",
        sentence="reason",
    ),
    scaling.HeldOut: _fields(keep="prediction step_ms transfer_ms error transfer_error"),
    scaling.Scaling: _fields(
        keep="kind mode work basis points fits held_out predictions cautions",
        sentence="why_mode headline explanation",
    ),
    gpu_records.Hardware: _fields(
        keep="slice part multiprocessors peaks_tflops bandwidth_gbps matched year",
        sentence="name source",
    ),
    gpu_records.Contender: _fields(
        keep="run hardware peaks rate relative compute_ms data_wait precision ran achieved_tflops "
        "efficiency usd_per_hour usd_per_million",
        sentence="device",
    ),
    gpu_records.PeakFit: _fields(keep="peak devices agreement spread slope r2"),
    gpu_records.GpuComparison: _fields(
        keep="kind per contenders ratios fits explained_by cautions",
        sentence="headline explanation points",
    ),
    whatif.Predicted: _fields(keep="step_ms low_ms high_ms speedup", sentence="changes"),
    whatif.Buckets: _fields(keep="limit_mb bytes before_bytes gbps latency_us fit_error"),
    whatif.Calibration: _fields(keep="played_ms host host_known collectives rest"),
    whatif.WhatIf: _fields(
        keep="kind run now_ms asked alone buckets calibration cautions", sentence="headline"
    ),
    sweep.RungResult: _fields(
        keep="side ranks state run",
        name="name base",
        sentence="change reason",
        drop="arguments environment_digest",
    ),
    sweep.Sweep: _fields(
        keep="kind schema_version traceprobe_version workload backend warmup calibrate active "
        "rungs",
        name="ladder",
    ),
    doctor.Outcome: _fields(keep="id status", sentence="found meaning fix"),
    doctor.Section: _fields(keep="subject checks"),
    doctor.Diagnosis: _fields(keep="schema_version traceprobe_version sections"),
}
"""The table. A record that derives from one of these has its rules, and its own beside them."""


def rule_of(record: type, field: str) -> Rule:
    """The decision about a field of a record: `DROP` where nobody has made one."""
    for ancestor in record.__mro__:
        found = FIELDS.get(ancestor, {}).get(field)
        if found is not None:
            return found
    return Rule.DROP
