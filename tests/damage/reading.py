"""Reading damaged files as a user does: what came of it, and what must not."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.damage import kineto, nsight
from tests.report_rules import problems

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """A base, the name of a damage, and the number that the rest is decided by."""

    base: Path
    damage: str
    seed: int

    def __str__(self) -> str:
        return f"{self.base.name}: {self.damage}"


@dataclass(frozen=True)
class Outcome:
    """`word` is "report", "refused", or "wrong" with the reason in `detail`."""

    case: str
    word: str
    detail: str = ""


def bases() -> list[Path]:
    """The sample traces, and the corpus where there is one."""
    corpus = Path(os.environ.get("TRACEPROBE_CORPUS") or ROOT.parent / "shared" / "corpus")
    found = sorted((ROOT / "sample_traces").glob("*.gz"))
    return found + sorted(p for folder in ("kineto", "nsys") for p in (corpus / folder).glob("*"))


def cases(files: list[Path], each: int) -> list[Case]:
    """So many kinds of damage of each file; together the files go through all kinds in turn."""
    found = []
    turns = {"kineto": 0, "nsight": 0}
    for file in files:
        family = "nsight" if ".sqlite" in file.name else "kineto"
        kinds = list((nsight if family == "nsight" else kineto).DAMAGE)
        for _ in range(each):
            turn = turns[family]
            found.append(Case(file, kinds[turn % len(kinds)], turn))
            turns[family] += 1
    return found


def make(case: Case) -> bytes:
    """The damaged file."""
    data = case.base.read_bytes()
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    family = nsight if ".sqlite" in case.base.name else kineto
    return family.DAMAGE[case.damage](plain, Random(case.seed))


def read(folder: Path, case: Case | Path) -> Outcome:
    """Read one file; those that went wrong stay in the folder."""
    if isinstance(case, Path):
        return attempt(case.name, case)
    stem = case.base.name.removesuffix(".gz")
    path = folder / f"{case.seed}-{case.damage}-{stem}"
    path.write_bytes(make(case))
    outcome = attempt(str(case), path)
    if outcome.word != "wrong":
        path.unlink()
    return outcome


def attempt(name: str, path: Path) -> Outcome:
    """Analyse a file by the program's own entry, in this process."""
    out, err = io.BytesIO(), io.StringIO()
    code = _run(["analyze", str(path), "-o", "-"], out, err)
    words = err.getvalue()
    if "Traceback" in words or "internal error" in words:
        return Outcome(name, "wrong", words[-2000:])
    if code == 0:
        broken = problems(out.getvalue().decode())
        return Outcome(name, "wrong" if broken else "report", "; ".join(broken[:3]))
    if code != 2 or words.count("\n") != 1 or path.name not in words:
        return Outcome(name, "wrong", f"exit code {code}: {words[-2000:]}")
    return Outcome(name, "refused", words.strip())


def _run(arguments: list[str], out: io.BytesIO, err: io.StringIO) -> object:
    from traceprobe.cli import main

    with _arguments(arguments), contextlib.redirect_stderr(err):
        text = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(text):
            try:
                main()
            except SystemExit as stop:
                return stop.code or 0
            except BaseException:
                err.write(traceback.format_exc())
                return "an exception"
            finally:
                text.detach()
    return "no exit"


@contextlib.contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, ["traceprobe", *arguments]
    try:
        yield
    finally:
        sys.argv = before
