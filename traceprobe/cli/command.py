"""A command: options in groups and types in words in its help, examples at the end.

Typer keeps the group of an option (`rich_help_panel`), but draws groups only with rich, whose
import takes longer than all of `traceprobe --help`, and in columns too narrow to read.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

from traceprobe.cli.plain_values import take_plainly

OTHER = "Other options"
_TYPE = re.compile(r" <.*>$")
"""What kind of value it is, as Python calls it."""
_RANGE = re.compile(r"(?:; )?[^\s\[;]*<=x[^\];]*")
"""What a number must be between, which the error says to whom it concerns."""


class Command(TyperCommand):
    """A command whose help has its options in groups; its epilog are examples, one a line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without Typer's checks of what is plainly right."""
        take_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The options and the names of the arguments."""
        arguments = (p for p in self.get_params(ctx) if p.param_type_name == "argument")
        return ["[OPTIONS]", *(str(p.metavar) for p in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then each group of options in the order of its first one."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                group = getattr(param, "rich_help_panel", None)
                if param.param_type_name == "argument":
                    group = "Arguments"
                name, text = _TYPE.sub("", record[0]), record[1].removesuffix("  [required]")
                text = _RANGE.sub("", text).replace("[; ", "[").replace("  []", "")
                groups.setdefault(group or OTHER, []).append((name, text))
        last = groups.pop(OTHER, [])
        for title, rows in {**groups, OTHER: last}.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples as they are, so that they can be copied."""
        write_examples(formatter, self.epilog)


def write_examples(formatter: Any, text: str | None) -> None:
    """Lines as they are below their title, if there are any."""
    if text:
        with formatter.section("Examples"):
            for line in text.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
