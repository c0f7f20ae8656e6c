"""What traceprobe left for itself, told from what others put in its place.

Contents that are kept in a folder where others may write begin with a checksum that takes a secret
of this user to compute. Who has not got it cannot make contents that are believed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from functools import cache
from hmac import compare_digest
from pathlib import Path

from traceprobe.errors import UsageError
from traceprobe.system.atomic_write import write_whole
from traceprobe.system.reading import read_saved

LENGTH = 32
"""Bytes of a checksum, and of the secret."""
_NAME = "seal"


class Unsealed(ValueError):
    """A content that this user's traceprobe did not leave."""


class NoSecret(OSError):
    """The secret cannot be kept; the message names the place and the reason."""


def sealed(data: bytes) -> bytes:
    """A content with its checksum.

    Raises:
        NoSecret: there is no place for the secret.
    """
    return _checksum(data) + data


def opened(data: bytes) -> bytes:
    """What was sealed.

    Raises:
        Unsealed: it was changed, or left by someone else.
        NoSecret: there is no place for the secret.
    """
    checksum, rest = data[:LENGTH], data[LENGTH:]
    if not compare_digest(checksum, _checksum(rest)):
        raise Unsealed("it is not what this user's traceprobe left here")
    return rest


def owner() -> str:
    """A short name of the secret that says nothing of it: contents of several users keep apart.

    Raises:
        NoSecret: there is no place for the secret.
    """
    return hashlib.blake2b(b"owner", key=_secret(_place()), digest_size=4).hexdigest()


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, key=_secret(_place()), digest_size=LENGTH).digest()


def _place() -> Path:
    """Where the secret is: a folder for what is kept of this user's programs."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # noqa: PTH117 - the specification ignores all others
        return Path(state, "traceprobe")
    try:
        return Path.home() / ".local" / "state" / "traceprobe"
    except RuntimeError as error:
        raise NoSecret("there is no home folder for its secret; set XDG_STATE_HOME") from error


@cache
def _secret(folder: Path) -> bytes:
    """The secret of this user, which is made where there is none yet."""
    path = folder / _NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path):
            with (
                suppress(FileExistsError),
                write_whole(path, replace=False, private=True) as temporary,
            ):
                temporary.write_bytes(secrets.token_bytes(LENGTH))
        found = path.lstat()
        secret = read_saved(path, LENGTH, follow=False)
    except (OSError, UsageError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NoSecret(
            f"its secret cannot be kept in {folder} ({why}); set XDG_STATE_HOME to a folder that "
            "is yours alone"
        ) from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or len(secret) != LENGTH:
        raise NoSecret(f"{path} is damaged, or not of this user alone; remove it")
    return secret
