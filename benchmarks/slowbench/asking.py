"""Every tool is asked about every recording, once for each version of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from benchmarks.slowbench.answers import Answer, from_json
from benchmarks.slowbench.captures import members, rows_of, unpacked
from benchmarks.slowbench.tools import traceml
from benchmarks.slowbench.tools.tool import Tool

ANSWERS = "answers.jsonl"


def ask_all(folder: Path, tools: Sequence[Tool], jobs: int, *, again: Sequence[str] = ()) -> None:
    """Append answers about the cases of a folder to its `answers.jsonl`.

    Args:
        jobs: recordings that are looked at side by side; 1 for times that count.
        again: tools that are asked again, whatever is there.
    """
    rows = [row for row in rows_of(folder) if row.get("failed") is None]
    kept = answers_of(folder)
    where = members(folder)
    lock = Lock()

    def one(job: tuple[Mapping[str, Any], Tool]) -> None:
        row, tool = job
        answer = _ask(row, tool, where)
        record = {"case": row["id"], "version": tool.version, "answer": asdict(answer)}
        line = json.dumps(record, sort_keys=True)
        with lock:
            with (folder / ANSWERS).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            print(f"{row['id']}: {tool.name}: {answer.failed or answer.verdict}", file=sys.stderr)

    wanted = [
        (row, tool)
        for row in rows
        for tool in tools
        if tool.name in again or kept.get((row["id"], tool.name), ("",))[0] != tool.version
    ]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, wanted))


def _ask(row: Mapping[str, Any], tool: Tool, where: Mapping[str, tuple[Path, list[str]]]) -> Answer:
    if row["id"] not in where:
        return Answer(tool.name, failed="no recording")
    bundle, names = where[row["id"]]
    with unpacked(bundle, names) as files, TemporaryDirectory() as out:
        return tool.ask(files, Path(out), row)


def answers_of(folder: Path) -> dict[tuple[str, str], tuple[str, Answer]]:
    """The latest answer to each case by each tool, with its version; TraceML's from its runs."""
    found: dict[tuple[str, str], tuple[str, Answer]] = {}
    if (folder / ANSWERS).exists():
        for line in (folder / ANSWERS).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            answer = from_json(record["answer"])
            found[record["case"], answer.tool] = record["version"], answer
    for path in sorted((folder / "traceml").glob("*.json")):
        found[path.stem, traceml.NAME] = traceml.read(path)
    return found
