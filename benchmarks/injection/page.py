"""The page about faults that were put into programs, from their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

PAGE = """# Is the line that is blamed the line that is slow?

One slow line is put into a training program at a random place that every step comes by, and the
program is recorded once, as `traceprobe profile -- python train.py` records any. What the report
blames is held against that line. This page is made by `python benchmarks/injections.py page` from
[`injections.json`](injections.json).

- **Programs**: twelve, in `benchmarks/injection/programs`, written as such programs are and without
  a word for a profiler: nanoGPT with accumulation, a CNN in mixed precision, a GAN, an LSTM, a
  graph network, diffusion, two towers, REINFORCE with an environment in Python, the Trainer of
  transformers, Lightning, timm, accelerate.
- **Faults**: `sleep` and `busy`, 2 to 20 ms of the host; `item`, a tensor is read, where the GPU is
  behind the host; `spin`, a kernel that turns, and `matmul`, an operator that is large, as long as
  the step is; `copy`, pageable memory to the GPU; `slow-sample` and `slow-worker`, 2 to 20 ms for a
  batch, or longer than the step where workers load it.
- **Blamed**: the sites of the findings about it that ask for attention, those of the most time
  first: `host-overhead`, `unexplained-idle` and `data-wait` for `sleep` and `busy` (a pause in what
  makes batches is a wait for data), `synchronization`, `h2d-pageable` and `h2d-exposed`,
  `data-wait`; for slow operators the lines of the most time. *Line*: that very line. *Function*: a
  line of its function. *Top*: that very line in `traceprobe top --by line`, by idle or by busy
  time, whatever a finding says. Nothing is compared with a recording that has no fault.
- A fault that makes the step no longer by 5 % and 1 ms, as the GPU's queue hides it, costs nothing.
  It is in the list, and in no count. Of reads of a tensor that leaves one, whose wait lets the
  loader fall behind; the loader is blamed.
- Lines of workers are sampled: a call that does not let go of the interpreter is seen on the line
  after it, of the same function.
- The recordings are as they were made. How sites of several findings are put in order, that reads
  of a tensor count where they are felt alone, and the lines of workers as sites came after a first
  look at them, in which 28 of 49 lines (57%) and 35 functions (71%) were named first. The programs
  and the seed are no longer fresh for these rules.
"""
LISTED = (
    *("program", "fault", "line", "ms", "step, ms", "with it, ms"),
    *("verdict", "blamed first", "line", "function"),
)
_CENSORED = "–"


def page(found: Mapping[str, Any]) -> str:
    """The scores as Markdown."""
    return "\n".join([PAGE, *(_run(run) for run in found["runs"])])


def _run(run: Mapping[str, Any]) -> str:
    machine, rows = run["machine"], run["rows"]
    libraries = ", ".join(f"{k} {v}" for k, v in sorted(machine["libraries"].items()))
    gpus = sorted(set(machine["gpus"]))
    device = f"{len(machine['gpus'])} × {', '.join(gpus)}" if gpus else "CPU"
    counted = [row for row in rows if row["felt"] and "line_rank" in row]
    left_out = [f"- Left out: `{k}`, as {v}." for k, v in sorted(run["left_out"].items())]
    failed = [row for row in rows if "line_rank" not in row]
    hidden = sum(row["felt"] is False for row in rows)
    return "\n".join(
        [
            f"## {device}\n",
            f"{machine['cpus']} CPUs, Python {machine['python']}, {libraries}.\n",
            f"- {len(rows)} faults in {len({row['program'] for row in rows})} programs; "
            f"{hidden} not felt, {len(failed)} not recorded.",
            *left_out,
            "",
            _sums("fault", counted, lambda row: row["kind"]),
            _sums("program", counted, lambda row: row["program"]),
            _list(rows),
        ]
    )


def _sums(
    title: str, rows: Sequence[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], str]
) -> str:
    ranks = ("line first", "in three", "function first", "in three", "`top` first", "in three")
    columns = (title, "faults", *ranks)
    lines = [_row(columns), "| --- |" + " ---: |" * (len(columns) - 1)]
    lines += [
        _row([f"`{name}`", *_shares([row for row in rows if key(row) == name])])
        for name in sorted({key(row) for row in rows})
    ]
    lines.append(_row(["**all**", *_shares(rows)]))
    return "\n".join([*lines, ""])


def _shares(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    yield str(len(rows))
    for key in ("line_rank", "function_rank", "top_rank"):
        for most in (1, 3):
            count = sum((row[key] or most + 1) <= most for row in rows)
            yield f"{count} ({count / len(rows):.0%})" if rows else _CENSORED


def _list(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [_row(LISTED), "| --- | --- | --- | ---: | ---: | ---: | --- | --- | ---: | ---: |"]
    for row in sorted(rows, key=lambda row: row["id"]):
        after = row.get("unprofiled_ms")
        told = "line_rank" in row
        first = f"`{row['blamed'][0]}`" if told and row["blamed"] else "nothing"
        ranks = [str(row[key] or ">3") for key in ("line_rank", "function_rank")] if told else []
        lines.append(
            _row(
                [
                    *(row["program"], row["kind"]),
                    f"`{row['file']}({row['line']}): {row['function']}`",
                    *(f"{row['ms']:.1f}", f"{row['step_ms']:.1f}"),
                    _CENSORED if after is None else f"{after:.1f}",
                    *((row["verdict"], first) if told else ("not recorded", _CENSORED)),
                    *(ranks or [_CENSORED] * 2 if row["felt"] or not told else ["not felt", ""]),
                ]
            )
        )
    return "\n".join([*lines, ""])


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
