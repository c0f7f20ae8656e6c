"""What a case left, made small: names carried over, exported, cut to a few steps."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.slowbench.cases import ACTIVE, Case
from benchmarks.slowbench.cut import cut
from benchmarks.slowbench.worker import LAST_CHARACTERS, RESULT
from traceprobe.capture.blame.embed import embed_names
from traceprobe.capture.process import nsys_tool
from traceprobe.capture.recording.recording_plan import trace_name

DONE = "kept"


def read_result(folder: Path) -> dict[str, Any]:
    """What the process of a case left; what it printed last where it left nothing."""
    try:
        return dict(json.loads((folder / RESULT).read_text()))
    except (OSError, ValueError):
        said = (folder / "output").read_text(errors="replace")
        return {"failed": said[-LAST_CHARACTERS:] or "it ended", "blocks": {}}


def finish(case: Case, folder: Path, tool: str | None) -> None:
    """Leave the files of a case in its folder `kept`; what went wrong goes into its result."""
    path = folder / RESULT
    kept = folder / DONE
    kept.mkdir()
    began = time.monotonic()
    result = read_result(folder)
    try:
        if not result["failed"]:
            result["finish"] = _made_small(case, folder, kept, tool)
    except Exception:
        result["failed"] = traceback.format_exc()[-LAST_CHARACTERS:]
    result["finish_s"] = round(time.monotonic() - began, 2)
    path.write_text(json.dumps(result))


def _made_small(case: Case, folder: Path, kept: Path, tool: str | None) -> dict[str, Any]:
    if case.backend == "torch":
        ranks = range(case.ranks)
        names = [reason for reason in (embed_names(folder, rank) for rank in ranks) if reason]
        traces = [folder / trace_name(rank) for rank in ranks]
    else:
        names, traces = [], [folder / "run.sqlite"]
        nsys_tool.export_sqlite(folder / "run.nsys-rep", traces[0], tool)
        nsys_tool.embed_sidecars(traces[0], nsys_tool.read_sidecars(folder))
    steps = cut(traces, kept, ACTIVE, case.period)
    size = sum(path.stat().st_size for path in kept.iterdir())
    return {"steps": steps, "bytes": size, "names": names}
