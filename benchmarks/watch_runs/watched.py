"""What `traceprobe watch -o RECORD -- PROGRAM` does, without the packages of a command line.

python watched.py RECORD PROGRAM...
"""

from __future__ import annotations

import sys
from pathlib import Path

from traceprobe.capture.process.program import workspace
from traceprobe.capture.watch.run_watch import run_watched
from traceprobe.capture.watch.watch_plan import WatchPlan
from traceprobe.watch.processes import read_processes
from traceprobe.watch.summary import Ended, summarize_watch


def main() -> None:
    """Measure as the arguments say."""
    target, program = Path(sys.argv[1]), sys.argv[2:]
    with workspace(target.parent) as work:
        end = run_watched(program, WatchPlan(), None, work, lambda: None)
        processes = read_processes(work)
    ended = Ended(target.stem, end.words, end.exit_code, end.seconds)
    target.write_text(summarize_watch(processes, ended).to_json())


if __name__ == "__main__":
    main()
