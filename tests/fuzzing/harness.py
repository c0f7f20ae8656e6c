"""The loop of fuzzing: inputs made from numbers, worked on by processes with limits."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import traceprobe
from tests.fuzzing import kineto, nsight
from tests.report_rules import problems
from traceprobe.errors import TraceprobeError

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 20
LIMIT_BYTES = 3 << 30
PAGES = 25
"""One report in so many is written as HTML and Markdown, too."""


class Slow(BaseException):
    """An input took too long; no handler of `Exception` may swallow it."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input: "report", the name of a clean error, "crash" or "hang"."""

    seed: int
    word: str
    seconds: float
    peak_bytes: int
    detail: str = ""


def bases() -> list[Path]:
    """The sample traces, and the corpus where there is one."""
    corpus = Path(os.environ.get("TRACEPROBE_CORPUS", ROOT.parent / "shared" / "corpus"))
    found = sorted((ROOT / "sample_traces").glob("*.gz"))
    return found + sorted(p for folder in ("kineto", "nsys") for p in (corpus / folder).glob("*"))


def make(files: list[Path], seed: int) -> tuple[str, bytes]:
    """The input of a number: a name that says what it was made of, and its bytes."""
    name, data = made(files, Random(seed))
    return f"{seed}-{name}", data


def made(files: list[Path], random: Random) -> tuple[str, bytes]:
    """An input that chance makes: the name of its base, and its bytes."""
    base = random.choice(files)
    if ".sqlite" in base.name:
        data = nsight.mutate(_export(base), random)
    else:
        data = kineto.damage(_trace(base), random)
    return base.name, data


def _unpacked(base: Path) -> bytes:
    data = base.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def thinned(files: list[Path], folder: Path) -> list[Path]:
    """Copies of the bases that are small enough for every process to keep all of them."""
    found = []
    for base in files:
        small = folder / base.name.removesuffix(".gz")
        try:
            if ".sqlite" in base.name:
                small.write_bytes(nsight.thin(_unpacked(base)))
            else:
                small.write_text(json.dumps(kineto.thin(json.loads(_unpacked(base)))))
        except (ValueError, EOFError, sqlite3.Error):  # a base may be damaged already
            small.write_bytes(base.read_bytes())
        found.append(small)
    return found


@cache
def _trace(base: Path) -> object:
    try:
        return json.loads(base.read_bytes())
    except ValueError:
        return {"traceEvents": []}


@cache
def _export(base: Path) -> bytes:
    return base.read_bytes()


def attempt(path: Path, seed: int) -> str:
    """Analyse one input; the word of its outcome. Anything else that is raised is a crash."""
    try:
        report = traceprobe.analyze(traceprobe.load(path))
    except TraceprobeError as error:
        if not str(error).strip() or "\x1b" in str(error):
            raise AssertionError(f"an error without words, or with escapes: {error!r}") from error
        return type(error).__name__
    text = report.to_json()
    broken = problems(text)
    if broken:
        raise AssertionError(f"report.json: {broken[:3]}")
    if seed % PAGES == 0:
        report.to_html()
        report.to_markdown()
    return "report"


def worker(files: list[Path], seeds: Connection, results: Connection, folder: Path) -> None:
    """Work on numbers until there is none."""
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    signal.signal(signal.SIGALRM, _too_slow)
    while (seed := seeds.recv()) is not None:
        name, data = make(files, seed)
        path = folder / name
        path.write_bytes(data)
        began, word, detail = time.monotonic(), "crash", ""
        try:
            signal.alarm(LIMIT_S)
            word = attempt(path, seed)
        except Slow:
            word, detail = "hang", traceback.format_exc(limit=-6)
        except BaseException:
            detail = traceback.format_exc(limit=-8)
        finally:
            signal.alarm(0)
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if word not in ("crash", "hang"):
            path.unlink()
        results.send(Outcome(seed, word, seconds, peak, detail))


def _too_slow(*_: object) -> None:
    raise Slow


def run(
    files: list[Path], first: int, count: int, seconds: float, keep: Path, jobs: int
) -> list[Outcome]:
    """Outcomes of the numbers from `first` on, until `count` or the time is reached."""
    with tempfile.TemporaryDirectory(prefix="traceprobe-bases-") as folder:
        return _run(thinned(files, Path(folder)), first, count, seconds, keep, jobs)


def _run(
    files: list[Path], first: int, count: int, seconds: float, keep: Path, jobs: int
) -> list[Outcome]:
    context = multiprocessing.get_context("spawn")
    os.environ["POLARS_MAX_THREADS"] = "1"  # each process has a core
    pipes = []
    for _ in range(jobs):
        (seeds_in, seeds_out), (results_in, results_out) = context.Pipe(False), context.Pipe(False)
        arguments = (files, seeds_in, results_out, keep)
        process = context.Process(target=worker, args=arguments, daemon=True)
        process.start()
        pipes.append((process, seeds_out, results_in))
    done: list[Outcome] = []
    began, following = time.monotonic(), first
    waiting: dict[int, tuple[int, float]] = {}
    while True:
        for index, (process, seeds, results) in enumerate(pipes):
            if index in waiting and results.poll():
                done.append(results.recv())
                del waiting[index]
            elif index in waiting and not process.is_alive():
                raise SystemExit(f"the process at seed {waiting[index][0]} died")
            elif index in waiting and time.monotonic() - waiting[index][1] > 3 * LIMIT_S:
                raise SystemExit(f"seed {waiting[index][0]} cannot be interrupted")
            if index not in waiting:
                late = time.monotonic() - began > seconds
                if late or following >= first + count:
                    continue
                seeds.send(following)
                waiting[index] = (following, time.monotonic())
                following += 1
        if not waiting:
            break
        time.sleep(0.0005)
    for process, seeds, _ in pipes:
        seeds.send(None)
        process.join(10)
    return done
