"""GPU time by operator, as Holistic Trace Analysis, TraceLens and traceprobe tell it.

    python -m venv HTA && HTA/bin/pip install traceinsight==0.6.1 pandas==2.3.3 psutil pyyaml
    python -m venv TL && TL/bin/pip install ./TraceLens    # a checkout: PyPI's is another project
    python benchmarks/operator_tables.py compare FOLDER --hta HTA --tracelens TL
    python benchmarks/operator_tables.py page              # operator-tables.md from the results

`compare` writes `operator-tables.json` in docs/validation. FOLDER has the traces under
`OWNER/REPOSITORY/PATH`, as `TRACES` names them: checkouts of the two projects, whose own test
traces they are. They are no part of this repository.

All three tables are made of the whole capture: each GPU operation counts for the innermost
operator around its launch, with its duration. (`traceprobe top` counts time that overlaps once, and
the used iterations only; the operator is found by the same function.) What the tools say of single
operations is compared too, which tells where a difference is from.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import traceprobe  # noqa: E402
from traceprobe.model.codes import UNKNOWN, Kind  # noqa: E402
from traceprobe.model.events import rows_of  # noqa: E402
from traceprobe.timeline.operators import launching_operators  # noqa: E402

RESULTS = ROOT / "docs" / "validation" / "operator-tables.json"
TRACES = {
    "facebookresearch/HolisticTraceAnalysis": (
        "tests/data/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
        "tests/data/nccl_parser_config/nccl_data.json.gz",
        "tests/data/trace_diff/test/test.json.gz",
        "tests/data/negative_queue_length_values_check/rank0.json.gz",
    ),
    "AMD-AGI/TraceLens": (
        "tests/traces/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
        "tests/traces/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
        "tests/traces/mi300/resnet_act_checkpoint.json.gz",
    ),
}
TOLERANCE = 0.01
NO_OPERATOR = "(no operator)"

HTA = """
import json, sys
from hta.common.trace_call_graph import CallGraph
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
    _, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, num_kernels=10**9, duration_ratio=1.0, include_memory_kernels=True
    )
    CallGraph(analysis.t)
    events, names = analysis.t.get_trace(0), analysis.t.symbol_table.get_sym_table()
    events = events.set_index("index")
    category, name, parent, called = (
        events[c].to_dict() for c in ("cat", "name", "parent", "index_correlation")
    )
    rows = []
    for index, row in events[events["stream"] != -1].iterrows():
        at = called[index]
        while at in category and names[category[at]] != "cpu_op":
            at = parent[at]
        operator = names[name[at]] if at in category else None
        rows.append([operator, names[row["name"]], int(row["correlation"]), float(row["dur"])])
    table = {}
    for operator, _, _, us in rows:
        count, total = table.get(operator, (0, 0.0))
        table[operator] = (count + 1, total + us)
    json.dump(
        {
            "rows": rows,
            "operators": [[o, n, us] for o, (n, us) in table.items()],
            "kernels": dict(zip(kernels["name"], kernels["sum (us)"])),
        },
        open(sys.argv[2], "w"),
    )
"""
"""Operators are those of its call graph: the nearest above the call that launched an operation."""

TRACELENS = """
import json, sys
from TraceLens import TreePerfAnalyzer

tree = TreePerfAnalyzer.from_file(sys.argv[1])
launchers = tree.get_df_kernel_launchers()
table = tree.get_df_kernel_launchers_summary(launchers)
counts = launchers.groupby("name")["direct_kernel_count"].sum()
operators = [
    [name, int(counts[name]), float(us)]
    for name, us in zip(table["name"], table["total_direct_kernel_time_sum"])
]
rows = []
for launcher in tree.get_kernel_launchers(include_nccl=True):
    # What it found above single operations: its details of them have no correlation.
    for uid in launcher["gpu_events"]:
        event = tree.tree.get_UID2event(uid)
        call = tree.tree.get_parent_event(event)
        above = tree.tree.get_parent_event(call)
        direct = call is launcher or (above is not None and above["UID"] == launcher["UID"])
        if direct:
            is_operator = launcher.get("cat") == "cpu_op"
            rows.append([
                launcher["name"] if is_operator else None,
                event["name"], int(event["args"]["correlation"]), float(event["dur"]),
            ])
json.dump({"rows": rows, "operators": operators, "kernels": {}}, open(sys.argv[2], "w"))
"""
"""Operators are those of its table of kernel launchers, which leaves collectives out."""

Row = tuple[str, str, int, float]
"""Operator that launched a GPU operation, its own name, correlation and duration in µs."""
Sums = dict[str, tuple[int, float]]
"""Operations and µs by name."""

COLLECTIVE = "collectives, which its table leaves out"
NO_LAUNCH = "no launch in the trace"
LEFT_OUT = "left out, with a launch"
ONCE = "overlap counts once"
ROUNDED = "rounded"
ELSEWHERE = "it says {}"
WHY = {
    COLLECTIVE: "TraceLens' table of launchers is made without communication, by design. HTA has "
    "the same operations, under the same operator as here.",
    NO_LAUNCH: "The call that launched these operations is not in the trace, since it came before "
    "the capture. They ran in it, and this table has them without an operator; both tools drop "
    "them without a word, so that their totals are short by as much. (HTA does where a trace has "
    "two steps or more.)",
    LEFT_OUT: "The trace has the call with the correlation number of the operation. TraceLens "
    "follows only flow events of the category `ac2g` instead: older traces call it "
    "`async_cpu_to_gpu`, and in the trace of the MI300 `hipMemsetAsync` has none. HTA counts the "
    "same operations for the same operators as here.",
    ROUNDED: "TraceLens computes ends of operations in µs since 1970 as floating-point numbers, "
    "which are 0.25 µs apart there. Operations of 2 µs gain or lose an eighth. The durations "
    "themselves are in the trace.",
    "it says": "A call of CUDA that by rounded times ends after its operator: TraceLens gives it "
    "to the next operator above. It began in this one, and HTA says so too.",
}
"""What was found behind each kind of difference."""


def own_rows(path: Path) -> tuple[list[Row], set[tuple[str, int]], set[tuple[str, int]]]:
    """GPU operations as traceprobe reads them.

    Returns:
        (rows, collectives, unlaunched): the latter as name and correlation.
    """
    trace = traceprobe.load(path)
    rows: list[Row] = []
    collectives, unlaunched = set(), set()
    for pid in trace.gpu_ops["pid"].unique().to_list():
        ops = rows_of(trace.gpu_ops, "pid", pid)
        operators = launching_operators(ops, rows_of(trace.host_operators, "pid", pid))
        for op, operator in zip(ops.iter_rows(named=True), operators.tolist(), strict=True):
            name = trace.names[op["name"]]
            launcher = NO_OPERATOR if operator == UNKNOWN else trace.names[operator]
            rows.append((launcher, name, op["correlation"], (op["t1"] - op["t0"]) / 1e3))
            key = (name, op["correlation"])
            if op["kind"] == Kind.COMM:
                collectives.add(key)
            if not op["linked"]:
                unlaunched.add(key)
    return rows, collectives, unlaunched


def summed(rows: Iterable[Row], by: int = 0) -> Sums:
    """Operations and time by a column of the rows."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row[by]].append(row[3])  # type: ignore[index]
    return {name: (len(times), float(np.sum(times))) for name, times in found.items()}


def their_rows(venv: Path, program: str, path: Path) -> dict[str, Any] | str:
    """What a tool's worker wrote, or the last line of its error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        done = subprocess.run(
            [venv / "bin" / "python", "-c", program, path.resolve(), out],
            env=os.environ | {"HTA_DISABLE_NS_ROUNDING": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    found["rows"] = [(o or NO_OPERATOR, name, n, us) for o, name, n, us in found["rows"]]
    # TraceLens lists the call of CUDA itself where no operator made it.
    launchers = {o for o, _, _, _ in found["rows"]}
    sums: Sums = {}
    for operator, count, us in found["operators"]:
        key = operator if operator in launchers else NO_OPERATOR
        before = sums.get(key, (0, 0.0))
        sums[key] = (before[0] + count, before[1] + us)
    found["operators"] = sums
    return found


def differs(ours: float, theirs: float) -> bool:
    """Whether two numbers are more than the tolerance apart."""
    return abs(ours - theirs) > TOLERANCE * max(abs(ours), abs(theirs))


def compared(path: Path, venv: Path, program: str) -> dict[str, Any]:
    """One trace, one tool: totals, operators that differ, and why."""
    rows, collectives, unlaunched = own_rows(path)
    found = their_rows(venv, program, path)
    if isinstance(found, str):
        return {"error": found}
    ours, theirs = summed(rows), found["operators"]
    reasons = _reasons(rows, found, collectives, unlaunched)
    table = []
    for name in sorted({*ours, *theirs}, key=lambda n: -ours.get(n, (0, 0.0))[1]):
        own, other = ours.get(name, (0, 0.0)), theirs.get(name, (0, 0.0))
        if own[0] != other[0] or differs(own[1], other[1]):
            because = reasons.get(name, {})
            table.append(
                {
                    "operator": name,
                    "ours": _written(own),
                    "theirs": _written(other),
                    "because": {why: _written(sums) for why, sums in because.items()},
                }
            )
    present = {(name, correlation) for _, name, correlation, _ in found["rows"]}
    kernels = _kernels([row for row in rows if row[1:3] in present], found["kernels"])
    return {
        "ours": _written((len(rows), sum(us for *_, us in rows))),
        "theirs": _written(tuple(map(sum, zip(*theirs.values(), strict=True)))),  # type: ignore[arg-type]
        "operators": len({*ours, *theirs}),
        "same": len({*ours, *theirs}) - len(table),
        "differ": table,
        **({"kernels": kernels} if kernels else {}),
    }


def _written(sums: tuple[int, float]) -> dict[str, float]:
    return {"operations": sums[0], "ms": round(sums[1] / 1e3, 4)}


def _reasons(
    rows: list[Row],
    found: dict[str, Any],
    collectives: set[tuple[str, int]],
    unlaunched: set[tuple[str, int]],
) -> dict[str, dict[str, tuple[int, float]]]:
    """By operator: what became of the operations that the other table counts elsewhere or not."""
    theirs: dict[tuple[str, int], list[str]] = defaultdict(list)
    for operator, name, correlation, _ in found["rows"]:
        theirs[name, correlation].append(operator)
    by_reason: dict[tuple[str, str], list[float]] = defaultdict(list)
    in_table = set(found["operators"])
    for operator, name, correlation, us in rows:
        key = (name, correlation)
        said = theirs[key].pop() if theirs[key] else None
        if said == operator and (key not in collectives or operator in in_table):
            continue
        if said is None and key in unlaunched:
            why = NO_LAUNCH
        elif key in collectives and (said is None or said == operator):
            why = COLLECTIVE
        elif said is None:
            why = LEFT_OUT
        else:
            why = ELSEWHERE.format(said)
            by_reason[said, f"we say {operator}"].append(us)
        by_reason[operator, why].append(us)
    reasons: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
    for (operator, why), times in by_reason.items():
        reasons[operator][why] = (len(times), float(np.sum(times)))
    direct = summed(found["rows"])
    for operator, (_, us) in found["operators"].items():
        count, summed_us = direct.get(operator, (0, 0.0))
        if count and abs(summed_us - us) > TOLERANCE * us / 2:
            reasons[operator][ONCE if summed_us > us else ROUNDED] = (count, summed_us - us)
    return reasons


def _kernels(rows: list[Row], theirs: Mapping[str, float]) -> dict[str, Any] | None:
    """The table of kernels: how many are the same, and which are not.

    Args:
        rows: operations that the other tool has too.
    """
    if not theirs:
        return None
    ours = summed(rows, by=1)
    differ = {
        name: [ours.get(name, (0, 0.0))[1] / 1e3, theirs.get(name, 0.0) / 1e3]
        for name in {*ours, *theirs}
        if differs(ours.get(name, (0, 0.0))[1], theirs.get(name, 0.0))
    }
    most = sorted(differ.items(), key=lambda pair: -max(pair[1]))[:10]
    return {
        "same": len({*ours, *theirs}) - len(differ),
        "names": len({*ours, *theirs}),
        "differ": {name[:100]: [round(ms, 4) for ms in pair] for name, pair in most},
    }


def compare(folder: Path, tools: dict[str, tuple[Path, str]]) -> list[dict[str, Any]]:
    """Every trace by every tool."""
    return [
        {"repository": repository, "file": name, "tool": tool}
        | compared(folder / repository / name, venv, program)
        for repository, names in TRACES.items()
        for name in names
        for tool, (venv, program) in tools.items()
    ]


HEAD = """# Operator tables of other tools

GPU time by operator on traces that Holistic Trace Analysis (HTA) and TraceLens keep for their own
tests, as each of the two tells it and as traceprobe does. Each GPU operation of the whole capture
counts for the innermost operator around its launch.

This page is made by `python benchmarks/operator_tables.py page` from
[`operator-tables.json`](operator-tables.json); the same program makes the comparison and says how
to get the tools. The traces are not kept here.

An operator is *the same* where the number of operations is equal and their time is within 1 %.

| trace | tool | operators | the same | GPU time, ms | theirs, ms | kernels, the same |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
"""


def page(results: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    lines, differences, kinds = [], [], set()
    for found in results:
        address = f"https://github.com/{found['repository']}/blob/main/{found['file']}"
        trace = f"[`{_short(found['file'])}`]({address})"
        if "error" in found:
            lines.append(f"| {trace} | {found['tool']} | | | | fails: `{found['error'][:80]}` | |")
            continue
        kernels = found.get("kernels")
        cells = [
            trace,
            found["tool"],
            found["operators"],
            found["same"],
            f"{found['ours']['ms']:.3f}",
            f"{found['theirs']['ms']:.3f}",
            f"{kernels['same']} of {kernels['names']}" if kernels else "",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        for operator, ours, theirs, because in _differences(found["differ"]):
            kinds |= {_kind(why) for why in because}
            told = "; ".join(f"{why} ({_amount(sums)})" for why, sums in because.items())
            differences.append(
                f"| `{_short(found['file'])}` | {found['tool']} | {operator} "
                f"| {_amount(ours)} | {_amount(theirs)} | {told} |"
            )
    said = [f"- **{kind}**: {text}" for kind, text in WHY.items() if kind in kinds]
    return "\n".join(
        [
            HEAD + "\n".join(lines),
            "\n## Every operator that differs\n",
            "Operations, ms. The last column is computed from what the tools say of each single",
            "operation; all of it is in the JSON.\n",
            "| trace | tool | operator | traceprobe | theirs | because |",
            "| --- | --- | --- | ---: | ---: | --- |",
            *differences,
            "\n## What is behind it\n",
            *said,
            "\nKernels are those of HTA's `get_gpu_kernel_breakdown`, by name, over the operations",
            "that it keeps. It ran with `HTA_DISABLE_NS_ROUNDING=1`; without that it rounds starts",
            "up and ends down to whole microseconds.",
            "",
        ]
    )


def _short(file: str) -> str:
    """A name that fits a table: without the folders of all, and what follows a dot."""
    path = Path(file)
    return "/".join([*path.parts[2:-1], path.name.partition(".")[0]])


def _differences(
    rows: list[dict[str, Any]],
) -> list[tuple[str, dict[str, float], dict[str, float], dict[str, dict[str, float]]]]:
    """Rows of the page: operators that are wholly left out for one reason are one row."""
    alike = [row for row in rows if list(row["because"]) == [LEFT_OUT]]
    alike = [row for row in alike if not row["theirs"]["operations"]]
    if len(alike) > 1:
        ours = {key: sum(row["ours"][key] for row in alike) for key in ("operations", "ms")}
        names = ", ".join(f"`{row['operator']}`" for row in alike[:3])
        summed_up = [
            (
                f"{len(alike)} operators: {names}, …",
                ours,
                {"operations": 0, "ms": 0.0},
                {LEFT_OUT: ours},
            )
        ]
        rows = [row for row in rows if row not in alike]
    else:
        summed_up = []
    return summed_up + [
        (f"`{row['operator']}`", row["ours"], row["theirs"], row["because"]) for row in rows
    ]


def _kind(why: str) -> str:
    return "it says" if why.startswith(("it says", "we say")) else why


def _amount(sums: Mapping[str, float]) -> str:
    return f"{sums['operations']}, {sums['ms']:.3f}"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    comparison = commands.add_parser("compare")
    comparison.add_argument("folder", type=Path)
    comparison.add_argument("--hta", type=Path, metavar="VENV")
    comparison.add_argument("--tracelens", type=Path, metavar="VENV")
    commands.add_parser("page")
    options = parser.parse_args()
    if options.command == "compare":
        given = {"HTA": (options.hta, HTA), "TraceLens": (options.tracelens, TRACELENS)}
        tools = {
            name: (venv.absolute(), program) for name, (venv, program) in given.items() if venv
        }
        found = compare(options.folder, tools)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    RESULTS.with_suffix(".md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
