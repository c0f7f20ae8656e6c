"""The commands: what the help lists of each, and where its function is.

A command's module, of its name, is imported once the command is called or listed in a help. It
imports little itself: what a command works with is imported when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer.main

from traceprobe.cli.command import Command

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
PROGRAM_FOLLOWS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command after whose options those of a training program may stand."""


class Listed(NamedTuple):
    """A command in the list.

    Args:
        name: also of its module in this package, whose function `command` has the options as
            arguments and the help as docstring.
        group: in which the help lists it.
        examples: lines at the end of its own help.
        settings: of its context, beside those of all.
    """

    name: str
    group: str
    examples: tuple[str, ...]
    settings: Mapping[str, Any]

    def function(self) -> Callable[..., None]:
        """What the command does."""
        found: Callable[..., None] = import_module(f"traceprobe.cli.{self.name}").command
        return found

    def summary(self) -> str:
        """The first paragraph of its help, on one line; its options need not be made for that."""
        return " ".join((self.function().__doc__ or "").partition("\n\n")[0].split())

    def built(self) -> Command:
        """The command, with its options."""
        alone = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
        )
        alone.command(
            self.name,
            cls=Command,
            epilog="\n".join(self.examples),
            context_settings={**SETTINGS, **self.settings},
        )(self.function())
        command = typer.main.get_command(alone)
        assert isinstance(command, Command)
        return command


class Commands(Mapping[str, Command]):
    """All commands by name, in the order of the help; each is built when it is looked up."""

    def __getitem__(self, name: str) -> Command:
        return LISTED[name].built()

    def __contains__(self, name: object) -> bool:
        return name in LISTED

    def __iter__(self) -> Iterator[str]:
        return iter(LISTED)

    def __len__(self) -> int:
        return len(LISTED)


LISTED: dict[str, Listed] = {}


def _add(name: str, group: str, *examples: str, settings: Mapping[str, Any] | None = None) -> None:
    """A command at the end of the list."""
    LISTED[name] = Listed(name, group, examples, settings or {})


_add(
    "analyze",
    "Analyse",
    "traceprobe analyze trace.json.gz",
    "traceprobe analyze rank*.json.gz -o run.html",
    "traceprobe analyze trace.json.gz --unprofiled-step-ms 52.5",
    "traceprobe analyze run.sqlite -o - | jq .verdict",
)
_add(
    "top",
    "Analyse",
    "traceprobe top report.json --by module",
    "traceprobe top trace.json.gz --by kernel -n 50",
)
_add(
    "inspect",
    "Analyse",
    "traceprobe inspect trace.json.gz",
    "traceprobe inspect --anonymise trace.json.gz -o bug.json.gz",
)
_add(
    "annotate",
    "Analyse",
    "traceprobe annotate trace.json.gz -o annotated.json.gz",
    "traceprobe annotate rank*.json.gz -o run.json.gz",
    "traceprobe annotate run.sqlite -o run.json.gz",
)
_add(
    "doctor",
    "Analyse",
    "traceprobe doctor",
    "traceprobe doctor trace.json.gz",
    "traceprobe doctor rank*.json.gz -o - | jq .sections",
)
_add(
    "hang",
    "Analyse",
    "traceprobe hang /tmp/nccl_trace_rank_*",
    "traceprobe hang dumps/ -o hang.html",
)
_add(
    "render",
    "Analyse",
    "traceprobe render report.json -v",
    "traceprobe render report.json -o report.md -o report.html",
)
_add(
    "profile",
    "Record",
    "traceprobe profile -- python train.py --epochs 1",
    "traceprobe profile --workload unet",
    "traceprobe profile --workload gpt2 --precision bf16 --backend nsys",
    settings=PROGRAM_FOLLOWS,
)
_add(
    "bench",
    "Record",
    "traceprobe bench -- python train.py",
    "traceprobe bench --workload gpt2 --nproc-per-node 2",
    settings=PROGRAM_FOLLOWS,
)
_add(
    "watch",
    "Record",
    "traceprobe watch -- python train.py",
    "traceprobe watch -o run.html -- torchrun --nproc-per-node 8 train.py",
    settings=PROGRAM_FOLLOWS,
)
_add(
    "memory",
    "Record",
    "traceprobe memory -- python train.py",
    "traceprobe memory --workload bert --size full --batch-size 4",
    settings=PROGRAM_FOLLOWS,
)
_add(
    "sweep",
    "Record",
    "traceprobe sweep tiny",
    "traceprobe sweep sc22 --rungs 0:5 -o sc22",
    settings=PROGRAM_FOLLOWS,
)
_add(
    "compare",
    "Compare",
    "traceprobe compare before.json.gz after.json.gz",
    "traceprobe compare baseline/report.json new/ --gate 5%",
    "traceprobe compare a.sqlite b.sqlite -o compare.html",
)
_add(
    "ladder",
    "Compare",
    "traceprobe ladder fp32/ tf32/ bf16/ -o ladder.html",
    "traceprobe ladder start=a.json.gz compiled=b.json.gz",
)
_add(
    "scaling",
    "Compare",
    "traceprobe scaling one/ two/ four/ -o scaling.html",
    "traceprobe scaling one/ two/ --to 16 --gpus-per-node 8 --inter-node-gbps 50",
)
_add(
    "gpus",
    "Compare",
    "traceprobe gpus a40=a40/ a100=a100/ h200=h200/ -o gpus.html",
    "traceprobe gpus t4.json.gz l4.json.gz --price T4=0.35 --price L4=0.71",
)
_add(
    "whatif",
    "More",
    "traceprobe whatif report.json",
    "traceprobe whatif report.json --remove data-wait --speedup backward=1.3",
    "traceprobe whatif ranks/ --bucket-mb 100",
)
_add(
    "roofline",
    "More",
    "traceprobe roofline traceprobe-gpt2/",
    "traceprobe roofline --measure -o peaks.json",
    "traceprobe roofline trace.json.gz --peaks peaks.json --flops-per-step 1.4e13",
)
_add(
    "slice",
    "More",
    "traceprobe slice run.sqlite --steps 3:8 -o small.sqlite.gz",
)
