"""What of a device has a value at every instant, as counters of bounded length."""

from __future__ import annotations

import msgspec
import polars as pl

from traceprobe.timeline import counters as steps
from traceprobe.timeline.device_timeline import DeviceTimeline

MOST_SAMPLES = 20_000
"""Values of a counter: more than a screen has columns."""


class Counter(msgspec.Struct, frozen=True):
    """A step function.

    Args:
        samples: `time_ns` (on the trace's clock) and `value`, by time.
        left_out: values that are missing because there are too many: each part of the time has
            its largest.
    """

    name: str
    unit: str
    samples: pl.DataFrame
    left_out: int = 0

    def thinned(self, most: int) -> Counter:
        """The counter with so many values at most: of each of equal parts of the time the largest.

        The last value stays, with which the counter ends.
        """
        count = len(self.samples)
        if count <= most:
            return self
        time = pl.col("time_ns")
        length = pl.max_horizontal(time.max() - time.min(), 1)
        part = (time - time.min()).cast(pl.Float64) / length * (most - 1)
        kept = (
            self.samples.head(count - 1)
            .with_columns(part=part.floor().cast(pl.Int64).clip(upper_bound=most - 2))
            .group_by("part", maintain_order=True)
            .agg(pl.all().sort_by("value", "time_ns", descending=[True, False]).first())
            .drop("part")
            .select(self.samples.columns)
        )
        kept = pl.concat([kept, self.samples.tail(1)])
        return Counter(self.name, self.unit, kept, self.left_out + count - len(kept))


def device_counters(account: DeviceTimeline) -> list[Counter]:
    """The counters of a device; those of which the trace says nothing are left out."""
    ops = account.ops
    found = [Counter("launch queue", "launches", steps.launch_queue(ops))]
    copies = steps.copy_bandwidth(ops).partition_by("kind", as_dict=True, maintain_order=True)
    found += [
        Counter(f"copy bandwidth {kind}", "GB/s", samples.drop("kind"))
        for (kind,), samples in copies.items()
    ]
    found += [
        Counter("collective bus bandwidth", "GB/s", steps.collective_bandwidth(ops)),
        Counter("SM occupancy (estimated)", "%", steps.occupancy(ops)),
    ]
    return [counter.thinned(MOST_SAMPLES) for counter in found if len(counter.samples)]
