"""`--help`: options and commands in groups, types in words, examples at the end.

Typer keeps the group of an option or a command (`rich_help_panel`), but draws groups only with
rich, whose import takes longer than all of `traceprobe --help`, and in columns too narrow to read.
"""

from __future__ import annotations

import os
import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from traceprobe.cli.console import note

OTHER = "Other options"
_TYPE = re.compile(r" <.*>$")
"""What kind of value it is, as Python calls it."""
_RANGE = re.compile(r"(?:; )?[^\s\[;]*<=x[^\];]*")
"""What a number must be between, which the error says to whom it concerns."""


class Command(TyperCommand):
    """A command whose help has its options in groups; its epilog are examples, one a line."""

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
        _examples(formatter, self.epilog)


class Group(TyperGroup):
    """All commands in groups; a trace in the place of a command is analysed."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each group with the first sentence of its commands, whole."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                first = (command.help or "").partition("\n\n")[0]
                group = getattr(command, "rich_help_panel", None) or "Commands"
                groups.setdefault(group, []).append((name, " ".join(first.split())))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, and after an empty line what the exit codes mean."""
        examples, _, rest = (self.epilog or "").partition("\n\n")
        _examples(formatter, examples)
        formatter.write_paragraph()
        formatter.write_text(rest)

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C is said; Typer ends with 130 and no word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            note("traceprobe: interrupted", quiet=False)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """`traceprobe FILE` is `traceprobe analyze FILE`."""
        if args and args[0] not in self.commands and is_input(args[0]):
            args = ["analyze", *args]
        return super().resolve_command(ctx, args)


def everything(ctx: Any) -> str:
    """The help of the program and, below it, of each of its commands."""
    group: Group = ctx.command
    texts = [ctx.get_help()]
    for name in group.list_commands(ctx):
        command = group.commands[name]
        inner = command.make_context(name, [], parent=ctx, resilient_parsing=True)
        texts.append(f"{name}\n{'=' * len(name)}\n\n{command.get_help(inner)}")
    return "\n\n\n".join(texts)


def is_input(word: str) -> bool:
    """Whether what stands in the place of a command is rather a trace: it is there, or a path."""
    if word.startswith("-"):
        return False
    return bool(set(word) & {*"./*?", os.sep}) or os.path.lexists(word)


def _examples(formatter: Any, text: str | None) -> None:
    if text:
        with formatter.section("Examples"):
            for line in text.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
