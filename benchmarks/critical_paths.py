"""The critical path, as Holistic Trace Analysis and traceprobe find it in the same steps.

    python -m venv HTA && HTA/bin/pip install traceinsight==0.6.1 pandas==2.3.3 psutil pyyaml
    python benchmarks/critical_paths.py compare FOLDER --hta HTA
    python benchmarks/critical_paths.py page              # critical-paths.md from the results

`compare` writes `critical-paths.json` in docs/validation. FOLDER has the traces under
`OWNER/REPOSITORY/PATH`, as `TRACES` names them: a checkout of HTA, whose own test traces they are.
They are no part of this repository.

HTA analyses one rank from its trace alone, so traceprobe is given that one file, too. Both look at
the same steps: those that traceprobe plays, of which HTA is told the names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from traceprobe.model.codes import UNKNOWN, StreamEvent  # noqa: E402
from traceprobe.model.taxonomy import BUSY_LABELS  # noqa: E402
from traceprobe.records.critical_path import CriticalPath  # noqa: E402
from traceprobe.records.rank import Rank  # noqa: E402
from traceprobe.records.replay import Replay  # noqa: E402

RESULTS = ROOT / "docs" / "validation" / "critical-paths.json"
REPOSITORY = "facebookresearch/HolisticTraceAnalysis"
TRACES = (
    "tests/data/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "tests/data/nccl_parser_config/nccl_data.json.gz",
    "tests/data/negative_queue_length_values_check/rank0.json.gz",
    "tests/data/trace_diff/control/control.json.gz",
    "tests/data/trace_diff/test/test.json.gz",
    "tests/data/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "tests/data/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
)
CLASSES = ("work", "communication", "host", "gaps")
"""What both tell apart: kernels and copies; collectives; the host's own time and its data; and
time between operations or after a launch."""

SAME_PART, MOSTLY = 0.02, 0.85
"""Of a step: how far the same paths may be apart in a class. Of a path: most of it."""
OPEN = "Not told by the table."

HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis

CLASSES = {
    "gpu_compute_bound": "work", "gpu_communication_bound": "communication", "cpu_bound": "host",
    "data_loading": "host", "gpu_kernel_kernel_overhead": "gaps",
    "gpu_kernel_launch_overhead": "gaps",
}

if __name__ == "__main__":
    trace, out, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    analysis = TraceAnalysis(trace_files={0: trace}, include_last_profiler_step=True)
    events, names = analysis.t.get_trace(0), analysis.t.symbol_table.get_sym_table()
    steps = events[[wanted[0].partition("#")[0] in names[n] for n in events["name"]]]
    at = [i for i, n in enumerate(steps["name"]) if names[n] in wanted]
    graph, found = analysis.critical_path_analysis(
        rank=0, annotation=wanted[0].partition("#")[0], instance_id=(min(at), max(at))
    )
    parts = dict.fromkeys(set(CLASSES.values()), 0.0)
    if found:
        table = graph.get_critical_path_breakdown()
        for kind, us in table.groupby("bound_by")["duration"].sum().items():
            if kind:
                parts[CLASSES[kind]] += float(us) / 1e3
    window = steps.iloc[min(at) : max(at) + 1]
    json.dump(
        {
            "found": bool(found),
            "parts": parts,
            "window_ms": float((window["ts"] + window["dur"]).max() - window["ts"].min()) / 1e3,
        },
        open(out, "w"),
    )
"""
"""Its critical path of the named steps, by what HTA says that each piece is bound by, in ms."""


def own_path(path: Path) -> dict[str, Any]:
    """What traceprobe says: ms of a recorded step by class, and what its edges rest on."""
    trace = traceprobe.load(path)
    report = traceprobe.analyze(trace)
    rank = report.ranks[0]
    events = trace.stream_events
    waits = events.filter(events["kind"] == int(StreamEvent.WAIT))
    found: dict[str, Any] = {
        "waits": len(waits),
        "waits_with_record": int((waits["record"] != UNKNOWN).sum()),
    }
    line = report.critical_path
    if not isinstance(line, CriticalPath) or not isinstance(rank.replay, Replay):
        return found | {"error": "no steps that repeat"}
    parts = dict.fromkeys(CLASSES, 0.0)
    for part in line.parts:
        parts[_class(part.part)] += part.ms
    return found | {
        "steps": _played(rank, rank.replay.iterations),
        "step_ms": line.step_ms,
        "parts": {name: round(ms, 3) for name, ms in parts.items()},
        "recorded": line.edges.recorded,
        "inferred": line.edges.inferred,
        "unresolved": line.edges.unresolved,
        "host_factor": line.host_factor,
    }


def _class(part: str) -> str:
    if part in ("host", "data-wait"):
        return "host"
    if part in ("launch", "delay"):
        return "gaps"
    assert part in BUSY_LABELS, part
    return "communication" if part == "communication" else "work"


def _played(rank: Rank, count: int) -> list[str]:
    """Labels of the steps that the replay has: the last used ones that follow each other."""
    used = [iteration for iteration in rank.iterations if iteration.used]
    return [iteration.label for iteration in used[-count:]]


def their_path(venv: Path, path: Path, steps: list[str]) -> dict[str, Any]:
    """What HTA says of the steps, or the last line of its error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        done = subprocess.run(
            [venv / "bin" / "python", "-c", HTA, path.resolve(), out, *steps],
            env=os.environ | {"HTA_DISABLE_NS_ROUNDING": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1]}
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    count = len(steps)
    parts = {name: round(ms / count, 3) for name, ms in found["parts"].items()}
    return {
        "found": found["found"],
        "window_ms": round(found["window_ms"] / count, 3),
        "parts": {name: parts[name] for name in CLASSES},
    }


def compare(folder: Path, venv: Path) -> list[dict[str, Any]]:
    """Every trace."""
    rows = []
    for name in TRACES:
        path = folder / REPOSITORY / name
        ours = own_path(path)
        theirs = their_path(venv, path, ours["steps"]) if "steps" in ours else {}
        rows.append({"file": name, "ours": ours, "theirs": theirs})
        print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


HEAD = """# Critical paths of another tool

The critical path of the same steps as Holistic Trace Analysis (HTA) and as traceprobe find it, on
traces that HTA keeps for its own tests, in ms of a step.

This page is made by `python benchmarks/critical_paths.py page` from
[`critical-paths.json`](critical-paths.json); the same program makes the comparison and says how to
get HTA. The traces are not kept here.

*Work* is kernels and copies, *gaps* time between operations and from a launch to its operation. The
time of traceprobe's path is that of the step. HTA's path is the heaviest way through its graph,
which need not last as long. *Range* is how long the host's range of a step lasts, after which a GPU
that lags may go on.

| trace | tool | path | work | communication | host | gaps | range |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
REST = """
None of these traces with steps has rows of synchronisations (`enable_cuda_sync_events`); HTA warns
of that. traceprobe then tells dependencies between streams by times, and counts those that it
could not tell (`unresolved` in the JSON); gaps that nothing in a trace explains stay gaps.

## What is behind it

{reasons}
- **No steps.** {alone} are forward passes of AlexNet, recorded with such rows. traceprobe
  reads their waits ({known}); it has a path only of steps that repeat.
"""
SAME, HOST = "The same.", "The host, and less than the step."
WHY = {
    SAME: "No class differs by more than 2 % of the step.",
    HOST: "HTA's path is nearly or wholly the host's, and weighs less than the range. In its "
    "graph a kernel hangs on the one before it in its stream only where that ended less than 1.5 "
    "ms before, and on its launch only where nothing was queued; two streams are joined by rows of "
    "synchronisations alone. Without them the chains of a GPU that waits for collectives or for "
    "data are in pieces. The host's chain is not, so it is the heaviest, whether or not the step "
    "ends with it; time between two of its outermost events weighs nothing.",
}


def reason(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Why two paths differ, where what is in the table tells it."""
    total, step = sum(theirs["parts"].values()), ours["step_ms"]
    if all(abs(ours["parts"][c] - theirs["parts"][c]) <= SAME_PART * step for c in CLASSES):
        return SAME
    mostly = theirs["parts"]["host"] >= MOSTLY * total and total < theirs["window_ms"]
    return HOST if mostly else OPEN


def page(results: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    lines: list[str] = []
    found: dict[str, list[str]] = {}
    alone, known = [], []
    for row in results:
        ours, theirs = row["ours"], row["theirs"]
        name = "/".join([*Path(row["file"]).parts[2:-1]])
        address = f"https://github.com/{REPOSITORY}/blob/main/{row['file']}"
        if "error" in ours:
            alone.append(f"[`{name}`]({address})")
            known.append(f"{ours['waits_with_record']} of {ours['waits']} with their record")
            continue
        found.setdefault(reason(ours, theirs), []).append(f"`{name}`")
        for tool, parts, place in (
            ("traceprobe", ours["parts"], f"[`{name}`]({address})"),
            ("HTA", theirs["parts"], ""),
        ):
            total = sum(parts.values())
            lasts = "" if tool == "traceprobe" else f"{theirs['window_ms']:.1f}"
            cells = [place, tool, f"{total:.1f}", *(f"{parts[c]:.1f}" for c in CLASSES), lasts]
            lines.append(f"| {' | '.join(cells)} |")
    reasons = [
        f"- **{why}** {', '.join(names)}. {WHY.get(why, '')}".rstrip()
        for why, names in found.items()
    ]
    said = REST.replace("\n  ", " ")
    rest = said.format(
        reasons="\n".join(reasons), alone=" and ".join(alone), known=" and ".join(known)
    )
    return HEAD + "\n".join(lines) + "\n" + "\n".join(map(_wrapped, rest.splitlines())) + "\n"


def _wrapped(line: str) -> str:
    """A line of the page, a point of a list with its further lines indented."""
    indent = "  " if line.startswith(("- ", "  ")) else ""
    return textwrap.fill(
        line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    comparison = commands.add_parser("compare")
    comparison.add_argument("folder", type=Path)
    comparison.add_argument("--hta", type=Path, metavar="VENV", required=True)
    commands.add_parser("page")
    options = parser.parse_args()
    if options.command == "compare":
        found = compare(options.folder, options.hta.absolute())
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    RESULTS.with_suffix(".md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
