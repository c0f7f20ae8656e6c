"""How often verdicts are right that are stated with so much confidence.

    python benchmarks/calibration.py CORPUS [-o docs/validation/calibration.json]
    python benchmarks/calibration.py --page docs/validation/calibration.json    # .md beside it

CORPUS is a folder of traces with a `manifest.json`: a list of objects with `file`, a trace or a
folder of rank traces, and what bounds it: `bound`, or `truth` with the `bounds` that are defensible
and those that it is `never`. Rows that say neither are left out. `run[0].step_ms_plain` is the step
without a profiler, where it was timed beside a PyTorch trace.

The runs of `results.json`, whose bound an ablation measured, are added with the confidence that the
product had in them when they were recorded. So are loops with random parameters, whose bound is
known from these.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import programs_page  # noqa: E402
from tests.random_loops import random_loops  # noqa: E402
from traceprobe.errors import TraceprobeError  # noqa: E402
from traceprobe.ingest.trace_folder import find_traces  # noqa: E402
from traceprobe.options import Options  # noqa: E402
from traceprobe.pipeline.files import analyze_files  # noqa: E402

VALIDATION = ROOT / "docs" / "validation"
RESULTS = VALIDATION / "results.json"
BOUNDS = ("io", "compute", "communication", "overhead", "mixed", "inconclusive")
BINS = ((0.0, 0.3), (0.3, 0.5), (0.5, 0.8), (0.8, 1.0))
NEAR = 0.03
"""Share of the step: closer to its threshold, an ablation does not tell which bound is right."""
CURATED, WILD, MATRIX = "curated traces", "traces as people have them", "hardware matrix"
LOOPS, PROGRAMS = "random loops", "programs as people write them"
SEED, MANY = 20261122, 300

METHOD = (
    "Every trace here has a bound that is known without traceprobe: by an ablation, by how the "
    "program was made, or by a reading of its own. A verdict is *right* if it names that bound, or "
    "one of several that are defensible; a trace without a verdict, or that is refused, "
    "*abstained*. Two things are asked of the confidence: of the verdicts stated with 0.8 and more "
    "95 % are right, of those with 0.5 to 0.8, 80 %. Up to 0.3 a verdict is called possible only."
)
OPEN = (
    "The rules were made with the traces of the corpus in sight: their tables show where the "
    "confidence stands, and are no fresh test. Two rules of the verdict were made with other loops "
    f"like the {MANY} random ones (loops with random parameters, in both formats, with all their "
    "ranges, without those of the steps, or without any); of the seed that is shown here none was "
    "looked at before. No rule was fitted to the hardware matrix."
)
MADE = (
    "This page is made by `python benchmarks/calibration.py CORPUS` from "
    "[`calibration.json`](calibration.json). The hardware matrix is that of "
    "[the validation](README.md), with the confidence stated when it was recorded; its runs closer "
    f"than {100 * NEAR:.0f} points to a threshold of the ablation are left out, and so are runs of "
    "[the programs](programs.md) whose ablation does not tell."
)


@dataclass(frozen=True)
class Row:
    """A trace whose bound is known.

    Args:
        group: which of the tables it is in. bound: `refused` where there was no report.
        accepted: bounds that are right.
    """

    name: str
    group: str
    bound: str
    confidence: float
    accepted: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """`right`, `wrong`, or `abstained`, which is neither."""
        if self.bound in ("inconclusive", "refused"):
            return "abstained"
        return "right" if self.bound in self.accepted else "wrong"


def corpus_rows(corpus: Path) -> Iterator[Row]:
    """Every labelled trace of a corpus, analysed now."""
    for entry in json.loads((corpus / "manifest.json").read_text(encoding="utf-8")):
        accepted = _accepted(entry)
        path = corpus / entry["file"]
        if not accepted or not path.exists():
            continue
        group = WILD if entry["file"].startswith("wild/") else CURATED
        bound, confidence = _judged(path, _unprofiled(entry))
        yield Row(path.name.removesuffix(".gz"), group, bound, confidence, accepted)


def _accepted(entry: Mapping[str, Any]) -> tuple[str, ...]:
    truth = entry.get("truth") or {}
    if truth.get("bounds"):
        return tuple(truth["bounds"])
    if truth.get("never"):
        return tuple(bound for bound in BOUNDS if bound not in truth["never"])
    return (entry["bound"],) if entry.get("bound") else ()


def _unprofiled(entry: Mapping[str, Any]) -> float | None:
    runs = entry.get("run") or []
    return runs[0].get("step_ms_plain") if runs and entry.get("format") == "kineto" else None


def _judged(path: Path, unprofiled_ms: float | None) -> tuple[str, float]:
    files = find_traces(path)[0] if path.is_dir() else [path]
    try:
        verdict = analyze_files(files, Options(unprofiled_step_ms=unprofiled_ms)).verdict
    except TraceprobeError:
        return "refused", 0.0
    return verdict.bound, verdict.confidence


def matrix_rows(results: Mapping[str, Any]) -> Iterator[Row]:
    """Every recording of the hardware matrix that was ablated, far from a threshold."""
    for name, entry in sorted(results.items()):
        oracle = (entry.get("ablation") or {}).get("oracle")
        if oracle is None or oracle["margin"] < NEAR:
            continue
        for backend, verdict in sorted(entry["recordings"].items()):
            stated = verdict["bound"], verdict["confidence"]
            yield Row(f"{name} ({backend})", MATRIX, *stated, (oracle["bound"],))


def loop_rows(count: int, folder: Path) -> Iterator[Row]:
    """Loops of random parameters; `folder` holds one trace at a time."""
    for loop in islice(random_loops(SEED), count):
        path = loop.write(folder)
        bound, confidence = _judged(path, None)
        path.unlink()
        yield Row(loop.name, LOOPS, bound, confidence, (loop.bound,))


def program_rows(results: Mapping[str, Any]) -> Iterator[Row]:
    """Every recording of the programs whose ablation tells whether the verdict is right."""
    for row, backend, verdict in programs_page.rows(results):
        told = programs_page.outcome(row, verdict) in ("right", "wrong")
        if told and "error" not in verdict:
            stated = verdict["bound"], verdict["confidence"]
            yield Row(f"{row['name']} ({backend})", PROGRAMS, *stated, (row["truth"]["bound"],))


def page(rows: Sequence[Row]) -> str:
    """The rows as a page."""
    wrong = sorted((r for r in rows if r.outcome == "wrong"), key=lambda r: -r.confidence)
    lines = ["# Calibration of the confidence", ""]
    for text in (METHOD, OPEN, MADE):
        lines += [*wrap(text, 100), ""]
    for title, chosen in _groups(rows):
        lines += [f"## {title[0].upper()}{title[1:]}", "", *_table(chosen), ""]
    lines += ["## Wrong verdicts", ""]
    lines += [
        f"- {r.name}: {r.bound} at {r.confidence:.2f}, right is {' or '.join(r.accepted)}"
        for r in wrong
    ] or ["None."]
    return "\n".join(lines) + "\n"


def _groups(rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Row]]]:
    yield "all", rows
    for group in (CURATED, WILD, PROGRAMS, LOOPS, MATRIX):
        if chosen := [row for row in rows if row.group == group]:
            yield group, chosen


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| confidence | verdicts | right | wrong | right, % |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for low, high in BINS:
        mine = [r.outcome for r in rows if _inside(r, low, high)]
        right, wrong = mine.count("right"), mine.count("wrong")
        rate = f"{100 * right / len(mine):.0f}" if mine else "–"
        yield f"| {low:.1f} to {high:.1f} | {len(mine)} | {right} | {wrong} | {rate} |"
    abstained = [r for r in rows if r.outcome == "abstained"]
    fitting = sum("inconclusive" in r.accepted for r in abstained)
    yield ""
    yield (f"{len(abstained)} of {len(rows)} abstained; for {fitting} of them that is right.")


def _inside(row: Row, low: float, high: float) -> bool:
    last = high == BINS[-1][1]
    return row.outcome != "abstained" and (
        low <= row.confidence < high or (last and row.confidence == high)
    )


def write(rows: Sequence[Row], target: Path) -> None:
    """Rows as JSON, and the page beside it."""
    saved = [asdict(row) for row in rows]
    target.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(page(rows), encoding="utf-8")


def read(source: Path) -> list[Row]:
    """What `write` saved."""
    saved = json.loads(source.read_text(encoding="utf-8"))
    return [Row(**{**row, "accepted": tuple(row["accepted"])}) for row in saved]


def main() -> None:
    """Analyse a corpus, or write the page again."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=VALIDATION / "calibration.json")
    parser.add_argument("--page", type=Path, help="write the page of this file again")
    chosen = parser.parse_args()
    if chosen.page is not None:
        write(read(chosen.page), chosen.page)
        return
    if chosen.corpus is None:
        parser.error("name a corpus, or --page")
    rows = []
    for row in corpus_rows(chosen.corpus):
        rows.append(row)
        print(f"{row.outcome:<9} {row.confidence:.2f} {row.bound:<13} {row.name}", flush=True)
    with TemporaryDirectory() as folder:
        rows += loop_rows(MANY, Path(folder))
    programs = VALIDATION / "programs.json"
    rows += program_rows(json.loads(programs.read_text(encoding="utf-8")))
    rows += matrix_rows(json.loads(RESULTS.read_text(encoding="utf-8")))
    write(rows, chosen.output)


if __name__ == "__main__":
    main()
