"""The same damage, led by what code it reaches: libFuzzer chooses instead of chance.

    python -m tests.fuzzing.guided [libFuzzer options, such as -max_total_time=600] [FOLDER]

Needs atheris (`pip install atheris`). FOLDER keeps the choices that reached something new. Every
choice that the mutations make is drawn from the bytes that libFuzzer varies, so that these follow
the structure of a trace and not that of its text. What fails is an exception, and libFuzzer leaves
its bytes in the current folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["traceprobe"]):
    from tests.fuzzing.harness import attempt, bases, made, thinned


class Drawn(Random):
    """Chance that is read from bytes; zeros once they are used up."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._source = atheris.FuzzedDataProvider(data)

    def random(self) -> float:
        """As of `Random`, in steps of 2^-32."""
        return self.getrandbits(32) / 2**32

    def getrandbits(self, k: int, /) -> int:
        """As of `Random`: an integer of k bits."""
        return int.from_bytes(self._source.ConsumeBytes((k + 7) // 8), "little") & ((1 << k) - 1)


def main() -> None:
    """Run until libFuzzer ends."""
    with tempfile.TemporaryDirectory(prefix="traceprobe-fuzzing-") as folder:
        files = thinned(bases(), Path(folder))
        path = Path(folder) / "input"

        def one(data: bytes) -> None:
            path.write_bytes(made(files, Drawn(data))[1])
            attempt(path, seed=1)

        atheris.Setup(sys.argv, one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
