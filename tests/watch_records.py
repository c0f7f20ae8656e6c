"""A record of a watched run with everything that one can have, and the columns of runs."""

from __future__ import annotations

import numpy as np

from traceprobe.capture.watch.rows import Kind
from traceprobe.records.watch import (
    PaceStretch,
    ReadingStrip,
    RunEvent,
    ShortCapture,
    StepStrip,
    Watch,
    WatchedRank,
)
from traceprobe.watch.processes import Process


def make_watch() -> Watch:
    """Of two ranks: a checkpoint now and then, and a lower clock from step 200 on."""
    ranks = [
        WatchedRank(
            rank=rank,
            device="NVIDIA H200",
            ended=not rank,
            steps=400,
            step_ms=84.0,
            wait_share=0.02,
            paused_s=0.4,
            sm_mhz=1590.0,
            lowest_sm_mhz=1200.0,
            peak_bytes=30 << 30,
            rss_bytes=8 << 30,
        )
        for rank in range(2)
    ]
    event = RunEvent(
        cause="checkpoint",
        what="checkpoint: every 100th step, 1,800 ms",
        count=4,
        steps=[100, 200, 300, 399],
        at_s=[8.4, 18.0, 29.0, 40.0],
        lost_s=7.2,
        longest_ms=1900.0,
        longest_step=300,
        every_steps=100,
        every_s=None,
        rank=1,
    )
    pace = [
        PaceStretch(first=0, last=199, at_s=0.0, step_ms=84.0, lost_s=0.0),
        PaceStretch(
            first=200,
            last=399,
            at_s=18.6,
            step_ms=121.0,
            lost_s=7.4,
            cause="clock",
            why="GPU clock 1,980 → 1,200 MHz (sw_power_cap)",
        ),
    ]
    return Watch(
        schema_version="1.0",
        traceprobe_version="0.1.0",
        program="train",
        headline="Most time was lost to this: checkpoint: every 100th step, 1,800 ms.",
        ended="was killed by SIGKILL",
        exit_code=137,
        seconds=60.0,
        watched_s=48.0,
        steps=400,
        step_ms=84.0,
        ranks=ranks,
        pace=pace,
        events=[event],
        strip=StepStrip(
            at_s=[16.8, 48.0],
            first=[0, 200],
            least_ms=[80.0, 118.0],
            median_ms=[84.0, 121.0],
            most_ms=[1884.0, 2021.0],
            wait_ms=[1.5, 1.5],
        ),
        readings=ReadingStrip(
            at_s=[16.8, 48.0],
            sm_mhz=[1980.0, 1200.0],
            power_w=[480.0, None],
            temperature_c=[61.0, 70.0],
            reserved_bytes=[2.0**34, 2.0**34],
            rss_bytes=[2.0**33, 2.0**33],
        ),
        captures=[
            ShortCapture(
                step=210,
                steps=6,
                reason="rhythm",
                why="every 100th step is long, 240 ms the last time; step 212 was due",
                file="step-210.json.gz",
                headline="I/O-bound: 61 % of the time goes to loading and copying.",
                bound="io",
                confidence=0.8,
                advice="Give the loader more workers.",
            ),
            ShortCapture(
                step=320,
                steps=6,
                reason="interval",
                why="at the interval that was asked for",
                file="step-320.json.gz",
                headline="it could not be analysed; `traceprobe analyze` says why",
            ),
        ],
        captures_lost_s=1.4,
        notes=["rank 1 was ended from outside: up to a second of steps before that is missing"],
    )


def process(ms, *, rank=0, wait_ms=None, events=(), readings=None, throttled=None, workers=2):
    """A process whose steps took so long.

    Args:
        events: kind, step, number of what, and ms of each.
        readings: columns at the ends of the steps.
    """
    ms = np.asarray(ms, float)
    count = np.ones(ms.size, np.int64)
    end_ns = np.round(np.cumsum(ms) * 1e6).astype(np.int64)
    rows = {kind: np.empty((0, 4), np.int64) for kind in Kind if kind != Kind.STEP}
    for kind, step, many, took in events:
        row = [[step, many, end_ns[step], round(took * 1e6)]]
        rows[kind] = np.concatenate([rows[kind], np.array(row, np.int64)])
    columns = {"at_ns": end_ns.astype(float), **(readings or {})}
    return Process(
        rank=rank,
        device=None,
        workers=workers,
        ended=True,
        began_ns=0,
        number=np.arange(ms.size),
        count=count,
        end_ns=end_ns,
        ms=ms,
        wait_ms=np.zeros(ms.size) if wait_ms is None else np.asarray(wait_ms, float),
        longest_ms=ms.copy(),
        events=rows,
        readings=columns,
        throttled=throttled or [frozenset()] * ms.size,
    )
