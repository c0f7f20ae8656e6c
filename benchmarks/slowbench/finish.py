"""What a case left, made small: names carried over, exported, cut to a few steps."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.slowbench.cases import Case
from benchmarks.slowbench.cut import cut, public_sidecar
from benchmarks.slowbench.worker import ACTIVE
from traceprobe.capture import nsys_tool
from traceprobe.capture.blame.embed import embed_names
from traceprobe.capture.recording_plan import sidecar_name, trace_name

DONE = "kept"
_LAST_CHARACTERS = 1500


def finish(case: Case, folder: Path, tool: str | None) -> None:
    """Leave the files of a case in its folder `kept`; what went wrong goes into its result."""
    path = folder / "result.json"
    kept = folder / DONE
    kept.mkdir()
    began = time.monotonic()
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        said = (folder / "output").read_text(errors="replace")
        result = {"failed": said[-_LAST_CHARACTERS:] or "it ended", "blocks": {}}
    try:
        if not result["failed"]:
            result["finish"] = _made_small(case, folder, kept, tool)
    except Exception:
        result["failed"] = traceback.format_exc()[-_LAST_CHARACTERS:]
    result["finish_s"] = round(time.monotonic() - began, 2)
    path.write_text(json.dumps(result))


def _made_small(case: Case, folder: Path, kept: Path, tool: str | None) -> dict[str, Any]:
    if case.backend == "torch":
        names = embed_names(folder, 0)
        source, target = folder / trace_name(0), kept / trace_name(0)
        sidecar = public_sidecar(json.loads((folder / sidecar_name(0)).read_text()))
        (kept / sidecar_name(0)).write_text(json.dumps(sidecar, sort_keys=True))
    else:
        names = None
        source, target = folder / "run.sqlite", kept / "run.sqlite.gz"
        nsys_tool.export_sqlite(folder / "run.nsys-rep", source, tool)
        nsys_tool.embed_sidecars(source, nsys_tool.read_sidecars(folder))
    steps = cut(source, target, ACTIVE, case.period)
    return {"steps": steps, "bytes": target.stat().st_size, "names": names}
