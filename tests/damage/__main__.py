"""Damage every sample and corpus file in many ways, and analyse all of it.

    python -m tests.damage [--each 10] [--keep DIR] [--jobs N] [FILE …]

Every outcome must be a report (exit code 0) or one line that says what is wrong (exit code 2).
The last line sums up; the exit code is 1 if there was anything else.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.damage.reading import bases, cases, read


def main(arguments: list[str] | None = None) -> int:
    """Command line; 1 where an outcome was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--each", type=int, default=10, help="damaged copies of each file")
    parser.add_argument("--keep", type=Path, help="where files that went wrong are left")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="also say why files were refused")
    given = parser.parse_args(arguments)
    files = given.files or bases()
    keep = given.keep or Path(tempfile.mkdtemp(prefix="traceprobe-damage-"))
    keep.mkdir(parents=True, exist_ok=True)
    made = cases(files, given.each)
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=50) as pool:
        done = list(pool.imap_unordered(functools.partial(read, keep), [*files, *made]))
    for outcome in sorted(done, key=lambda o: o.case):
        if outcome.word == "wrong":
            print(f"{outcome.case}: {outcome.detail}\n", file=sys.stderr)
        elif given.verbose:
            print(f"{outcome.case}: {outcome.word} {outcome.detail}")
    words = Counter(outcome.word for outcome in done)
    print(
        f"{len(files)} files and {len(made)} damaged copies in {time.monotonic() - began:.0f} s: "
        f"{words['report']} reports, {words['refused']} refused in one line, "
        f"{words['wrong']} anything else"
    )
    if words["wrong"]:
        print(f"what went wrong is in {keep}", file=sys.stderr)
    return 1 if words["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
