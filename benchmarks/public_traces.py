"""Verdicts on traces that other people published, held against what is true of them.

    python benchmarks/public_traces.py analyze FOLDER  # to public-traces.json, in docs/validation
    python benchmarks/public_traces.py page            # public-traces.md from that

FOLDER has the traces under `OWNER/REPOSITORY/PATH`, as `public_traces.json` names them. They are
other people's and no part of this repository. What is missed has its reason there (`missed`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from traceprobe.errors import TraceprobeError  # noqa: E402

SOURCES = Path(__file__).with_suffix(".json")
RESULTS = ROOT / "docs" / "validation" / "public-traces.json"
REFUSED = "refused"

HEAD = """# Public traces

Traces that other people published, read as a stranger would: nothing is known of them but what the
file holds. What is true was read off their rows without traceprobe, as the union of intervals,
before they were analysed. Where a file cannot say, refusing or abstaining is right.

This page is made by `python benchmarks/public_traces.py page` from
[`public-traces.json`](public-traces.json). The traces are not kept here.

| trace | shows | what is true | answer | right answers | |
| --- | --- | --- | --- | --- | --- |
"""


def analyze(folder: Path) -> list[dict[str, Any]]:
    """Every trace with its source, truth and answer."""
    return [
        source | _answer(folder / source["repository"] / source["file"])
        for source in json.loads(SOURCES.read_text(encoding="utf-8"))
    ]


def _answer(path: Path) -> dict[str, Any]:
    try:
        verdict = traceprobe.analyze([traceprobe.load(path)]).verdict
    except TraceprobeError as error:
        said = str(error).partition(": ")[2] or str(error)
        return {"answer": REFUSED, "confidence": None, "said": said.splitlines()[0]}
    return {
        "answer": verdict.bound,
        "confidence": verdict.confidence,
        "said": verdict.headline,
    }


def page(results: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    lines = []
    for found in results:
        sure = "" if found["confidence"] is None else f" ({found['confidence']:.2f})"
        right = found["answer"] in found["answers"]
        name = Path(found["file"]).name
        address = f"https://github.com/{found['repository']}/blob/{found['commit']}/{found['file']}"
        cells = [
            f"[`{name}`]({address}), {found['repository']}",
            found["shows"],
            found["true"],
            f"{found['answer']}{sure}: {found['said']}".replace("|", "/"),
            " or ".join(found["answers"]),
            "right" if right else f"**wrong**: {found['missed']}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    right_ones = sum(found["answer"] in found["answers"] for found in results)
    return HEAD + "\n".join(lines) + f"\n\n{right_ones} of {len(results)} are right.\n"


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("analyze").add_argument("folder", type=Path)
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "analyze":
        text = json.dumps(analyze(given.folder), indent=1, ensure_ascii=False)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    if given.command == "page":
        found = json.loads(RESULTS.read_text(encoding="utf-8"))
        RESULTS.with_suffix(".md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
