"""Every number that a verdict or a finding depends on, with its source.

A caller may change `Thresholds` (`Options.thresholds`), and a report prints them. Changing one of
`FIXED` would change what a finding means. `traceprobe analyze --thresholds` prints both. A number's
annotation has its unit, meaning and source; a source that begins with "chosen" is a judgement, not
a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, get_type_hints

import msgspec

from traceprobe.model.accounting import (
    ALIKE,
    ALIKE_PACE,
    AS_LONG,
    BATCH_BYTES,
    CLOCK_CHANGED,
    CLOCK_KERNELS,
    CLOCK_LONG_NS,
    CLOCK_SHARE,
    ENDS_TOGETHER,
    FEW_LATE,
    FEWEST_ALIGNED,
    FEWEST_REGULAR,
    FEWEST_STEADY,
    HELD_LATENCIES,
    HELD_NS,
    HELD_UP_ERROR,
    LAUNCHED_BEFORE,
    LENGTHS_DIFFER,
    LONE_WAIT,
    LONG_INTERVALS,
    LONG_ITERATION,
    LONG_NS,
    MIN_COVERAGE,
    MOST_LONG,
    RECURS,
    ROOM_NS,
    SCALAR_BYTES,
    SET_UP_MEDIANS,
    SET_UP_NS,
    STRAGGLER,
    UNRECORDED,
    WARM_UP,
)

STEP = "share of the step"
POINTS = "confidence"
XPROF = "xprof's input-pipeline analyser"
SIMULATED = "simulated captures of 6 to 40 steps, docs/definitions.md#loader-queue"


class Thresholds(msgspec.Struct, frozen=True):
    """Numbers of the verdict that a caller may change; shares are fractions of the used windows."""

    bound: Annotated[float, STEP, "a cause is the bound", XPROF] = 0.20
    notable: Annotated[float, STEP, "a cause is worth a warning", XPROF] = 0.05
    mixed: Annotated[
        float, STEP, "each of two causes is large enough to be mixed", "chosen: near `bound`"
    ] = 0.15
    mixed_margin: Annotated[
        float, STEP, "two causes are about equal", "chosen: `notable`, as their difference"
    ] = 0.05
    whole_capture: Annotated[
        float, "share of the capture", "the bound without step markers", "chosen: a majority"
    ] = 0.50
    unexplained: Annotated[
        float, STEP, "unexplained time allows no verdict", "chosen: more than makes a bound"
    ] = 0.30
    coverage: Annotated[
        float,
        "share of launches",
        "launches with a GPU row for a verdict",
        "chosen: what is lost then can hide half of `bound`",
    ] = 0.90
    min_iterations: Annotated[
        int,
        "iterations",
        "used iterations for a verdict",
        "chosen: the fewest that show an outlier",
    ] = 3
    min_gpu_ops: Annotated[
        int, "GPU ops", "GPU ops for a verdict without three steps", "chosen: less than any step"
    ] = 100
    low_confidence: Annotated[
        float,
        POINTS,
        "the most where the profiler may be the overhead",
        "chosen: well below a half",
    ] = 0.30
    drift_quiet: Annotated[
        float, "ratio", "data wait before the loader's queue ran dry, over that after", SIMULATED
    ] = 0.25
    drift_errors: Annotated[
        float, "standard errors", "rise of the data wait that is no chance", SIMULATED
    ] = 4.0

    def as_dict(self) -> dict[str, float]:
        """Name to value, as in the report."""
        return {name: float(value) for name, value in msgspec.structs.asdict(self).items()}


class Constants(msgspec.Struct, frozen=True):
    """Numbers that no option changes, grouped by the part of the judgement that uses them."""

    # Which iterations and ranks count. The accounting itself applies these.
    iteration_coverage: Annotated[
        float,
        "share of launches",
        "launches with a GPU row for an iteration to be used",
        "chosen: whole iterations of the public traces have all of them",
    ] = MIN_COVERAGE
    launched_before: Annotated[
        float,
        "share of the work",
        "a first iteration in which so much was launched before the capture is not used",
        "`notable`; whole iterations of the public traces have none",
    ] = LAUNCHED_BEFORE
    unrecorded: Annotated[
        float,
        "share of an iteration",
        "few iterations begin with what precedes their first kernel, where that is so much",
        "`notable`; a loop that keeps its device busy has none",
    ] = UNRECORDED
    warm_up: Annotated[
        float,
        "medians",
        "a first iteration that lasts longer is warm-up",
        "chosen: compiling and allocating take many times a step",
    ] = WARM_UP
    straggler: Annotated[
        float,
        "share of the waiting",
        "a rank that came last for so much is the straggler",
        "derived: of two ranks that take turns each has half",
    ] = STRAGGLER
    few_late: Annotated[
        float,
        "share of the ranks",
        "as many may together be those that are waited for",
        "derived: of ranks that take turns, twice as many have `straggler`",
    ] = FEW_LATE
    ends_together: Annotated[
        float,
        "intervals between collectives",
        "ends of collectives that are the same ones on two ranks deviate less",
        "chosen: a half would be as near to the next one",
    ] = ENDS_TOGETHER
    fewest_aligned: Annotated[
        int,
        "collectives",
        "two captures without steps are aligned by at least so many",
        "chosen: fewer meet by chance",
    ] = FEWEST_ALIGNED
    apart_s: Annotated[
        float,
        "s",
        "between two captures, beyond the length of the longer: they are not of the same time",
        "chosen: ranks begin with the same step, and clocks of machines differ by less",
    ] = 5.0
    straggling: Annotated[
        float, STEP, "waiting for other ranks is worth a sentence", "HTA's straggler candidates"
    ] = 0.01

    clock_changed: Annotated[
        float,
        "ratio",
        "the same kernels take so much longer when the GPU's speed has changed",
        "steady public captures stay below 1.02",
    ] = CLOCK_CHANGED
    clock_long_us: Annotated[float, "µs", "the shortest kernel that tells", "`short_kernel_us`"] = (
        CLOCK_LONG_NS / 1e3
    )
    clock_kernels: Annotated[
        int, "kernels", "of an iteration that tell", "chosen: no few noisy kernels decide"
    ] = CLOCK_KERNELS
    clock_share: Annotated[float, "share of kernel time", "that they make up", "a majority"] = (
        CLOCK_SHARE
    )
    clock_brief_ms: Annotated[
        float,
        "ms",
        "the shortest time whose mean clock is known well",
        "measured, H200: NVML tells another clock each 100 ms; at the power limit they differ by "
        "12 %",
    ] = 500.0
    clock_brief_changed: Annotated[
        float, "ratio", "between clocks of shorter times", "twice what differs at the power limit"
    ] = 1.25
    clock_others_percent: Annotated[
        float, "% of the time", "that other processes use the GPU", "chosen: as much of a step"
    ] = 5.0
    busy_machine: Annotated[
        float,
        "share of the time",
        "the loop lacks a core that other programs use",
        "measured on two cores: 0 to 2 % alone, 37 to 75 % beside one or two programs",
    ] = 0.10
    cores_of_others: Annotated[
        float,
        "cores",
        "that others use for each thread that waits, from which on they have them",
        "chosen: half of what is missing",
    ] = 0.5
    fewest_steady: Annotated[
        int, "iterations", "left where others are left out", "`min_iterations`"
    ] = FEWEST_STEADY

    # Captures that show no training
    cold_start: Annotated[
        float, STEP, "calls of set-up allow no verdict", "chosen: `bound`, which they could fake"
    ] = 0.20
    set_up_us: Annotated[
        float, "µs", "the shortest call of set-up", "loading a kernel's code: 0.3 ms"
    ] = SET_UP_NS / 1e3
    set_up_medians: Annotated[
        float,
        "medians",
        "a call of set-up lasts so many calls of its name",
        "chosen: no call in a warm loop of the public traces does",
    ] = SET_UP_MEDIANS

    long_iteration: Annotated[
        float,
        "medians",
        "an iteration that does more than the others lasts",
        "chosen: less is noise",
    ] = LONG_ITERATION
    as_long: Annotated[
        float,
        "ratio",
        "what a recorded long iteration takes more, over that of a step without the profiler that "
        "is long as it is, or the reverse",
        "measured, a checkpoint on a CPU: 200 ms with the profiler, 74 to 84 without",
    ] = AS_LONG
    most_long: Annotated[
        int, "iterations", "one in so many may be long", "chosen: else it is usual"
    ] = MOST_LONG
    fewest_regular: Annotated[
        int, "iterations", "long ones at one distance are a period", "two always have a distance"
    ] = FEWEST_REGULAR
    lengths_differ: Annotated[
        float,
        "ratio of operations",
        "regular iterations are of any length, and long ones with them",
        "chosen: batches of one size launch the same",
    ] = LENGTHS_DIFFER
    alike_pace: Annotated[
        float,
        "ratio of times",
        "an operation takes in iterations that do the same, at most",
        "measured: 0.60 to 0.74 ms for each action of episodes of any length",
    ] = ALIKE_PACE
    alike: Annotated[
        float,
        "share of operations",
        "a class of them has more or less in iterations that do the same",
        "chosen: an evaluation has forward work alone",
    ] = ALIKE
    lone_wait: Annotated[
        float, "medians", "a single wait for data is no loader's burst", "chosen: many workers"
    ] = LONE_WAIT

    # What the host's silence means. The accounting itself applies these.
    long_ms: Annotated[
        float, "ms", "a silence of the host needs a cause", "docs/definitions.md"
    ] = LONG_NS / 1e6
    long_intervals: Annotated[
        int, "intervals between launches", "and it lasts so many", "docs/definitions.md"
    ] = LONG_INTERVALS
    held_ms: Annotated[
        float,
        "ms",
        "work that was launched, and starts so late, is held up by something else",
        "measured: launches of public captures reach an idle GPU in 7 to 14 µs by the median",
    ] = HELD_NS / 1e6
    held_latencies: Annotated[
        int, "median latencies of launches", "and it is so many late", "chosen: as `long_intervals`"
    ] = HELD_LATENCIES
    batch_bytes: Annotated[
        int, "bytes", "a copy to the device brings input", "chosen: less is a scalar"
    ] = BATCH_BYTES
    scalar_bytes: Annotated[
        int, "bytes", "a copy to the host is a loss or a flag", "chosen: eight numbers"
    ] = SCALAR_BYTES
    room_us: Annotated[
        float,
        "µs",
        "after memory was given back, an allocation that it made room for begins",
        "measured, H200: 4 to 60 µs in the allocator, 500 µs where Python is between",
    ] = ROOM_NS / 1e3
    recurs: Annotated[
        int, "copies", "of one size make it that of a batch", "chosen: one in each iteration"
    ] = RECURS

    # Confidence
    confidence_base: Annotated[float, POINTS, "any bound", "chosen: as likely as not"] = 0.5
    confidence_margin: Annotated[
        float,
        POINTS,
        "a bound far from every threshold adds",
        "chosen: 0.95 at most, never certain",
    ] = 0.45
    full_margin: Annotated[
        float, STEP, "far from every threshold", "chosen: three times `notable`"
    ] = 0.15
    penalty_inferred: Annotated[
        float, POINTS, "all of the data wait is inferred", "chosen: takes a clear verdict below 0.8"
    ] = 0.2
    penalty_single_rank: Annotated[
        float, POINTS, "communication judged from one rank", "chosen: as for an inferred data wait"
    ] = 0.2
    penalty_unattributed: Annotated[
        float, POINTS, "kernels without a phase, at most", "chosen: as for an inferred data wait"
    ] = 0.2
    penalty_no_marker: Annotated[
        float, POINTS, "no step marker", "chosen: more than any single doubt about the steps"
    ] = 0.25
    penalty_coverage: Annotated[
        float,
        POINTS,
        "no launch has a GPU row, without step markers",
        "chosen: as for an inferred data wait",
    ] = 0.2
    penalty_marker: Annotated[
        float,
        POINTS,
        "a step marker that is surely wrong",
        "chosen: the least sure kind of marker, 0.60, costs 0.1",
    ] = 0.3
    sure_marker: Annotated[
        float, POINTS, "a marker that costs nothing", "that of numbered ranges, as ProfilerStep#"
    ] = 0.95
    penalty_drained: Annotated[
        float,
        POINTS,
        "only the iterations after a drained queue count",
        "chosen: half of an inferred data wait",
    ] = 0.1
    penalty_few: Annotated[float, POINTS, "few iterations", "chosen: a nudge"] = 0.05
    most_of_few: Annotated[
        float, POINTS, "the most with one or two iterations", "chosen: they show no outlier"
    ] = 0.5
    few_iterations: Annotated[
        int, "iterations", "fewer are few", "the default of `traceprobe profile --active`"
    ] = 8
    sure: Annotated[
        float, POINTS, "a confidence is high", "docs/validation/calibration.md: 95 % are right"
    ] = 0.8
    fairly_sure: Annotated[
        float, POINTS, "a confidence is medium", "docs/validation/calibration.md: 80 % are right"
    ] = 0.5
    penalty_split: Annotated[
        float, POINTS, "one rank split what the profiler left", "chosen: half of a single rank's"
    ] = 0.1

    penalty_damage: Annotated[
        float, POINTS, "a warning of missing or wrong rows", "chosen: as for few iterations"
    ] = 0.05
    penalty_damage_most: Annotated[
        float, POINTS, "all of them, at most", "chosen: as for an inferred data wait"
    ] = 0.2
    penalty_calibration: Annotated[
        float,
        POINTS,
        "the unprofiled step is in doubt, or longer than the profiled one by `distortion`; at "
        "least, where more of it is not in the capture",
        "chosen: half of a single rank's",
    ] = 0.1

    # Correction for the profiler, and the sentences about it
    misfit: Annotated[
        float,
        STEP,
        "work that does not fit into the unprofiled step is reported, and the headline names that "
        "step where the shares are of one that differs by more",
        "chosen: its noise",
    ] = 0.02
    implausible_ratio: Annotated[
        float,
        "ratio",
        "no profiler makes a step so much longer or shorter",
        "chosen: stacks make 5",
    ] = 20.0
    taken_out: Annotated[
        float,
        STEP,
        "time taken out as the profiler's is reported",
        "chosen: two digits of a per cent",
    ] = 0.005
    same_pace: Annotated[
        float,
        "ratio",
        "steps without a profiler, before and after the profiled ones, are of one pace",
        "`notable`; a recording makes its blocks again from there on",
    ] = 1.05
    distortion: Annotated[
        float,
        "ratio",
        "a profiled step so much longer is distorted",
        "PyTorch's issues: 10 to 20 %",
    ] = 1.1
    held_up_varies: Annotated[
        float,
        "share",
        "pauses and stalls of the host take longer in the steps that were timed than in the "
        "recorded ones",
        "docs/slowbench.md: by how much causes differ between rounds",
    ] = HELD_UP_ERROR
    flush_ms: Annotated[
        float, "ms", "idle under the profiler's own rows is reported", "rounds to 0.01 ms"
    ] = 0.005
    reported_idle: Annotated[float, STEP, "idle time is reported", "`notable`"] = 0.05
    reported_part: Annotated[
        float, STEP, "a part of the idle time is reported", "chosen: less is rounding"
    ] = 0.01
    reported_cause: Annotated[
        float, "share of the waiting", "a cause of waiting is reported", "rounds to 1 %"
    ] = 0.005
    mostly_inferred: Annotated[
        float, "share of the data wait", "it lies between the steps", "a majority"
    ] = 0.5

    # Loader queue
    drift_side: Annotated[
        int, "iterations", "each side of a change; also rounds of the loader after it", SIMULATED
    ] = 3
    drift_blocks: Annotated[
        int, "rounds", "rounds of the loader before a change", "two batches a worker, the default"
    ] = 2
    drift_longer: Annotated[
        float, "share of the rise", "the step gets longer by so much of it", SIMULATED
    ] = 0.5

    # Roofline, hardware and links
    explained: Annotated[
        float, "share of kernel time", "math or memory explains the kernels", "a majority"
    ] = 0.5
    run_precision: Annotated[
        float, "share of matrix time", "a precision is that of the run", "a majority"
    ] = 0.5
    message_spread: Annotated[
        float,
        "ratio",
        "sizes of messages that tell latency from bandwidth",
        "chosen: closer sizes cannot tell the two apart",
    ] = 4
    end_stage: Annotated[
        float,
        "ratio",
        "messages over the fewest of any rank, below which a stage is at an end of its pipeline",
        "derived: between them a stage has twice as many",
    ] = 1.5
    bubble_excess: Annotated[
        float, "ratio", "a bubble over its ideal that is too long", "chosen: a quarter more"
    ] = 1.25
    mostly_bubble: Annotated[
        float, "share of communication", "communication is mostly pipeline bubble", "a majority"
    ] = 0.5
    gpu_memory_least: Annotated[
        float, "ratio", "reported over printed memory, at least", "less ECC and the driver's part"
    ] = 0.93
    gpu_memory_most: Annotated[
        float, "ratio", "reported over printed memory, at most", "GiB against GB is 1.074"
    ] = 1.09
    gpu_slice_memory: Annotated[
        float, "ratio", "reported over printed memory of the whole of a MIG slice", "as above"
    ] = 1.06

    # Ablation
    overlap_contrast: Annotated[
        float, "share of throughput", "serial and parallel are apart", "chosen: noise otherwise"
    ] = 0.1
    disturbed: Annotated[
        float, "ratio", "full over synthetic step that is a disturbance", "chosen: `notable` faster"
    ] = 0.95

    # Probes
    probe_interval: Annotated[
        float, "probability", "a slope is inside its interval", "as of an ablation"
    ] = 0.95
    criticality: Annotated[
        float, "slope", "a region is critical above, hidden below", "a majority of the delay"
    ] = 0.5
    criticality_hidden: Annotated[
        float, "slope", "less is as good as hidden, where more than chance", "chosen: `bound`"
    ] = 0.2
    criticality_whole: Annotated[
        float, "slope", "more is as good as critical", "derived: 1 - `criticality_hidden`"
    ] = 0.8
    probed_path: Annotated[
        float, STEP, "of a critical path, where a hidden region contradicts it", "chosen: `bound`"
    ] = 0.2

    # Findings
    loader_most: Annotated[
        float,
        "times the step without a profiler",
        "a loader that takes longer for its batches was stopped for a while",
        "a queue feeds the 30 steps around the profiled ones for no longer than its length",
    ] = 2.0
    several_iterations: Annotated[
        float,
        "times the recorded step",
        "a step without the profiler may be that of a program which counts several iterations as "
        "one step",
        "two are the fewest; host and profiler make either longer by less",
    ] = 1.8
    queue_least: Annotated[
        float,
        "times the recorded step",
        "a step without the profiler, of a loader with workers of unknown pace, is as long because "
        "it waits for them",
        "between blocks of steps of one process the clock and a shared host vary by a third",
    ] = 1.5
    loader_samples: Annotated[
        int, "samples", "enough to say which lines make a batch", "standard error of a half: 0.11"
    ] = 20
    loader_looks: Annotated[
        int,
        "samples",
        "enough to say which line of a loader is first",
        "three quarters of a batch are first in 97 % of eight looks (binomial)",
    ] = 8
    loader_part: Annotated[
        float, "share of a batch", "a function that makes it is named", "`notable`"
    ] = 0.05
    loader_parts: Annotated[int, "functions", "named, of any number", "chosen: as fixes"] = 3
    loader_idle: Annotated[
        float, "share of the time", "workers below are mostly idle", "a majority"
    ] = 0.5
    loader_full: Annotated[
        float,
        "share of the time",
        "workers below keep up with steps that wait outside of the loader's ranges",
        "chosen: a tenth to spare",
    ] = 0.9
    handing_over_ms: Annotated[
        float,
        "ms",
        "batches below take a worker longer to hand over than the step thread to make",
        "measured: 0.5 to 0.76 ms for tensors of 4 kB to 8 MB, one or two workers (PyTorch 2.13, "
        "Intel Xeon)",
    ] = 0.5
    filling: Annotated[
        float,
        "share of what is extra",
        "what long iterations do more is reported",
        "chosen: a tenth",
    ] = 0.1
    mean_recurs: Annotated[
        float,
        "ratio",
        "a long iteration recurs: a mean step without the profiler over a regular one with it",
        "chosen: a fifth, above how much a shared host's pace varies between two blocks",
    ] = 1.2
    norm_conversions: Annotated[
        float,
        "ratio",
        "batch normalisation that moves its image as seldom as it can, over conversions of layouts",
        "normalising: 3 passes forward, 5 backward. Converting, around a convolution: 5 times 2",
    ] = 4 / 5
    pooling_kept: Annotated[
        float,
        "ratio",
        "PyTorch's max pooling in NHWC, over that in NCHW",
        "0.46 to 0.55 of `photos-contiguous-layout` of slowbench, H100 and H200",
    ] = 0.5
    softmax_passes: Annotated[
        float,
        "ratio",
        "passes over attention's scores by the products, over those by softmax",
        "products: 1 write, 1 read; 1 write, 3 reads. Softmax: 2 and 3",
    ] = 6 / 5
    softmax_around: Annotated[
        float,
        "ratio",
        "passes over attention's scores by element-wise kernels, over those by softmax",
        "scale 2 and 2, mask 3 and 2, dropout 3 and 3, cast 2 and 2. Softmax: 2 and 3",
    ] = 19 / 5
    barely_overlapped: Annotated[
        float, "%", "communication and computation take turns", "`notable`"
    ] = 5.0
    sums_of_layers: Annotated[
        float,
        "per forward pass",
        "layers add up what their ranks have: sums in the forward pass, from so many on",
        "chosen: a loss and a count of samples are two",
    ] = 4
    forward_sums: Annotated[
        float,
        "share of all sums",
        "the same; beside those of gradients",
        "Megatron's layers reduce twice forward and twice backward: half",
    ] = 0.25
    many_messages: Annotated[
        float,
        "per step",
        "messages of unknown size are many",
        "chosen: buckets of 25 MB for 190 million parameters",
    ] = 30
    many_shards: Annotated[
        float,
        "per forward pass",
        "gatherings of parameters that are more than those of a model's blocks",
        "chosen: fifty blocks are gathered twice each",
    ] = 100
    brief_message_us: Annotated[
        float,
        "µs",
        "their mean time is latency",
        "chosen: twice what a message of some bytes takes between GPUs of a machine",
    ] = 50.0
    values_copied_us: Annotated[
        float,
        "µs",
        "a copy to the host that brings more than a few values",
        "chosen: twice what the copy of `.item()` takes on an H200 (2.3 µs measured)",
    ] = 5.0
    small_message: Annotated[
        float, "bytes", "its start costs more than its bytes", "chosen: on most links"
    ] = 1e6
    small_message_part: Annotated[
        float,
        "share of the longest message's time",
        "as `small_message`, where no sizes are known",
        "that of `small_message` in a bucket of DDP, 25 MB, and half of it to spare",
    ] = 0.02
    unlike_messages: Annotated[
        float,
        "ratio",
        "passes whose messages take so much longer have others, where no sizes are known",
        "measured: passes differ by 1.2 at most (two H200s over sockets)",
    ] = 1.5
    gathers_of_a_unit: Annotated[
        float,
        "per step",
        "a model whose layers are gathered together is gathered so often",
        "before the forward pass, and before the backward pass where it was freed",
    ] = 2.0
    telling_calls: Annotated[
        float,
        "per step",
        "of an operator, as many as one mistake alone makes",
        "chosen: a gradient, a time step or a layer has one each; what is called once is no habit",
    ] = 10.0
    tried_operations: Annotated[
        float,
        "per call",
        "of a convolution, as many as only trying algorithms launches",
        "measured: at most 10 in 35 programs on H200, 98 and more where cuDNN tries",
    ] = 30.0
    prepared_us: Annotated[
        float,
        "µs",
        "a call of cuDNN's attention that lasts so long has compiled a kernel",
        "measured: 0.26 ms at most in 30 programs under a profiler, 5.2 ms where it compiles",
    ] = 1e3
    bus_message: Annotated[
        float, "bytes", "a message that shows the speed of links", "chosen: below, latency counts"
    ] = 16e6
    low_bandwidth: Annotated[
        float,
        "share of NVLink",
        "collectives that do not go over NVLink reach less",
        "PCIe 5.0 has 64 GB/s, 0.14 of Hopper's NVLink; over it 0.5 and more was measured",
    ] = 0.15
    reached_bandwidth: Annotated[
        float,
        "share of NVLink",
        "what NCCL reaches of it in large messages",
        "measured: 0.42 to 0.6 in messages of 26 to 315 MB, two H100 or H200",
    ] = 0.5
    count_rounding: Annotated[
        float, "messages per step", "counts of messages differ", "rounding of the means"
    ] = 1e-3
    mostly_held: Annotated[
        float, "share of idle time without a cause", "its work was launched in time", "a majority"
    ] = 0.5
    mostly_collects: Annotated[
        float, "share of what they take more", "long iterations collect garbage", "a majority"
    ] = 0.5
    mostly_waits: Annotated[
        float,
        "share of overhead",
        "calls that wait for the GPU are what makes it",
        "a majority",
    ] = 0.5
    mostly_copied: Annotated[
        float, "share", "copies are mostly pageable, or mostly hidden", "a majority"
    ] = 0.5
    pageable_bytes: Annotated[
        int, "bytes per step", "pageable copies matter", "scalars are pageable everywhere"
    ] = 1 << 20
    tf32_products: Annotated[
        int, "products", "in TF32 that give one in fp32", "3xTF32, CUTLASS"
    ] = 3
    halved_operands: Annotated[
        float, "ratio", "time of other kernels in 16 bits", "their operands have half the size"
    ] = 0.5
    memory_full: Annotated[
        float, "share of the device", "memory is nearly full", "PyTorch's TensorBoard plugin"
    ] = 0.90
    bf16_capability: Annotated[int, "compute capability", "GPUs with bf16", "NVIDIA: Ampere"] = 8
    memory_slack: Annotated[
        float, "share of what is reserved", "memory not in use matters", "chosen: `bound`"
    ] = 0.20
    memory_crowded: Annotated[
        float, "share of the device", "reserved, for slack to matter", "chosen: else it is free"
    ] = 0.50
    optimizer_launches: Annotated[
        int, "kernels per step", "many for an optimizer", "several times a fused one's of 100 M"
    ] = 20
    parameter_groups: Annotated[
        int, "groups", "of parameters are many", "chosen: more than layers have rates and decays"
    ] = 64
    much_for_logits: Annotated[
        float,
        STEP,
        "output layer and loss take much",
        "chosen: 11 % of language models of 0.5 to 1 billion parameters on an H200, all labelled",
    ] = 0.25
    few_rows: Annotated[
        float,
        "share of rows",
        "a step looks up few rows of a table",
        "chosen: what is not updated then pays for sorting and merging those that are",
    ] = 0.1
    merged_rows_ms: Annotated[
        float,
        "ms",
        "merging the rows of a sparse gradient takes a table",
        "measured: 26 tables, 65,536 skewed lookups each (`aten::_coalesce`, H200)",
    ] = 1.6
    optimizer_worth: Annotated[
        float, STEP, "a fused optimizer is worth it", "chosen: it takes one word"
    ] = 0.01
    fused_parameters: Annotated[
        int, "parameters", "of a launch of the fused Adam", "PyTorch's multi_tensor_apply"
    ] = 320 * 65536
    fused_tensors: Annotated[
        int, "tensors", "of a launch of the fused Adam", "PyTorch's multi_tensor_apply"
    ] = 36
    headroom_least: Annotated[
        float, STEP, "a floor says anything about a step", "chosen: less is as good as none"
    ] = 0.001
    headroom_counted: Annotated[
        float,
        "share of the operations",
        "no program leaves out, where only their sum is known",
        "derived: a causal mask hides half of the scores",
    ] = 0.5
    headroom_peak: Annotated[
        float,
        "ratio",
        "nothing is faster than the measured peak times this",
        "chosen: other sizes and data than 8192 x 8192 random numbers are faster",
    ] = 1.25
    attributed: Annotated[
        float,
        "share of kernel time",
        "enough has a phase",
        "public traces with three ranges reach it",
    ] = 0.98
    short_kernel_us: Annotated[
        float, "µs", "a kernel is short", "about what a launch costs the host; nsys-ai"
    ] = 10.0
    tiny_kernel_us: Annotated[
        float,
        "µs",
        "a kernel does little more than start and end",
        "chosen: those of almost no work took 1.4 to 3.2 µs on an H100, and 1.3 until the next",
    ] = 5.0
    many_launches: Annotated[
        float, "launches per step", "many", "chosen: 5 ms of the host at 10 µs each"
    ] = 500.0
    syncs: Annotated[
        float, "calls per step", "blocking calls matter", "chosen: more than one in two steps"
    ] = 0.5
    stalls: Annotated[
        float,
        "iterations",
        "allocate and free device memory, at least",
        "chosen: set-up may take two",
    ] = 3
    stalled: Annotated[
        float, "share of the iterations", "allocate and free device memory", "chosen: most of them"
    ] = 0.5
    breaks: Annotated[float, "calls per step", "graph breaks matter", "chosen: as `syncs`"] = 0.5
    fp32_reached: Annotated[
        float,
        "share of the peak",
        "a matrix product in fp32 reaches",
        "chosen: well below the 0.76 measured on an H200, docs/validation/hardware.md",
    ] = 0.5
    tf32_reached: Annotated[
        float,
        "share of the peak",
        "a matrix product in TF32 reaches",
        "chosen: below what cuBLAS reaches, convolutions and small products do not reach that",
    ] = 0.7
    unaligned_kept: Annotated[
        float, "ratio", "time of an aligned matrix kernel", "16 bytes are read at a time, not 2"
    ] = 1 / 8
    other_kernels: Annotated[
        float,
        "ratio",
        "the same where aligned products are another kind of kernel",
        "twice the rate of `mma.sync`: Hopper's `wgmma`, whose operands come by TMA in 16 bytes",
    ] = 1 / 16
    more_stalls: Annotated[
        float,
        "ratio",
        "stalls without the profiler over those with it, that are worth a word",
        "chosen: what is measured twice differs by as much",
    ] = 1.05
    pace_wait: Annotated[
        float,
        STEP,
        "waiting for data in the capture, from which on the loader sets the pace of a step that is "
        "no longer than without the profiler",
        "`bound`",
    ] = 0.2
    host_usual: Annotated[
        float,
        "ratio",
        "the host's time without PyTorch's profiler over that with it",
        "docs/whatif.md: by the runs measured there",
    ] = 0.55
    host_kept: Annotated[
        float,
        "ratio",
        "the host's time without the profiler over that with it, at least",
        "docs/whatif.md: 0.55 and less by 0.15, by the runs measured there",
    ] = 0.4
    told_apart: Annotated[
        float,
        "ratio",
        "waiting for ranks without the profiler over that with it, below which both are told",
        "chosen: a twentieth is not worth a sentence",
    ] = 0.95
    more_work: Annotated[
        float,
        "ratio",
        "a rank has more kernels, blocks or time of a kind than the others",
        "chosen: batches of equal size differ by less",
    ] = 1.1
    micro_batches_a_stage: Annotated[
        int,
        "ratio",
        "micro-batches over stages from which on a pipeline has enough of them",
        "Huang et al., GPipe, 2019: the bubble is negligible from 4 on",
    ] = 4
    shared_evenly: Annotated[
        float,
        "ratio",
        "relative error of what a rank costs that computes more than the others",
        "two ranks that share its work gain half of what one waits for the other",
    ] = 0.5
    # Which findings come first
    gain_of_cause: Annotated[
        float,
        "ratio",
        "a specific finding comes before the general one about its time where it gains that part",
        "what general gains may be wrong by: nobody knows how much less launching there will be",
    ] = 1 / 3
    gain_of_late: Annotated[
        float,
        "ratio",
        "what a rank is late by gains as much as no waiting for it",
        "chosen: each is played by itself",
    ] = 0.9
    same_saving: Annotated[
        float, "ratio", "two savings of the same time differ by less", "chosen: two digits"
    ] = 0.01
    no_saving: Annotated[
        float,
        "ratio",
        "part of the largest saving below which nobody would do anything",
        "chosen: a tenth of `same_saving`",
    ] = 0.001

    # What a change usually gives of what it can give at most, for predictions
    most_faster: Annotated[
        float, "ratio", "no change makes kernels faster by more", "chosen: above all of them"
    ] = 100.0
    tf32_usual: Annotated[
        float,
        "share of the saving",
        "TF32 gives",
        "docs/validation: 0.73 of `unet-fp32`, 0.81 of `gpt2-fp32`",
    ] = 0.77
    fp32_usual: Annotated[
        float,
        "ratio",
        "time in 16 bits of products in fp32, over that by the peaks",
        "docs/slowbench.md: 0.9 to 1.2 of five programs, H200",
    ] = 1.15
    tf32_to_half_usual: Annotated[
        float,
        "ratio",
        "time in 16 bits of products in TF32, over that by the peaks",
        "docs/slowbench.md: 0.83 to 1.02 of three programs, H200",
    ] = 0.9
    halved_usual: Annotated[
        float,
        "ratio",
        "time of other kernels in 16 bits, usually",
        "chosen: between half and what stays in fp32",
    ] = 0.6
    half_margin: Annotated[
        float,
        "share of what is left",
        "error of what kernels in 16 bits take",
        "chosen: covers the above, and GPUs that were not measured",
    ] = 0.3
    fusion_usual: Annotated[
        float,
        "share of the saving",
        "a compiler's fusion gives",
        "docs/validation: 0.84 of `pointwise`, 0.3 of `gpt2-bf16` (its head apart)",
    ] = 0.55
    attention_usual: Annotated[
        float, "share of the saving", "fused attention gives", "chosen: softmax and half the rest"
    ] = 0.6
    attention_least: Annotated[
        float,
        "ratio",
        "time of fused attention over that of its products as they are, at least",
        "derived: half is hidden by a causal mask, and half the time is the scores' at most",
    ] = 1 / 4
    unmasked_usual: Annotated[
        float,
        "ratio",
        "time of fused attention that reads no mask over that of the scores which the mask shows",
        "measured: 0.59 of a GPT with 8,192 tokens (cuDNN, H200); three others agree",
    ] = 0.6
    double_least: Annotated[
        float,
        "share of kernel time",
        "32 bits save of what computes with 64",
        "derived: half the bytes, and no GPU computes with 64 bits at more than half the rate",
    ] = 0.5
    attention_margin: Annotated[
        float,
        "share of the gain",
        "error of what fused attention gives, where its products are known",
        "chosen: covers 1.10, measured of a GPT on an H200, and a mask that is not causal",
    ] = 0.2
    aligned_usual: Annotated[
        float,
        "ratio",
        "time of an aligned matrix kernel, usually",
        "docs/validation: the head of `gpt2-bf16`, aligned, at the rate of its other products",
    ] = 1 / 4
    aligned_margin: Annotated[
        float, "share of the gain", "error of what such kernels give", "chosen: covers that"
    ] = 0.07
    other_kernels_usual: Annotated[
        float,
        "ratio",
        "the same where aligned products are another kind of kernel",
        "docs/slowbench.md: 0.07 to 0.10 of three programs, 0.15 of `gpt`, H200",
    ] = 0.1
    usual_margin: Annotated[
        float, "share of the gain", "error of what other kernels give", "chosen: covers the above"
    ] = 0.3
    fusion_margin: Annotated[
        float,
        "share of the gain",
        "error of what fusion, or another layout, gives",
        "chosen: covers the above; two networks gained 0.9 and 1.7 of what a layout promised",
    ] = 0.6
    fused_sgd: Annotated[
        float,
        "ratio",
        "the same of SGD with momentum",
        "bytes a parameter in fp32, PyTorch's kernels; without momentum there is none to gain",
    ] = 32 / 20
    fused_adam: Annotated[
        float,
        "ratio",
        "traffic of Adam by foreach over that of the fused one",
        "bytes a parameter in fp32, PyTorch's kernels; 2.7 was measured on `gpt2-bf16`",
    ] = 80 / 28
    fused_launches: Annotated[
        float, "ratio", "an optimizer's launches by those of a fused one", "`optimizer_launches`"
    ] = 10.0
    fewer_launches: Annotated[
        float,
        "ratio",
        "the host's time over that with the launches compiled or in CUDA graphs",
        "docs/validation: 1.5 of `mlp` compiled, 5 with CUDA graphs and a fused optimizer",
    ] = 3.0
    rarer_updates: Annotated[
        float, "ratio", "updates get rarer where nothing makes them cheaper", "chosen: the least"
    ] = 2.0
    less_traffic: Annotated[
        float, "ratio", "gradients in 16 bits instead of 32", "derived: half the bytes"
    ] = 2.0
    bucket_mb: Annotated[float, "MB", "size of DDP's buckets", "PyTorch's default"] = 25.0
    pinned_gen5: Annotated[
        float, "GB/s", "pinned copies to GPUs of capability 9 and later", "PCIe 5.0: 55 measured"
    ] = 50.0
    pinned_gen4: Annotated[
        float, "GB/s", "pinned copies to GPUs of capability 8", "PCIe 4.0: 32 less protocol"
    ] = 24.0
    pinned_gen3: Annotated[
        float, "GB/s", "pinned copies to any other GPU", "PCIe 3.0: 16 less protocol"
    ] = 12.0
    aligned_bytes: Annotated[
        int, "bytes", "alignment that tensor cores need", "NVIDIA's guide to matrix multiplication"
    ] = 16
    best_aligned_bytes: Annotated[
        int, "bytes", "alignment that is best", "NVIDIA's guide to matrix multiplication"
    ] = 128


FIXED = Constants()


def table() -> Iterator[tuple[str, float, str, str, str]]:
    """Name, value, unit, meaning and source of every number, the changeable ones first."""
    for group in (Thresholds(), FIXED):
        for name, hint in get_type_hints(type(group), include_extras=True).items():
            unit, meaning, source = hint.__metadata__
            yield name, getattr(group, name), unit, meaning, source
