r"""Programs that are slowed down on purpose, with known causes, and what tools say of them.

    python -m benchmarks.slowbench record --out DIR --split open --seed 1 --cases 400
    python -m benchmarks.slowbench record --out DIR --split open --seed 1 --cases 60 \
        --gpus 2 --ranks 2
    python -m benchmarks.slowbench record --out DIR --split open --seed 1 --cases 24 --cpu
    python -m benchmarks.slowbench traceml DIR --venv V1     # the same, under TraceML
    python -m benchmarks.slowbench score DIR … --hta V2 --nsys-ai V3 --nsys PROGRAM
    python -m benchmarks.slowbench page                      # docs/slowbench.md from that
    python -m benchmarks.slowbench subset DIR                # recordings for the tests

`record` wants PyTorch and torchvision, and Nsight Systems (`TRACEPROBE_NSYS` names it) unless
`--no-nsys` is given. What a folder has is not recorded again. The sealed cases come from a seed
that is in no repository: `--split sealed --seed N`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.slowbench import score_commands
from benchmarks.slowbench.cases import HEALTHY_EVERY


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slowbench", description=(__doc__ or "").splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_record(commands.add_parser("record", help="run programs, and record them"))
    score_commands.add(commands)
    given = parser.parse_args(arguments)
    given.run(given)


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", choices=("open", "sealed"), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--cpu", action="store_true", help="small programs, on the CPU")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument(
        "--jobs",
        type=int,
        default=24,
        help="processes for each device, which hold their memory while others have their turn",
    )
    parser.add_argument("--ready", type=int, default=12, help="turns in a row, at least")
    parser.add_argument("--seconds", type=float, default=520, help="after which all is ended")
    parser.add_argument("--limit", type=float, default=150, help="seconds for a case")
    parser.add_argument("--turn-limit", type=float, default=25, help="seconds for its turn")
    parser.add_argument("--rounds", type=int, default=5, help="in which all forms are timed")
    parser.add_argument("--ranks", type=int, default=1, help="of the cases; each has a GPU")
    parser.add_argument(
        "--healthy-every", type=int, default=HEALTHY_EVERY, help="of so many cases one has no cause"
    )
    parser.add_argument("--no-nsys", action="store_true", help="torch.profiler alone")
    parser.add_argument("--only", default="", help="causes, or ids of cases, with commas")
    parser.set_defaults(run=_record)


def _record(given: argparse.Namespace) -> None:
    from benchmarks.slowbench.sessions import Plan, record

    nsys = not given.cpu and not given.no_nsys and given.ranks == 1
    record(
        Plan(
            *(given.out.resolve(), given.split, given.seed, given.cases),
            *(0 if given.cpu else given.gpus, given.jobs, given.ready),
            *(given.seconds, given.limit, given.turn_limit, given.rounds, given.ranks),
            *(nsys, given.healthy_every, tuple(filter(None, given.only.split(",")))),
        )
    )


if __name__ == "__main__":
    main()
