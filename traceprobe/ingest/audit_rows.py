"""Rows that no number of a report rests on, but that show whether a file was written right.

The event model leaves them out, so they cost nothing where nobody asks. Times are int64 ns on the
clock of the `Trace` that `read_trace` gives for the same file.
"""

from __future__ import annotations

import msgspec

from traceprobe.ingest.joins import Table, empty_table

SYNC_KINDS = ("Stream Sync", "Event Sync", "Stream Wait Event", "Context Sync")
"""What the column `kind` of `AuditRows.syncs` holds indices into."""


class AuditRows(msgspec.Struct, frozen=True):
    """The rows of one file; a table is empty where the format has no such rows.

    Args:
        syncs: the profiler's own rows of synchronisations (Kineto `cuda_sync`): `t0`, `kind`,
            `device`, `stream`, and `record`, the correlation of the event record that is waited
            for, UNKNOWN where none is noted.
        backward: nodes of the autograd graph that ran: `name`, `sequence`, and what the numbers
            are unique in, `thread`: the thread of the forward pass, in Nsight the process. UNKNOWN
            where not recorded. `names` are the texts of `name`.
        collectives: collectives that PyTorch noted; `incomplete` of them lack a field.
        stopped_early: Kineto says that CUPTI ran out of buffers, None where it says nothing;
            `out_of_range` GPU records were outside of its window.
        diagnostics: (severity, text) of Nsight Systems: 2 warnings, 3 errors. The texts may name
            paths and programs.
        mislabelled, labelled: rows of Nsight's synchronisations with a `syncType` that their API
            call contradicts, and all that have a call.
    """

    syncs: Table = msgspec.field(
        default_factory=lambda: empty_table("t0", "kind", "device", "stream", "record")
    )
    backward: Table = msgspec.field(
        default_factory=lambda: empty_table("name", "thread", "sequence")
    )
    names: tuple[str, ...] = ()
    collectives: int = 0
    incomplete: int = 0
    stopped_early: bool | None = None
    out_of_range: int | None = None
    diagnostics: tuple[tuple[int, str], ...] = ()
    mislabelled: int = 0
    labelled: int = 0
