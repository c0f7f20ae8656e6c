"""Records a program as `traceprobe profile -- PROGRAM …` does, and leaves the analysis to others.

    python record_one.py FOLDER PROGRAM …

That needs PyTorch alone, which is all that a machine with GPUs may have.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parents[1])

from traceprobe.capture.recording.recording_plan import RecordingPlan  # noqa: E402
from traceprobe.capture.recording.run_recording import RecordingRequest, run_recording  # noqa: E402
from traceprobe.errors import TraceprobeError  # noqa: E402


def main() -> None:
    """Record the program of the command line."""
    folder, *program = sys.argv[1:]
    request = RecordingRequest(program, RecordingPlan(blame=True, workload={"name": "injected"}))
    try:
        run_recording(request, Path(folder), lambda _: None, print)
    except TraceprobeError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
