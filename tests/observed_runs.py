"""Runs to compare, whose steps are given: in ms a class, with a little noise."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from msgspec.structs import replace

from tests.report_factory import MS, PARTITIONS, make_rank, make_report, without_calibration
from traceprobe.compare.run import Observed
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.rank import DeviceInfo
from traceprobe.records.report import ObserverEffect


def run_of_classes(
    classes, steps=20, spread=0.01, bound="compute", label="run", measures=None, **changes
):
    """A run whose steps have the given classes, ms, with noise of that relative size."""
    source = np.random.default_rng(crc32(label.encode()))
    series = dict.fromkeys(PARTITION)
    for name, ms in classes.items():
        series[name] = ms * (1 + spread * source.standard_normal(steps))
    step = sum(values for values in series.values() if values is not None)
    report = replace(without_calibration(make_report(bound)), **changes)
    return Observed(label, report, step, series, measures or {})


def run_on(
    device,
    compute,
    wait=0.0,
    label=None,
    samples=64,
    ranks=1,
    kernels=None,
    bound="compute",
    spread=0.001,
    **settings,
):
    """A run of 20 steps on such a device, with `compute` and `wait` ms a step."""
    info = (
        device if isinstance(device, DeviceInfo) else DeviceInfo(index=0, name=device, kind="gpu")
    )
    label = label or str(info.name)
    report = make_report(bound)
    one = make_rank(PARTITIONS[bound])
    one = replace(one, device=info, summary=replace(one.summary, kernel_ns=kernels))
    report = replace(
        report,
        ranks=[replace(one, rank=n) for n in range(ranks)],
        workload={"name": "unet", "samples_per_step": samples, "settings": settings},
        quality=replace(report.quality, observer_effect=None),
    )
    noise = 1 + spread * np.random.default_rng(crc32(label.encode())).standard_normal(20)
    classes = dict.fromkeys(PARTITION)
    classes |= {"forward": compute / 3 * noise, "backward": compute * 2 / 3 * noise}
    classes |= {"idle_data_wait": wait * noise}
    return Observed(label, report, (compute + wait) * noise, classes)


def calibrated(observed, ms):
    """The same run, of which a calibration has timed the step."""
    quality = observed.report.quality
    effect = ObserverEffect(profiled_step_ms=1.0, unprofiled_step_ms=ms, ratio=1.0)
    report = replace(observed.report, quality=replace(quality, observer_effect=effect))
    return Observed(observed.label, report, observed.step_ms, observed.classes, observed.measures)


def workload_of(samples):
    """A workload of so many samples a step."""
    return {"samples_per_step": samples, "settings": {"batch_size": samples, "seed": samples}}


def with_kernels(report, **ms):
    """The report with these kernels alone, ms a step."""
    rank = report.ranks[0]
    first = rank.summary.top_kernels[0]
    steps = rank.summary.iterations_used
    listed = [
        replace(first, name=name, phase="backward", total_ns=int(value * steps * MS), count=steps)
        for name, value in ms.items()
    ]
    summary = replace(rank.summary, top_kernels=listed)
    return replace(report, ranks=[replace(rank, summary=summary)])
