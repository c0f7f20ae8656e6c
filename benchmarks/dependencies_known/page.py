"""The page about programs whose graph is known, from their scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

NEAR = 0.01
PROGRAMS = re.compile(r"p\d+(, p\d+)*")
NAMES = {"kineto": "torch.profiler (Kineto)", "nsys": "Nsight Systems"}
PAGE = """# Is the graph that is played the graph of the program?

Random programs, drawn by a seed, of kernels that do nothing but spin for as long as they are told:
{programs} programs, {single} on one H200 and {double} on two; 2 to 5 streams, 10 to 60 kernels of
0.05 to 3 ms an iteration, events that other streams wait for (at once, later, an iteration later,
through streams without work of their own), waits of the host for events, streams and numbers, work
of the host of 0.05 to 2 ms, some with two threads that launch, and on two ranks all-reduces and
sends of 1 to 64 MB. What depends on what is known by construction. This page is made by
`python benchmarks/dependencies.py page` from [`dependencies.json`](dependencies.json).

- **Edges**: an operation that must end before one on another stream begins (*events*), or before
  the host makes its next launch (*host*). An edge that was found is right if the program implies
  it; one that is known is found if the edges that were found, with the order of streams and
  launches, imply it. Nsight Systems (`--cuda-event-trace=true`) records which event a wait is for.
  Kineto on CUDA 13 (`enable_cuda_sync_events`) records the stream that waits, but not the record
  that it waits for: there, edges are inferred, and reports say so (`critical_path.edges`).
- **Interventions**: one kernel, or one piece of host work, is made 0.2 to 1.5 ms longer. Predicted:
  the same in the replay of the recording without it, calibrated with the step that was timed
  without a profiler. Measured: without a profiler, median of {counted} iterations or more in
  blocks of all variants in turns, by events at the end of each iteration. *By construction* is what
  the known graph says, with rough costs of launches and messages: what it misses is no fault of the
  analyser. About a third of the interventions were drawn to leave the step as it is.
- Programs are recorded as they come from the seed. torch hands out 32 streams in turn, NCCL's
  included, so that in a long process two streams of a program can be one: the known graph takes
  that from the recording, and where the process that Nsight recorded had other such streams than
  the one that was timed, its recording is held against the edges alone.
- {machine}
"""


def page(found: Mapping[str, Any]) -> str:
    """The scores as Markdown."""
    rows = found["rows"]
    single = len({row["program"] for row in rows if row["ranks"] == 1})
    double = len({row["program"] for row in rows if row["ranks"] == 2})
    counts = {"programs": single + double, "single": single, "double": double}
    machine = found["machine"]
    clocks = " and ".join(map(str, machine["clocks_mhz"]))
    words = (
        f"{machine['gpu']}, torch {machine['torch']}, CUDA {machine['cuda']}, Nsight Systems "
        f"{machine['nsys']};\n"
        "  `CUDA_DEVICE_MAX_CONNECTIONS=32`, so that no two streams share a way "
        f"to the device. The\n  multiprocessors ran at {clocks} MHz after every block."
    )
    text = PAGE.format(**counts, counted=found["counted"], machine=words)
    return "\n".join(
        [
            text,
            *_edges(rows),
            *_interventions(rows),
            *_first(found["first_look"], rows),
            *_costs(found["costs"]),
            *_list(rows, found["reasons"]),
        ]
    )


def total(rows: Sequence[Mapping[str, Any]], recording: str, source: str) -> dict[str, int]:
    """Edges of a source in recordings of a format, over all programs."""
    keys = ("found", "right", "recorded", "known", "recalled")
    each = [e for row in rows if row["recording"] == recording for e in row["edges"]]
    return {key: sum(edge[source][key] for edge in each) for key in keys}


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "–"


def _edges(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Edges\n"
    yield "| recording | edges | known | recalled | found | right | recall | precision | recorded |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for recording, name in NAMES.items():
        for source, words in (("event", "events"), ("host", "host")):
            n = total(rows, recording, source)
            recorded = _percent(n["recorded"], n["found"]) if source == "event" else "–"
            yield (
                f"| {name} | {words} | {n['known']} | {n['recalled']} | {n['found']} | "
                f"{n['right']} | {_percent(n['recalled'], n['known'])} | "
                f"{_percent(n['right'], n['found'])} | {recorded} |"
            )
    yield ""


def changes(rows: Sequence[Mapping[str, Any]], recording: str) -> list[Mapping[str, Any]]:
    """All interventions on recordings of a format."""
    return [i for row in rows if row["recording"] == recording for i in row["interventions"]]


def error(change: Mapping[str, Any], by: str = "predicted_ms") -> float:
    """Relative error of a step."""
    return float(change[by] / change["measured_ms"] - 1)


def moved(change: Mapping[str, Any]) -> bool:
    """Whether it moved the step by more than a percent."""
    return abs(change["measured_ms"] / change["now_ms"] - 1) > NEAR


def near(found: Sequence[Mapping[str, Any]], by: str = "predicted_ms") -> str:
    """How many are within a percent."""
    good = sum(abs(error(each, by)) <= NEAR for each in found)
    return f"{good} ({good / len(found):.1%})" if found else "–"


def _interventions(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Interventions\n"
    yield (
        "| recording | made longer | made | moved the step | within 1 % | by construction | "
        "median error | worst |"
    )
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for recording, name in NAMES.items():
        for does, words in ((None, "all"), ("kernel", "a kernel"), ("work", "host work")):
            mine = [i for i in changes(rows, recording) if does in (None, i["does"])]
            if not mine:
                continue
            errors = [abs(error(each)) for each in mine]
            yield (
                f"| {name} | {words} | {len(mine)} | {sum(map(moved, mine))} | {near(mine)} | "
                f"{near(mine, 'by_construction_ms')} | {median(errors):.2%} | {max(errors):.1%} |"
            )
    yield ""
    both = [i for recording in NAMES for i in changes(rows, recording)]
    missed = [i for i in both if abs(error(i)) > NEAR]
    too = sum(abs(error(i, "by_construction_ms")) > NEAR for i in missed)
    yield f"Of the {len(missed)} that missed, the known graph misses {too} as well.\n"


def _first(first: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Before and after\n"
    yield first["words"] + "\n"
    yield "| | then | now |"
    yield "| --- | ---: | ---: |"
    for recording, name in NAMES.items():
        n = total(rows, recording, "event")
        then = first[recording]
        yield (
            f"| {name}: edges by events, recall | {then['recall']:.2%} | "
            f"{_percent(n['recalled'], n['known'])} |"
        )
        now = changes(rows, recording)
        worst = max(abs(error(each)) for each in now)
        yield f"| {name}: interventions within 1 % | {then['near']:.1%} | {near(now)} |"
        yield f"| {name}: worst error of a step | {then['worst']:.1%} | {worst:.1%} |"
    yield ""


def _costs(costs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## What recording events costs\n"
    yield (
        "Steps without a profiler, with torch.profiler at its lightest, and with that and events, "
        "in blocks in turns: ms, and the range of the medians of blocks.\n"
    )
    yield "| | without | light | with events | file | file with events |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for cost in costs:
        each = (cost["ms"][name] for name in ("none", "light", "events"))
        steps = (f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in each)
        size = (f"{cost['bytes'][name] / 1e6:.2f} MB" for name in ("light", "events"))
        yield f"| {cost['what']} | {' | '.join((*steps, *size))} |"
    yield (
        "\nRanges that overlap tell no difference: DDP's host is slower with a profiler, and these"
        "\nblocks do not say whether events cost up to 5 % more.\n"
    )


def _list(
    rows: Sequence[Mapping[str, Any]], reasons: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    yield "## What missed\n"
    yield "By how much the step moved, ms; all interventions are in the JSON.\n"
    yield (
        "| program | recording | made longer | by | step | predicted | known graph | measured | "
        "error |"
    )
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        for i in row["interventions"]:
            if abs(error(i)) <= NEAR:
                continue
            moves = (
                f"{i[f'{by}_ms'] - i['now_ms']:+.3f}"
                for by in ("predicted", "by_construction", "measured")
            )
            yield (
                f"| {row['program']} | {row['recording']} | {i['does']} {i['number']} of rank "
                f"{i['rank']} | {i['delta_ms']:.2f} | {i['now_ms']:.3f} | {' | '.join(moves)} | "
                f"{error(i):+.1%} |"
            )
    yield ""
    missed = {
        row["program"]
        for row in rows
        for i in row["interventions"]
        if abs(error(i)) > NEAR or abs(error(i, "by_construction_ms")) > NEAR
    }
    told = [
        f"- {names}: {why}"
        for names, why in sorted(reasons.items())
        if not PROGRAMS.fullmatch(names) or missed & set(names.split(", "))
    ]
    if told:
        yield "\n".join(["Why, as far as it is known:", "", *told, ""])
    yield "## Programs\n"
    yield (
        "| program | recording | ranks | threads | streams | operations | edges known | found | "
        "within 1 % |"
    )
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        known, recalled = (
            sum(e[source][key] for e in row["edges"] for source in ("event", "host"))
            for key in ("known", "recalled")
        )
        good = sum(abs(error(i)) <= NEAR for i in row["interventions"])
        within = f"{good} of {len(row['interventions'])}" if row["interventions"] else "–"
        yield (
            f"| {row['program']} | {row['recording']} | {row['ranks']} | {row['threads']} | "
            f"{row['streams']} | {row['operations']} | {known} | {recalled} | {within} |"
        )
    yield ""
