"""`--help`: commands in groups, examples at the end; a trace in the place of a command."""

from __future__ import annotations

import os
from typing import Any

from typer.core import TyperGroup

from traceprobe.cli.command import write_examples
from traceprobe.cli.commands import LISTED, Commands
from traceprobe.cli.console import note
from traceprobe.cli.plain_values import take_plainly


class Group(TyperGroup):
    """All commands in groups; a trace in the place of a command is analysed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # nobody adds to them

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without Typer's checks of what is plainly right."""
        take_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names; nothing is imported for them."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each group with the first sentence of its commands, whole."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for listed in LISTED.values():
            groups.setdefault(listed.group, []).append((listed.name, listed.summary()))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, and after an empty line what the exit codes mean."""
        examples, _, rest = (self.epilog or "").partition("\n\n")
        write_examples(formatter, examples)
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
