"""The commands of slowbench that ask tools and make the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.slowbench.asking import ask_all
from benchmarks.slowbench.page import page
from benchmarks.slowbench.scores import from_text, score, to_text
from benchmarks.slowbench.tools import hta, nsys_ai, nsys_rules, traceprobe

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "validation" / "slowbench.json"
PAGE = DOCS / "slowbench.md"


def add(commands: Any) -> None:
    """Add `traceml`, `score`, `page` and `subset` to the subcommands of a parser."""
    runs: argparse.ArgumentParser = commands.add_parser("traceml", help="run cases under TraceML")
    runs.add_argument("folder", type=Path, help="what `record` left")
    runs.add_argument("--venv", type=Path, required=True, help="environment with traceml-ai")
    runs.add_argument("--seconds", type=float, default=4, help="of traced steps")
    runs.add_argument("--deadline", type=float, default=1e9, help="seconds; then no case is begun")
    runs.set_defaults(run=_traceml)
    scores: argparse.ArgumentParser = commands.add_parser("score", help="ask every tool")
    scores.add_argument("folders", type=Path, nargs="+", help="what `record` left")
    scores.add_argument("--hta", type=Path, help="environment with traceinsight")
    scores.add_argument("--nsys-ai", type=Path, help="environment with nsys-ai")
    scores.add_argument("--nsys", type=Path, help="program of Nsight Systems")
    scores.add_argument("--jobs", type=int, default=1, help="1 where times count")
    scores.add_argument("--again", nargs="*", default=[], help="tools to ask again, by name")
    scores.add_argument("--to", type=Path, default=RESULTS)
    scores.set_defaults(run=_score)
    pages: argparse.ArgumentParser = commands.add_parser("page", help="docs/slowbench.md")
    pages.add_argument("--from", dest="source", type=Path, default=RESULTS)
    pages.add_argument("--to", type=Path, default=PAGE)
    pages.set_defaults(run=_page)
    few: argparse.ArgumentParser = commands.add_parser("subset", help="recordings for the tests")
    few.add_argument("folder", type=Path, nargs="?", help="what `record --cpu` left")
    few.add_argument("--cases", type=int, default=30)
    few.set_defaults(run=_subset)


def _traceml(given: argparse.Namespace) -> None:
    from benchmarks.slowbench.traceml_runs import run  # with torch, which others do without

    run(given.folder, given.venv.absolute(), given.seconds, given.deadline)


def _score(given: argparse.Namespace) -> None:
    tools = [traceprobe.tool()]
    tools += [hta.tool(given.hta.absolute())] if given.hta else []
    tools += [nsys_ai.tool(given.nsys_ai.absolute())] if given.nsys_ai else []
    tools += [nsys_rules.tool(given.nsys)] if given.nsys else []
    for folder in given.folders:
        ask_all(folder, tools, given.jobs, again=given.again)
    found = score(given.folders)
    given.to.write_text(to_text(found), encoding="utf-8")


def _page(given: argparse.Namespace) -> None:
    given.to.write_text(page(from_text(given.source.read_text("utf-8"))), encoding="utf-8")


def _subset(given: argparse.Namespace) -> None:
    from benchmarks.slowbench import subset  # with traceprobe, which others start as a process

    if given.folder is not None:
        subset.keep(given.folder, given.cases)
    subset.write_expected()
