"""The compiled page template, kept as Python keeps its own modules: in `__pycache__`.

To compile the template takes longer than to fill it in. The rules are Python's: nothing is written
where that is forbidden (PYTHONDONTWRITEBYTECODE) or not possible, and PYTHONPYCACHEPREFIX moves it.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import BytecodeCache

if TYPE_CHECKING:
    from jinja2.bccache import Bucket


class Compiled(BytecodeCache):
    """Compiled templates beside the compiled form of this module.

    Jinja checks what it loads against the template's text and the version of Python.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket if there is anything for it."""
        try:
            with _place(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except Exception:  # whatever unpickling a damaged file may raise: it is made again
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket, whole or not at all, where Python would keep a module."""
        if sys.dont_write_bytecode:
            return
        place = _place(bucket)
        try:
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                bucket.write_bytecode(file)
            Path(file.name).replace(place)
        except OSError:
            pass


def _place(bucket: Bucket) -> Path:
    """One file for each template, so that another version of it takes the place of the last."""
    return Path(cache_from_source(__file__)).with_suffix(f".{bucket.key[:16]}.template")
