"""Launch queues, launches, copies, overlap and differences, as HTA and traceprobe tell them.

    python -m venv HTA && HTA/bin/pip install traceinsight==0.6.1 pandas==2.3.3 psutil pyyaml
    python -m benchmarks.hta_features compare FOLDER --hta HTA   # writes the JSON
    python -m benchmarks.hta_features page                       # hta-features.md from it

FOLDER is a checkout of Holistic Trace Analysis, whose own test traces these are; they are no part
of this repository. HTA runs with `HTA_DISABLE_NS_ROUNDING=1`, for it otherwise rounds starts up and
ends down to whole microseconds, and with the last step, which it drops by default.

Both tell the whole capture here; what changed between two traces is in `hta_difference.py`. Where
they differ, the numbers are made once more from what HTA looks at, by its rules, which tells where
the difference is from.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

import traceprobe
from benchmarks.hta_counters import COUNTED, counters
from benchmarks.hta_difference import CHANGED, difference
from traceprobe.model.codes import UNKNOWN, Call, Kind
from traceprobe.model.events import Trace
from traceprobe.timeline.counters import copy_bandwidth, launch_queue_by_stream
from traceprobe.timeline.intervals import Intervals, intersect, union
from traceprobe.timeline.launches import launch_times
from traceprobe.timeline.operators import launching_rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "validation" / "hta-features.json"
TRACES = (
    "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "nccl_parser_config/nccl_data.json.gz",
    "trace_diff/control/control.json.gz",
    "trace_diff/test/test.json.gz",
    "negative_queue_length_values_check/rank0.json.gz",
    "df_index_resolver/df_index_resolver.json.gz",
    "timeline_analysis/sampled_rank-0.json.gz",
    "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
)
OPERATOR = ("nccl_parser_config/nccl_data.json.gz", "aten::convolution_backward")
"""A trace, and an operator that launches several kernels itself."""
TOLERANCE = 0.001
OVERLAP = 0.0051
"""Percentage points: HTA rounds to two decimals."""
OF_KIND = {
    "h2d": pl.col("kind") == int(Kind.H2D),
    "d2h": pl.col("kind") == int(Kind.D2H),
    "d2d": pl.col("kind") == int(Kind.D2D),
    "memset": pl.col("kind") == int(Kind.MEMSET),
}
THEIR_KINDS = {"h2d": "Memcpy HtoD", "d2h": "Memcpy DtoH", "d2d": "Memcpy DtoD", "memset": "Memset"}
KNOWN_CALLS = ("LaunchKernel", "LaunchKernelExC", "MemcpyAsync", "MemsetAsync")
"""Ends of the names of the calls that HTA knows, of those in these traces."""

HTA = """
import json, sys
import numpy as np
from hta.trace_analysis import TraceAnalysis

def tried(work):
    try:
        return work()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:120]}"}

def queue():
    series = analysis.get_queue_length_time_series(ranks=[0])[0]
    found = {}
    for stream, rows in series.groupby("stream"):
        ts, length = rows["ts"].to_numpy(float), rows["queue_length"].to_numpy(float)
        found[str(stream)] = {
            "longest": float(length.max()),
            "waiting_ms": float((length[:-1] * np.diff(ts)).sum() / 1e3),
        }
    return found

def launches():
    rows = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    return {
        "count": len(rows),
        "call_us_p50": float(rows["cpu_duration"].median()),
        "delay_us_p50": float(rows["launch_delay"].median()),
        "outlasting": int((rows["gpu_duration"] < rows["cpu_duration"]).sum()),
    }

def copies():
    series = analysis.get_memory_bw_time_series(ranks=[0])
    found = {}
    for name, rows in series[0].groupby("name"):
        rows = rows.sort_values("ts", kind="stable")
        ts, rate = rows["ts"].to_numpy(float), rows["memory_bw_gbps"].to_numpy(float)
        found[name] = {"gigabytes": float((rate[:-1] * np.diff(ts)).sum() / 1e6)}
    return found

def overlap():
    return float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])

def sequences():
    rows = analysis.get_frequent_cuda_kernel_sequences(
        operator_name=sys.argv[2], output_dir=".", rank=0, visualize=False, min_pattern_len=1
    )
    return [[text.split("|")[1:], int(n)] for text, n in zip(rows["pattern"], rows["count"])]

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
    if len(sys.argv) > 3:
        json.dump(sequences(), open(sys.argv[3], "w"))
        sys.exit()
    found = {each.__name__: tried(each) for each in (queue, launches, copies, overlap)}
    json.dump(found, open(sys.argv[2], "w"))
"""


def hta(venv: Path, program: str, *arguments: Path | str) -> Any:
    """What a program that runs with HTA wrote.

    Raises:
        RuntimeError: with the last line of its error.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        done = subprocess.run(
            [venv / "bin" / "python", "-c", program, *map(str, arguments), out],
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            | {"HTA_DISABLE_NS_ROUNDING": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return json.loads(out.read_text(encoding="utf-8"))


def ours(ops: pl.DataFrame) -> dict[str, Any]:
    """The same quantities of some operations of a trace."""
    queues = {}
    for (stream,), rows in launch_queue_by_stream(ops).group_by("stream", maintain_order=True):
        queues[str(stream)] = {
            "longest": float(rows["value"].to_numpy().max()),
            "waiting_ms": _area(rows) / 1e6,
        }
    copies = {
        str(kind): {"gigabytes": _area(rows) / 1e9}
        for (kind,), rows in copy_bandwidth(ops).group_by("kind", maintain_order=True)
    }
    times = launch_times(ops)
    of_comm = ops["kind"] == int(Kind.COMM)
    comm, kernels = _busy(ops.filter(of_comm)), _busy(ops.filter(pl.col("kind") == Kind.KERNEL))
    both = intersect(comm, kernels)
    return {
        "queue": queues,
        "launches": times
        and {
            "count": times.count,
            "call_us_p50": times.call_ns[0] / 1e3,
            "delay_us_p50": times.delay_ns[0] / 1e3,
            "outlasting": times.outlasting,
        },
        "copies": copies,
        "overlap": 100 * _length(both) / _length(comm) if _length(comm) else None,
    }


def _area(rows: pl.DataFrame) -> float:
    """Value times ns."""
    return float((rows["value"][:-1] * rows["time_ns"].diff().drop_nulls()).sum())


def _busy(ops: pl.DataFrame) -> Intervals:
    return union(ops["t0"].to_numpy(), ops["t1"].to_numpy())


def _length(time: Intervals) -> int:
    return int((time.t1 - time.t0).sum())


def as_hta_sees(trace: Trace) -> pl.DataFrame:
    """The operations that HTA's launch analyses look at: those of the calls that it knows."""
    calls = trace.host_calls
    known = [n for n, name in enumerate(trace.names) if name.endswith(KNOWN_CALLS)]
    wanted = calls.filter(pl.col("name").is_in(known))["correlation"].unique()
    return trace.gpu_ops.filter(pl.col("linked") & pl.col("correlation").is_in(wanted.to_list()))


def compare(folder: Path, venv: Path) -> dict[str, Any]:
    """Every trace."""
    data = folder / "tests" / "data"
    results = []
    for name in TRACES:
        trace = traceprobe.load(data / name)
        results.append(
            {
                "file": name,
                "ours": ours(trace.gpu_ops),
                "known_calls": ours(as_hta_sees(trace)),
                "linked": ours(trace.gpu_ops.filter("linked")),
                "bytes": {
                    kind: int(trace.gpu_ops.filter(of, pl.col("bytes") > 0)["bytes"].sum()) / 1e9
                    for kind, of in OF_KIND.items()
                },
                "graph_calls": int((trace.host_calls["call"] == int(Call.GRAPH_LAUNCH)).sum()),
                "unlinked": int((~trace.gpu_ops["linked"]).sum()),
                "hta": hta(venv, HTA, data / name),
            }
        )
    return {
        "traces": results,
        "sequences": _sequences(data / OPERATOR[0], venv),
        "difference": difference([data / name for name in CHANGED], partial(hta, venv)),
        "counters": counters(data / COUNTED, partial(hta, venv)),
    }


def _sequences(path: Path, venv: Path) -> dict[str, Any]:
    """What the calls of one operator launch, and how many launch that, as both tell it."""
    trace = traceprobe.load(path)
    ops = trace.gpu_ops.sort("launch_t0", "t0")
    called = launching_rows(ops, trace.host_operators)
    names = [trace.names[n] for n in ops["name"].to_list()]
    operator = trace.host_operators["name"].to_numpy()
    calls: dict[int, list[str]] = {}
    for row, name in zip(called.tolist(), names, strict=True):
        if row != UNKNOWN and trace.names[operator[row]] == OPERATOR[1]:
            calls.setdefault(row, []).append(name)
    mine = Counter(tuple(kernels) for kernels in calls.values())
    theirs = {tuple(kernels): n for kernels, n in hta(venv, HTA, path, OPERATOR[1])}
    return {
        "calls": len(calls),
        "different": len(mine),
        "hta_different": len(theirs),
        "same": sum(theirs.get(kernels) == n for kernels, n in mine.items()),
    }


HEAD = """# Launches, copies and differences next to those of HTA

Launch queues, launch calls, copies and overlap on traces that Holistic Trace Analysis (HTA) keeps
for its own tests, as HTA and as traceprobe tell them, of the whole capture; and below, what changed
between two of them.

This page is made by `python -m benchmarks.hta_features page` from
[`hta-features.json`](hta-features.json); the same program makes the comparison and says how to get
HTA. The traces are not kept here. *Equal* is within 0.1 %.

| trace | launch queue | launches | overlap | copies |
| --- | --- | --- | --- | --- |
"""
WHY = """
Each cell has what traceprobe says, then HTA's number where it is another one.

- **Launch queue**: launches that wait, summed over the time of all streams, in seconds, and the
  most on one stream (`get_queue_length_time_series`). What is equal is so on every stream.
- **Launches**: their number, the median length of the call and from its end to the start on the
  device, in µs, and how many calls are longer than what they launch
  (`get_cuda_kernel_launch_stats`).
- **Overlap**: part of the time of collectives during which kernels of computation run
  (`get_comm_comp_overlap`).
- **Copies**: GB that bandwidth times time comes to, by kind (`get_memory_bw_time_series`).

## Why some differ

- **Graphs**: HTA knows the calls that launch by twelve names, and `cudaGraphLaunch` is none of
  them. Its queue leaves out graphs; here each is one launch on every stream that it works on. Of
  the launches that HTA knows, both tell the same: {graphs}.
- **No launch in the trace**: HTA drops operations whose call came before the capture, where a trace
  has two steps or more. They ran, so that they count here. Without them, the overlap is
  {linked}.
- **Bytes**: HTA multiplies the bandwidth that the profiler notes, which is from durations in ns, by
  durations in whole µs where that is what the trace has; copies of 0 µs count as 1 µs. The sizes
  that the trace notes of the same copies add up to traceprobe's numbers in all {bytes} cases.
  Copies without a launch in the trace are missing in HTA's.

## Kernels in a row

HTA's `get_frequent_cuda_kernel_sequences` takes the name of an operator and lists the whole series
of kernels that its calls launch, however long they run. The report looks for series by itself: of
short kernels that could be one, across operators ([how](../report-json.md#kernelsequence)). So the
numbers are not comparable, but what both are made of is: which call launched which kernels, in what
order. `{operator}` in `{trace}` has
{calls} calls that launch {different} different series; HTA lists {theirs}, and the count is the
same for {same}.

## What changed between two traces

HTA's `TraceDiff.compare_traces` and `traceprobe compare` on `{control}` and
`{test}`, of the {steps} steps that traceprobe uses. *Equal* means that number and total
duration are, in both traces.

| | told | equal | by HTA's rule |
| --- | --- | --- | --- |
| operators, their calls and time on the host | {operators} | {operators_same} | {calls_by_range} |
| kernels in the lists of both reports | {kernels_listed} | {kernels_listed_same} | |
| all kernels, copies and memsets | {kernels} | | {kernels_by_range} |

- **Operators**: HTA's iteration is the range `ProfilerStep#N`, that of traceprobe goes on until the
  next begins. {between} are called between the ranges, too.
- **Kernels**: a report lists the longest of each trace, and counts a kernel where it starts: in the
  GPU's window of a step, which traceprobe accounts for. HTA counts it in the step of its launch,
  and the GPU lags behind here. HTA also sums a name over all phases, some of which may be too
  short for the report's list.
- Only `compare` has the time on the device of what each operator launches; only `TraceDiff` has
  calls of CUDA and ranges of the program by name.

## Counters of kernels

With `profiler_metrics` the profiler counts what each kernel does and times none. HTA's
`get_cupti_counter_data_with_operators` and `report.frame("kernel_counters")` on `{counted}`:
{counted_kernels} kernels with {counted_metrics} counters each. The counters are the same of
{counted_values} of them, the operator that launched the kernel of {counted_operators}. HTA has a
row for each kernel; the report adds them up by kernel and operator, and says why it has no verdict.
"""


def same(one: float | None, other: float | None) -> bool:
    """Whether two numbers are within the tolerance, or both are missing; HTA has NaN for that."""
    if one is None or other is None or other != other:
        return one is None and (other is None or other != other)
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other), 1e-9)


def queues_agree(one: Any, other: Any) -> bool:
    """On every stream."""
    return set(one) == set(other) and all(
        same(one[s][k], other[s][k]) for s in one for k in ("longest", "waiting_ms")
    )


def _queue(found: Any) -> str:
    seconds = sum(stream["waiting_ms"] for stream in found.values()) / 1e3
    return f"{seconds:.3f} s, {max(stream['longest'] for stream in found.values()):.0f}"


def _launches(found: Any) -> str:
    call, delay = found["call_us_p50"], found["delay_us_p50"]
    return f"{found['count']}: {call:.1f}, {delay:.1f}, {found['outlasting']}"


def _both(mine: str, theirs: str, equal: bool) -> str:
    return mine if equal else f"{mine} (HTA {theirs})"


def _copies(one: Any, other: Any) -> str:
    cells = []
    for kind, theirs in THEIR_KINDS.items():
        if kind in one:
            mine = one[kind]["gigabytes"]
            said = other.get(theirs, {"gigabytes": 0.0})["gigabytes"]
            cells.append(f"{kind} " + _both(f"{mine:.4g}", f"{said:.4g}", same(mine, said)))
    return ", ".join(cells)


def _told(results: Any) -> dict[str, Any]:
    found, changed = results["sequences"], results["difference"]
    counted = results["counters"]
    names = [f"`{name}`" for name in changed["operators_different"]]
    return {
        **changed,
        "control": CHANGED[0].partition(".")[0],
        "test": CHANGED[1].partition(".")[0],
        "between": " and ".join([", ".join(names[:-1]), names[-1]]),
        "operator": OPERATOR[1],
        "trace": OPERATOR[0].partition(".")[0],
        "calls": found["calls"],
        "counted": COUNTED.partition(".")[0],
        **{f"counted_{name.removesuffix('_same')}": number for name, number in counted.items()},
        "different": found["different"],
        "theirs": found["hta_different"],
        "same": "all" if found["same"] == found["different"] else f"{found['same']} of them",
    }


def page(results: Any) -> str:
    """The page in Markdown."""
    lines, graphs, linked, exact = [], [], [], []
    for found in results["traces"]:
        mine, hta_says, known = found["ours"], found["hta"], found["known_calls"]
        name = found["file"].partition(".")[0]
        address = (
            "https://github.com/facebookresearch/HolisticTraceAnalysis/blob/main/tests/data/"
            + found["file"]
        )
        agree = queues_agree(mine["queue"], hta_says["queue"])
        alike = all(same(mine["launches"][k], hta_says["launches"][k]) for k in mine["launches"])
        by_name = queues_agree(known["queue"], hta_says["queue"]) and all(
            same(known["launches"][k], hta_says["launches"][k]) for k in known["launches"]
        )
        if not (agree and alike):
            graphs.append(f"{'yes' if by_name else 'no'} in `{name}`")
        share, said = mine["overlap"], hta_says["overlap"]
        overlap = share is None or abs(share - said) < OVERLAP
        if not overlap:
            without = found["linked"]["overlap"]
            linked.append(f"{without:.2f} % in `{name}`, where HTA says {said:.2f} %")
        exact += [
            abs(mine["copies"][kind]["gigabytes"] - size) <= TOLERANCE * size
            for kind, size in found["bytes"].items()
            if size
        ]
        told = "none" if share is None else _both(f"{share:.2f} %", f"{said:.2f} %", overlap)
        cells = [
            f"[`{name}`]({address})",
            _both(_queue(mine["queue"]), _queue(hta_says["queue"]), agree),
            _both(_launches(mine["launches"]), _launches(hta_says["launches"]), alike),
            told,
            _copies(mine["copies"], hta_says["copies"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if not all(exact):
        raise SystemExit("bandwidths do not add up to the bytes of the copies: explain it first")
    why = WHY.format(
        graphs=", ".join(graphs), linked=";\n  ".join(linked), bytes=len(exact), **_told(results)
    )
    return HEAD + "\n".join(lines) + "\n" + why


def main() -> None:
    """Compare, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("compare")
    made.add_argument("folder", type=Path)
    made.add_argument("--hta", type=Path, required=True)
    commands.add_parser("page")
    chosen = parser.parse_args()
    if chosen.command == "compare":
        results = compare(chosen.folder, chosen.hta)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    else:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        RESULTS.with_suffix(".md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
