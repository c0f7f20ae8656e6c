"""How far the ranks of a program are: what each appends to a file in the shared folder.

The processes of the program write, the process that started them reads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

DONE = "done"
"""The last state of a rank: all its files are there."""
NAMING = "recording names"
"""The state of a rank whose timed recording is complete while it records names for it."""
_RANKS: dict[int, int] = {}
"""By process: a group of torch.distributed may be gone before the last is written."""
_PROGRESS, _REFUSED, _ENDED, _CLAIM = ".progress", ".refused", ".ended", ".claim"
_ASKED = ".asked"


def current_rank() -> int:
    """Rank of this process as torch.distributed has or had it, or as its launcher set it; else 0.

    A program that starts a process for each GPU by itself may have the number of its node in the
    variable.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        _RANKS[os.getpid()] = int(distributed.get_rank())
    known = _RANKS.get(os.getpid())
    return int(os.environ.get("RANK", "0")) if known is None else known


def claim_rank(folder: str) -> bool:
    """Whether this process is the one of its rank that is measured: the first, while it lives.

    Processes that a program starts by itself, without telling them their ranks, have all the same.
    """
    path = Path(folder) / f"rank{current_rank()}{_CLAIM}"
    mine = path.with_suffix(f".{os.getpid()}")
    try:
        mine.write_text(str(os.getpid()))
        path.hardlink_to(mine)  # whole, or not at all
    except FileExistsError:
        owner = int(path.read_text())
        if owner != os.getpid() and is_alive(owner):
            return False
        mine.replace(path)
    except OSError:  # a file system without links: the program is measured all the same
        return True
    return True


def is_alive(process: int) -> bool:
    """Whether a process of this machine, as far as this one sees them, has that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


def write_result(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    On the standard library alone: the recorded program's Python may lack what traceprobe needs.
    """
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def report_state(folder: str, state: str) -> None:
    """Tell the process that started the program what this rank is doing."""
    with (Path(folder) / f"rank{current_rank()}{_PROGRESS}").open("a") as file:
        file.write(state + "\n")


def reported_states(folder: Path, rank: int) -> list[str]:
    """The states that a rank has reported so far, in order."""
    path = folder / f"rank{rank}{_PROGRESS}"
    return path.read_text().splitlines() if path.exists() else []


def all_ranks_done(folder: Path, processes: int | None) -> bool:
    """Whether every rank that began has done all that it had to do, but for names.

    Args:
        processes: number of ranks, where that is known.
    """
    last_states = _last_states(folder)
    return len(last_states) >= (processes or 1) and all(
        last in ([DONE], [NAMING]) for last in last_states
    )


def _last_states(folder: Path) -> list[list[str]]:
    """Of the ranks that began; a list is empty where a rank was ended while it wrote."""
    files = sorted(folder.glob(f"rank*{_PROGRESS}"))
    return [path.read_text().splitlines()[-1:] for path in files]


def asked_to_end(folder: str) -> None:
    """Note that this process is asked to end, as its rank has done all that it had to do."""
    write_result(Path(folder) / f"rank{current_rank()}{_ASKED}", str(os.getpid()))


def all_go_on(folder: Path) -> bool:
    """Whether every rank that began was asked to end, and lives.

    A script may go on with something else once one has ended.
    """
    began = {path.stem for path in folder.glob(f"rank*{_PROGRESS}")}
    asked = {path.stem: path for path in folder.glob(f"rank*{_ASKED}")}
    return bool(began) and all(
        rank in asked and is_alive(int(asked[rank].read_text())) for rank in began
    )


def refuse(folder: str, reason: str) -> NoReturn:
    """End a program that cannot be recorded, with the reason for the process that started it.

    Raises:
        SystemExit: always.
    """
    write_result(Path(folder) / f"rank{current_rank()}{_REFUSED}", reason)
    raise SystemExit(reason)


def refusal(folder: Path) -> str | None:
    """The reason why a rank refused; None where none did."""
    files = sorted(folder.glob(f"rank*{_REFUSED}"))
    return files[0].read_text() if files else None


def ended_early(folder: str, seen: int, needed: int) -> None:
    """Note that a program made too few steps, for the process that started it."""
    write_result(Path(folder) / f"rank{current_rank()}{_ENDED}", f"{seen} {needed}")


def cut_off(folder: Path) -> str | None:
    """How a program ended early that did not say so, in words; None where none began its part."""
    last = next((state for states in _last_states(folder) for state in states), None)
    if last is None:
        return None
    return (
        f"while its state was “{last}”, and not as Python ends: by os._exit, or its training "
        "went on in a process that it forked"
    )


def steps_missing(folder: Path) -> tuple[int, int] | None:
    """Steps that a rank made before its program ended, and how many it needs; None for none."""
    files = sorted(folder.glob(f"rank*{_ENDED}"))
    if not files:
        return None
    seen, needed = map(int, files[0].read_text().split())
    return seen, needed
