"""What became of the rungs of a ladder, kept in `sweep.json`."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping

import msgspec

from traceprobe.capture.recording.recording_files import REPORT
from traceprobe.errors import DamagedRecord, OtherVersion, UsageError
from traceprobe.records.comparison import RunSummary
from traceprobe.records.sweep import RungResult, State, Sweep
from traceprobe.sweep.ladder import Rung
from traceprobe.sweep.settings import SweepSettings
from traceprobe.system.reading import read_saved
from traceprobe.version import __version__

RESULT = "sweep.json"
UNREADABLE = (
    *(msgspec.MsgspecError, UnicodeDecodeError, RecursionError),
    *(DamagedRecord, OtherVersion),
)
"""What reading a file raises that is no record of this version."""


def sweep_of(settings: SweepSettings, results: Mapping[str, RungResult]) -> Sweep:
    """The results, by name of the rung, in the order of the ladder."""
    ladder = settings.ladder
    return Sweep(
        schema_version=Sweep.SCHEMA_VERSION,
        traceprobe_version=__version__,
        ladder=ladder.name,
        workload=ladder.workload,
        backend=settings.backend,
        warmup=ladder.profile.warmup,
        calibrate=ladder.profile.calibrate,
        active=ladder.profile.active,
        rungs=[results[rung.name] for rung in ladder.rungs if rung.name in results],
    )


def result_of(
    settings: SweepSettings,
    rung: Rung,
    state: State,
    reason: str | None = None,
    run: RunSummary | None = None,
    salt: str = "",
) -> RungResult:
    """What became of a rung.

    Args:
        salt: of the digest of its variables; a new one by default.
    """
    return RungResult(
        name=rung.name,
        change=rung.change,
        side=rung.side,
        base=rung.base,
        ranks=rung.ranks,
        arguments=settings.public_arguments(rung),
        environment_digest=_digest(rung, salt),
        state=state,
        reason=reason,
        run=run,
    )


def earlier_results(settings: SweepSettings) -> dict[str, RungResult]:
    """What an earlier sweep left in the folder of the rungs as they are now, by name.

    Raises:
        UsageError: its `sweep.json` is damaged.
    """
    path = settings.folder / RESULT
    if not path.exists():
        return {}
    try:
        earlier = Sweep.from_json(read_saved(path))
    except UNREADABLE as error:
        raise UsageError(
            f"{path}: is not a file that traceprobe sweep wrote ({error}); overwrite with --force"
        ) from error
    if sweep_of(settings, {}) != msgspec.structs.replace(earlier, rungs=[]):
        return {}
    by_name = {result.name: result for result in earlier.rungs}
    return {
        rung.name: by_name[rung.name]
        for rung in settings.ladder.rungs
        if rung.name in by_name and _holds(settings, rung, by_name[rung.name])
    }


def _holds(settings: SweepSettings, rung: Rung, result: RungResult) -> bool:
    """Whether a result is of the rung as it is now, and its report still there."""
    salt = result.environment_digest.partition(":")[0]
    same = result_of(settings, rung, result.state, result.reason, result.run, salt) == result
    reports = [settings.folder / rung.name / name for name in REPORT]
    return same and (result.run is None or all(path.is_file() for path in reports))


def _digest(rung: Rung, salt: str) -> str:
    """The variables of a rung, known again but not read: they may hold secrets."""
    if not rung.environment:
        return ""
    salt = salt or secrets.token_hex(8)
    text = json.dumps(dict(rung.environment), sort_keys=True).encode()
    return f"{salt}:{hashlib.scrypt(text, salt=salt.encode(), n=2**14, r=8, p=1).hex()}"
