"""Damage traces at random and analyse them: nothing may happen but a report or a clean error.

    python -m tests.fuzzing [--inputs 100000] [--seconds S] [--seed N] [--keep DIR] [BASE …]

Bases are the sample traces and, where there is one, the corpus. Every input is made from a
number, so that `--seed N --inputs 1` makes it again. An input fails if analysis raises anything
but an error of traceprobe's own, breaks the contract of report.json, or takes longer or more
memory than the limits. Failing inputs are left in `--keep`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzzing.harness import bases, run


def main(arguments: list[str] | None = None) -> int:
    """Command line; 1 where an input failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bases", nargs="*", type=Path)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    keep = given.keep or Path(tempfile.mkdtemp(prefix="traceprobe-fuzzing-"))
    keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    done = run(given.bases or bases(), given.seed, given.inputs, given.seconds, keep, given.jobs)
    bad = [outcome for outcome in done if outcome.word in ("crash", "hang")]
    shown: Counter[str] = Counter()
    for outcome in bad:
        last = outcome.detail.strip().splitlines()[-4:]
        shown["\n".join(last)] += 1
    for text, count in shown.most_common(20):
        print(f"{count} x\n{text}\n", file=sys.stderr)
    words = Counter(outcome.word for outcome in done)
    print(
        f"{len(done)} inputs in {time.monotonic() - began:.0f} s: {words['report']} reports, "
        f"{len(done) - words['report'] - len(bad)} clean errors, crashes {words['crash']}, "
        f"hangs {words['hang']}, slowest {max((o.seconds for o in done), default=0):.2f} s, "
        f"largest memory {max((o.peak_bytes for o in done), default=0) / 1e6:.0f} MB"
    )
    if bad:
        print(
            f"seeds {', '.join(str(o.seed) for o in bad[:20])}; inputs in {keep}", file=sys.stderr
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
