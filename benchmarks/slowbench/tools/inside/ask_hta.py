"""Asks Holistic Trace Analysis in its own environment: `ask_hta.py OUT RANK0 [RANK1 …]`.

The analyses of its documentation, with their defaults, as JSON; of one that fails, why. Nothing of
this project is imported: its environment has nothing of it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402


def main(out: str, files: list[str]) -> None:
    """Write what each analysis returns."""
    analysis = TraceAnalysis(trace_files=dict(enumerate(files)), trace_dir="")
    asked = {
        "temporal": lambda: records(analysis.get_temporal_breakdown(visualize=False)),
        "kernels": lambda: records(analysis.get_gpu_kernel_breakdown(visualize=False)[0]),
        "idle": lambda: records(analysis.get_idle_time_breakdown(visualize=False)[0]),
    }
    if len(files) > 1:
        asked["stragglers"] = lambda: [int(n) for n in analysis.get_potential_stragglers()]
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except Exception as error:  # whatever another project raises is its answer
            found[name] = {"failed": repr(error)[:300]}
    Path(out).write_text(json.dumps(found))


def records(frame: Any) -> Any:
    """The rows of a frame with the types of JSON."""
    return json.loads(frame.to_json(orient="records"))


main(sys.argv[1], sys.argv[2:])
