"""Words of commands that a reader may copy into a shell, each exactly what it stands for."""

from __future__ import annotations

import os
import re
import shlex

_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"])+"""
_WORDS = re.compile(rf"(?:--?\w[\w-]* (?!-))?{_WORD}")
"""Words of a command as `word` writes them, an option with its value."""
_DEEPER = "    "
"""Before the lines that a command goes on in."""


def word(text: str) -> str:
    """`text` as one word.

    What is not printed as it is, such as a line feed or two spaces, is written as bash and zsh
    escape it, since messages are cleaned before they are shown.
    """
    if text.isprintable() and "  " not in text and text == text.strip():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, os.fsencode(text))) + "'"


def file(name: str) -> str:
    """A file's name as one word, which is no option."""
    return word(f"./{name}" if name.startswith("-") else name)


def folded(line: str, width: int) -> list[str]:
    """A command in lines of at most `width` columns that a shell joins again.

    A word is never broken, however long it is: the terminal breaks it, and copies it whole.
    """
    indent = line[: len(line) - len(line.lstrip())]
    first, *words = _WORDS.findall(line)
    lines = [indent + first]
    for text in words:
        if len(lines[-1]) + len(f" {text} \\") <= width:
            lines[-1] += f" {text}"
        else:
            lines.append(f"{indent}{_DEEPER}{text}")
    return [*(f"{begun} \\" for begun in lines[:-1]), lines[-1]]


def _escaped(byte: int) -> str:
    character = chr(byte)
    plain = byte < 128 and (character.isalnum() or character in "._-+=,/@%:")
    return character if plain else f"\\x{byte:02x}"
