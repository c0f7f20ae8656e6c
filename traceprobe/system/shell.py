"""Words of commands that a reader may copy into a shell, each exactly what it stands for."""

from __future__ import annotations

import os
import shlex


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


def _escaped(byte: int) -> str:
    character = chr(byte)
    plain = byte < 128 and (character.isalnum() or character in "._-+=,/@%:")
    return character if plain else f"\\x{byte:02x}"
