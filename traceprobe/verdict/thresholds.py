"""Every number that a verdict or a finding depends on, with its source.

A caller may change `Thresholds` (`Options.thresholds`), and a report prints them. Changing one of
`FIXED` would change what a finding means. `traceprobe analyze --thresholds` prints both. A source
that begins with "chosen" is a judgement, not a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from traceprobe.model.accounting import (
    BATCH_BYTES,
    CLOCK_CHANGED,
    CLOCK_KERNELS,
    CLOCK_LONG_NS,
    CLOCK_SHARE,
    ENDS_TOGETHER,
    FEW_LATE,
    FEWEST_ALIGNED,
    FEWEST_STEADY,
    LONE_WAIT,
    LONG_INTERVALS,
    LONG_ITERATION,
    LONG_NS,
    MIN_COVERAGE,
    MOST_LONG,
    RECURS,
    SCALAR_BYTES,
    SET_UP_MEDIANS,
    SET_UP_NS,
    STRAGGLER,
    WARM_UP,
)

STEP = "share of the step"
POINTS = "confidence"
XPROF = "xprof's input-pipeline analyser"
SIMULATED = "simulated captures of 6 to 40 steps, docs/definitions.md#loader-queue"


def _number(value: float, unit: str, meaning: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning, "source": source})


@dataclass(frozen=True)
class Thresholds:
    """Numbers of the verdict that a caller may change; shares are fractions of the used windows."""

    bound: float = _number(0.20, STEP, "a cause is the bound", XPROF)
    notable: float = _number(0.05, STEP, "a cause is worth a warning", XPROF)
    mixed: float = _number(
        0.15, STEP, "each of two causes is large enough to be mixed", "chosen: near `bound`"
    )
    mixed_margin: float = _number(
        0.05, STEP, "two causes are about equal", "chosen: `notable`, as their difference"
    )
    whole_capture: float = _number(
        0.50, "share of the capture", "the bound without step markers", "chosen: a majority"
    )
    unexplained: float = _number(
        0.30, STEP, "unexplained time allows no verdict", "chosen: more than makes a bound"
    )
    coverage: float = _number(
        0.90,
        "share of launches",
        "launches with a GPU row for a verdict",
        "chosen: what is lost then can hide half of `bound`",
    )
    min_iterations: int = _number(
        3, "iterations", "used iterations for a verdict", "chosen: the fewest that show an outlier"
    )
    min_gpu_ops: int = _number(
        100, "GPU ops", "GPU ops for a verdict without three steps", "chosen: less than any step"
    )
    low_confidence: float = _number(
        0.30, POINTS, "the most where the profiler may be the overhead", "chosen: well below a half"
    )
    drift_quiet: float = _number(
        0.25, "ratio", "data wait before the loader's queue ran dry, over that after", SIMULATED
    )
    drift_errors: float = _number(
        4.0, "standard errors", "rise of the data wait that is no chance", SIMULATED
    )

    def as_dict(self) -> dict[str, float]:
        """Name to value, as in the report."""
        return {name: float(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Constants:
    """Numbers that no option changes, grouped by the part of the judgement that uses them."""

    # Which iterations and ranks count. The accounting itself applies these.
    iteration_coverage: float = _number(
        MIN_COVERAGE,
        "share of launches",
        "launches with a GPU row for an iteration to be used",
        "chosen: whole iterations of the public traces have all of them",
    )
    warm_up: float = _number(
        WARM_UP,
        "medians",
        "a first iteration that lasts longer is warm-up",
        "chosen: compiling and allocating take many times a step",
    )
    straggler: float = _number(
        STRAGGLER,
        "share of the waiting",
        "a rank that came last for so much is the straggler",
        "derived: of two ranks that take turns each has half",
    )
    few_late: float = _number(
        FEW_LATE,
        "share of the ranks",
        "as many may together be those that are waited for",
        "derived: of ranks that take turns, twice as many have `straggler`",
    )
    ends_together: float = _number(
        ENDS_TOGETHER,
        "intervals between collectives",
        "ends of collectives that are the same ones on two ranks deviate less",
        "chosen: a half would be as near to the next one",
    )
    fewest_aligned: int = _number(
        FEWEST_ALIGNED,
        "collectives",
        "two captures without steps are aligned by at least so many",
        "chosen: fewer meet by chance",
    )
    apart_s: float = _number(
        5.0,
        "s",
        "between two captures, beyond the length of the longer: they are not of the same time",
        "chosen: ranks begin with the same step, and clocks of machines differ by less",
    )
    straggling: float = _number(
        0.01, STEP, "waiting for other ranks is worth a sentence", "HTA's straggler candidates"
    )

    clock_changed: float = _number(
        CLOCK_CHANGED,
        "ratio",
        "the same kernels take so much longer when the GPU's speed has changed",
        "steady public captures stay below 1.02",
    )
    clock_long_us: float = _number(
        CLOCK_LONG_NS / 1e3, "µs", "the shortest kernel that tells", "`short_kernel_us`"
    )
    clock_kernels: int = _number(
        CLOCK_KERNELS, "kernels", "of an iteration that tell", "chosen: no few noisy kernels decide"
    )
    clock_share: float = _number(
        CLOCK_SHARE, "share of kernel time", "that they make up", "a majority"
    )
    clock_brief_ms: float = _number(
        500.0,
        "ms",
        "the shortest time whose mean clock is known well",
        "measured, H200: NVML tells another clock each 100 ms; at the power limit they differ by "
        "12 %",
    )
    clock_brief_changed: float = _number(
        1.25, "ratio", "between clocks of shorter times", "twice what differs at the power limit"
    )
    clock_others_percent: float = _number(
        5.0, "% of the time", "that other processes use the GPU", "chosen: as much of a step"
    )
    fewest_steady: int = _number(
        FEWEST_STEADY, "iterations", "left where others are left out", "`min_iterations`"
    )

    # Captures that show no training
    cold_start: float = _number(
        0.20, STEP, "calls of set-up allow no verdict", "chosen: `bound`, which they could fake"
    )
    set_up_us: float = _number(
        SET_UP_NS / 1e3, "µs", "the shortest call of set-up", "loading a kernel's code: 0.3 ms"
    )
    set_up_medians: float = _number(
        SET_UP_MEDIANS,
        "medians",
        "a call of set-up lasts so many calls of its name",
        "chosen: no call in a warm loop of the public traces does",
    )

    long_iteration: float = _number(
        LONG_ITERATION,
        "medians",
        "an iteration that does more than the others lasts",
        "chosen: less is noise",
    )
    most_long: int = _number(
        MOST_LONG, "iterations", "one in so many may be long", "chosen: else it is usual"
    )
    lone_wait: float = _number(
        LONE_WAIT, "medians", "a single wait for data is no loader's burst", "chosen: many workers"
    )

    # What the host's silence means. The accounting itself applies these.
    long_ms: float = _number(
        LONG_NS / 1e6, "ms", "a silence of the host needs a cause", "docs/definitions.md"
    )
    long_intervals: int = _number(
        LONG_INTERVALS, "intervals between launches", "and it lasts so many", "docs/definitions.md"
    )
    batch_bytes: int = _number(
        BATCH_BYTES, "bytes", "a copy to the device brings input", "chosen: less is a scalar"
    )
    scalar_bytes: int = _number(
        SCALAR_BYTES, "bytes", "a copy to the host is a loss or a flag", "chosen: eight numbers"
    )
    recurs: int = _number(
        RECURS, "copies", "of one size make it that of a batch", "chosen: one in each iteration"
    )

    # Confidence
    confidence_base: float = _number(0.5, POINTS, "any bound", "chosen: as likely as not")
    confidence_margin: float = _number(
        0.45, POINTS, "a bound far from every threshold adds", "chosen: 0.95 at most, never certain"
    )
    full_margin: float = _number(
        0.15, STEP, "far from every threshold", "chosen: three times `notable`"
    )
    penalty_inferred: float = _number(
        0.2, POINTS, "all of the data wait is inferred", "chosen: takes a clear verdict below 0.8"
    )
    penalty_single_rank: float = _number(
        0.2, POINTS, "communication judged from one rank", "chosen: as for an inferred data wait"
    )
    penalty_unattributed: float = _number(
        0.2, POINTS, "kernels without a phase, at most", "chosen: as for an inferred data wait"
    )
    penalty_no_marker: float = _number(
        0.25, POINTS, "no step marker", "chosen: more than any single doubt about the steps"
    )
    penalty_coverage: float = _number(
        0.2,
        POINTS,
        "no launch has a GPU row, without step markers",
        "chosen: as for an inferred data wait",
    )
    penalty_marker: float = _number(
        0.3,
        POINTS,
        "a step marker that is surely wrong",
        "chosen: the least sure kind of marker, 0.60, costs 0.1",
    )
    sure_marker: float = _number(
        0.95, POINTS, "a marker that costs nothing", "that of numbered ranges, as ProfilerStep#"
    )
    penalty_drained: float = _number(
        0.1,
        POINTS,
        "only the iterations after a drained queue count",
        "chosen: half of an inferred data wait",
    )
    penalty_few: float = _number(0.05, POINTS, "few iterations", "chosen: a nudge")
    most_of_few: float = _number(
        0.5, POINTS, "the most with one or two iterations", "chosen: they show no outlier"
    )
    few_iterations: int = _number(
        8, "iterations", "fewer are few", "the default of `traceprobe profile --active`"
    )
    sure: float = _number(
        0.8, POINTS, "a confidence is high", "docs/validation/calibration.md: 95 % are right"
    )
    fairly_sure: float = _number(
        0.5, POINTS, "a confidence is medium", "docs/validation/calibration.md: 80 % are right"
    )
    penalty_split: float = _number(
        0.1, POINTS, "one rank split what the profiler left", "chosen: half of a single rank's"
    )

    penalty_damage: float = _number(
        0.05, POINTS, "a warning of missing or wrong rows", "chosen: as for few iterations"
    )
    penalty_damage_most: float = _number(
        0.2, POINTS, "all of them, at most", "chosen: as for an inferred data wait"
    )
    penalty_calibration: float = _number(
        0.1,
        POINTS,
        "the unprofiled step is in doubt, or longer than the profiled one by `distortion`",
        "chosen: half of a single rank's",
    )

    # Correction for the profiler, and the sentences about it
    misfit: float = _number(
        0.02,
        STEP,
        "work that does not fit into the unprofiled step is reported",
        "chosen: its noise",
    )
    implausible_ratio: float = _number(
        20.0, "ratio", "no profiler makes a step so much longer or shorter", "chosen: stacks make 5"
    )
    taken_out: float = _number(
        0.005,
        STEP,
        "time taken out as the profiler's is reported",
        "chosen: two digits of a per cent",
    )
    same_pace: float = _number(
        1.05,
        "ratio",
        "steps without a profiler, before and after the profiled ones, are of one pace",
        "`notable`; a recording makes its blocks again from there on",
    )
    distortion: float = _number(
        1.1, "ratio", "a profiled step so much longer is distorted", "PyTorch's issues: 10 to 20 %"
    )
    flush_ms: float = _number(
        0.005, "ms", "idle under the profiler's own rows is reported", "rounds to 0.01 ms"
    )
    reported_idle: float = _number(0.05, STEP, "idle time is reported", "`notable`")
    reported_part: float = _number(
        0.01, STEP, "a part of the idle time is reported", "chosen: less is rounding"
    )
    reported_cause: float = _number(
        0.005, "share of the waiting", "a cause of waiting is reported", "rounds to 1 %"
    )
    mostly_inferred: float = _number(
        0.5, "share of the data wait", "it lies between the steps", "a majority"
    )

    # Loader queue
    drift_side: int = _number(
        3, "iterations", "each side of a change; also rounds of the loader after it", SIMULATED
    )
    drift_blocks: int = _number(
        2, "rounds", "rounds of the loader before a change", "two batches a worker, the default"
    )
    drift_longer: float = _number(
        0.5, "share of the rise", "the step gets longer by so much of it", SIMULATED
    )

    # Roofline, hardware and links
    explained: float = _number(
        0.5, "share of kernel time", "math or memory explains the kernels", "a majority"
    )
    run_precision: float = _number(
        0.5, "share of matrix time", "a precision is that of the run", "a majority"
    )
    message_spread: float = _number(
        4,
        "ratio",
        "sizes of messages that tell latency from bandwidth",
        "chosen: closer sizes cannot tell the two apart",
    )
    end_stage: float = _number(
        1.5,
        "ratio",
        "messages over the fewest of any rank, below which a stage is at an end of its pipeline",
        "derived: between them a stage has twice as many",
    )
    bubble_excess: float = _number(
        1.25, "ratio", "a bubble over its ideal that is too long", "chosen: a quarter more"
    )
    mostly_bubble: float = _number(
        0.5, "share of communication", "communication is mostly pipeline bubble", "a majority"
    )
    gpu_memory_least: float = _number(
        0.93, "ratio", "reported over printed memory, at least", "less ECC and the driver's part"
    )
    gpu_memory_most: float = _number(
        1.09, "ratio", "reported over printed memory, at most", "GiB against GB is 1.074"
    )
    gpu_slice_memory: float = _number(
        1.06, "ratio", "reported over printed memory of the whole of a MIG slice", "as above"
    )

    # Ablation
    overlap_contrast: float = _number(
        0.1, "share of throughput", "serial and parallel are apart", "chosen: noise otherwise"
    )
    disturbed: float = _number(
        0.95, "ratio", "full over synthetic step that is a disturbance", "chosen: `notable` faster"
    )

    # Probes
    probe_interval: float = _number(
        0.95, "probability", "a slope is inside its interval", "as of an ablation"
    )
    criticality: float = _number(
        0.5, "slope", "a region is critical above, hidden below", "a majority of the delay"
    )
    criticality_hidden: float = _number(
        0.2, "slope", "less is as good as hidden, where more than chance", "chosen: `bound`"
    )
    criticality_whole: float = _number(
        0.8, "slope", "more is as good as critical", "derived: 1 - `criticality_hidden`"
    )
    probed_path: float = _number(
        0.2, STEP, "of a critical path, where a hidden region contradicts it", "chosen: `bound`"
    )

    # Findings
    loader_samples: int = _number(
        20, "samples", "enough to say which lines make a batch", "standard error of a half: 0.11"
    )
    loader_looks: int = _number(
        8,
        "samples",
        "enough to say which line of a loader is first",
        "three quarters of a batch are first in 97 % of eight looks (binomial)",
    )
    loader_part: float = _number(
        0.05, "share of a batch", "a function that makes it is named", "`notable`"
    )
    loader_parts: int = _number(3, "functions", "named, of any number", "chosen: as fixes")
    loader_idle: float = _number(
        0.5, "share of the time", "workers below are mostly idle", "a majority"
    )
    filling: float = _number(
        0.1, "share of what is extra", "what long iterations do more is reported", "chosen: a tenth"
    )
    softmax_passes: float = _number(
        6 / 5,
        "ratio",
        "passes over attention's scores by the products, over those by softmax",
        "products: 1 write, 1 read; 1 write, 3 reads. Softmax: 2 and 3",
    )
    softmax_around: float = _number(
        19 / 5,
        "ratio",
        "passes over attention's scores by element-wise kernels, over those by softmax",
        "scale 2 and 2, mask 3 and 2, dropout 3 and 3, cast 2 and 2. Softmax: 2 and 3",
    )
    barely_overlapped: float = _number(
        5.0, "%", "communication and computation take turns", "`notable`"
    )
    small_message: float = _number(
        1e6, "bytes", "its start costs more than its bytes", "chosen: on most links"
    )
    bus_message: float = _number(
        16e6, "bytes", "a message that shows the speed of links", "chosen: below, latency counts"
    )
    low_bandwidth: float = _number(
        0.15,
        "share of NVLink",
        "collectives that do not go over NVLink reach less",
        "PCIe 5.0 has 64 GB/s, 0.14 of Hopper's NVLink; over it 0.5 and more was measured",
    )
    count_rounding: float = _number(
        1e-3, "messages per step", "counts of messages differ", "rounding of the means"
    )
    mostly_copied: float = _number(
        0.5, "share", "copies are mostly pageable, or mostly hidden", "a majority"
    )
    pageable_bytes: int = _number(
        1 << 20, "bytes per step", "pageable copies matter", "scalars are pageable everywhere"
    )
    tf32_products: int = _number(3, "products", "in TF32 that give one in fp32", "3xTF32, CUTLASS")
    halved_operands: float = _number(
        0.5, "ratio", "time of other kernels in 16 bits", "their operands have half the size"
    )
    memory_full: float = _number(
        0.90, "share of the device", "memory is nearly full", "PyTorch's TensorBoard plugin"
    )
    bf16_capability: int = _number(8, "compute capability", "GPUs with bf16", "NVIDIA: Ampere")
    memory_slack: float = _number(
        0.20, "share of what is reserved", "memory not in use matters", "chosen: `bound`"
    )
    memory_crowded: float = _number(
        0.50, "share of the device", "reserved, for slack to matter", "chosen: else it is free"
    )
    optimizer_launches: int = _number(
        20, "kernels per step", "many for an optimizer", "several times a fused one's of 100 M"
    )
    optimizer_worth: float = _number(
        0.01, STEP, "a fused optimizer is worth it", "chosen: it takes one word"
    )
    fused_parameters: int = _number(
        320 * 65536, "parameters", "of a launch of the fused Adam", "PyTorch's multi_tensor_apply"
    )
    fused_tensors: int = _number(
        36, "tensors", "of a launch of the fused Adam", "PyTorch's multi_tensor_apply"
    )
    headroom_least: float = _number(
        0.001, STEP, "a floor says anything about a step", "chosen: less is as good as none"
    )
    headroom_counted: float = _number(
        0.5,
        "share of the operations",
        "no program leaves out, where only their sum is known",
        "derived: a causal mask hides half of the scores",
    )
    headroom_peak: float = _number(
        1.25,
        "ratio",
        "nothing is faster than the measured peak times this",
        "chosen: other sizes and data than 8192 x 8192 random numbers are faster",
    )
    attributed: float = _number(
        0.98,
        "share of kernel time",
        "enough has a phase",
        "public traces with three ranges reach it",
    )
    short_kernel_us: float = _number(
        10.0, "µs", "a kernel is short", "about what a launch costs the host; nsys-ai"
    )
    many_launches: float = _number(
        500.0, "launches per step", "many", "chosen: 5 ms of the host at 10 µs each"
    )
    syncs: float = _number(
        0.5, "calls per step", "blocking calls matter", "chosen: more than one in two steps"
    )
    fp32_reached: float = _number(
        0.5,
        "share of the peak",
        "a matrix product in fp32 reaches",
        "chosen: well below the 0.76 measured on an H200, docs/validation/hardware.md",
    )
    unaligned_kept: float = _number(
        1 / 8, "ratio", "time of an aligned matrix kernel", "16 bytes are read at a time, not 2"
    )
    # What a change usually gives of what it can give at most, for predictions
    most_faster: float = _number(
        100.0, "ratio", "no change makes kernels faster by more", "chosen: above all of them"
    )
    tf32_usual: float = _number(
        0.77,
        "share of the saving",
        "TF32 gives",
        "docs/validation: 0.73 of `unet-fp32`, 0.81 of `gpt2-fp32`",
    )
    half_usual: float = _number(
        0.88,
        "share of the saving",
        "16 bits give",
        "docs/validation: 0.91 of `unet-device`, 0.84 of `gpt2-fp32`, 0.90 of `gpt2-tf32`",
    )
    fusion_usual: float = _number(
        0.55,
        "share of the saving",
        "a compiler's fusion gives",
        "docs/validation: 0.84 of `pointwise`, 0.3 of `gpt2-bf16` (its head apart)",
    )
    attention_usual: float = _number(
        0.6,
        "share of the saving",
        "fused attention gives",
        "chosen: softmax and half the rest",
    )
    aligned_usual: float = _number(
        1 / 4,
        "ratio",
        "time of an aligned matrix kernel, usually",
        "docs/validation: the head of `gpt2-bf16`, aligned, at the rate of its other products",
    )
    usual_margin: float = _number(
        0.3, "share of the gain", "error of what other kernels give", "chosen: covers the above"
    )
    fusion_margin: float = _number(
        0.6, "share of the gain", "error of what fusion gives", "chosen: covers the above"
    )
    fused_sgd: float = _number(
        32 / 20,
        "ratio",
        "the same of SGD with momentum",
        "bytes a parameter in fp32, PyTorch's kernels; without momentum there is none to gain",
    )
    fused_adam: float = _number(
        80 / 28,
        "ratio",
        "traffic of Adam by foreach over that of the fused one",
        "bytes a parameter in fp32, PyTorch's kernels; 2.7 was measured on `gpt2-bf16`",
    )
    fused_launches: float = _number(
        10.0, "ratio", "an optimizer's launches by those of a fused one", "`optimizer_launches`"
    )
    fewer_launches: float = _number(
        3.0,
        "ratio",
        "the host's time over that with the launches compiled or in CUDA graphs",
        "docs/validation: 1.5 of `mlp` compiled, 5 with CUDA graphs and a fused optimizer",
    )
    rarer_updates: float = _number(
        2.0, "ratio", "updates get rarer where nothing makes them cheaper", "chosen: the least"
    )
    less_traffic: float = _number(
        2.0, "ratio", "gradients in 16 bits instead of 32", "derived: half the bytes"
    )
    bucket_mb: float = _number(25.0, "MB", "size of DDP's buckets", "PyTorch's default")
    pinned_gen5: float = _number(
        50.0, "GB/s", "pinned copies to GPUs of capability 9 and later", "PCIe 5.0: 55 measured"
    )
    pinned_gen4: float = _number(
        24.0, "GB/s", "pinned copies to GPUs of capability 8", "PCIe 4.0: 32 less protocol"
    )
    pinned_gen3: float = _number(
        12.0, "GB/s", "pinned copies to any other GPU", "PCIe 3.0: 16 less protocol"
    )
    aligned_bytes: int = _number(
        16, "bytes", "alignment that tensor cores need", "NVIDIA's guide to matrix multiplication"
    )
    best_aligned_bytes: int = _number(
        128, "bytes", "alignment that is best", "NVIDIA's guide to matrix multiplication"
    )


FIXED = Constants()


def table() -> Iterator[tuple[str, float, str, str, str]]:
    """Name, value, unit, meaning and source of every number, the changeable ones first."""
    for group in (Thresholds(), FIXED):
        for each in fields(group):
            texts = each.metadata
            value = getattr(group, each.name)
            yield each.name, value, texts["unit"], texts["meaning"], texts["source"]
