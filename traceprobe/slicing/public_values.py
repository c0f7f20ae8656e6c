"""Values that both formats hold and that are passed on: what the capture left, names of threads."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from traceprobe.model.sidecar import CompilerNotes, Sidecar
from traceprobe.records import loader as loaders
from traceprobe.records.loader import Loader
from traceprobe.records.memory import Memory, read
from traceprobe.vocabulary import facts, quoted, told

RECORDED = {*Sidecar.__struct_fields__, "schedule", "world_size", "rank"} - {"kernel_owners"}
"""Fields that are kept, also those that older recordings had. Owners of kernels are not, for they
are names of the program's own."""
_PUBLIC_THREAD = re.compile(
    r"(?:thread \d{1,10} \(?)?"
    r"(?:python[23]?(?:\.\d{1,2})?|pt_(?:autograd|data_worker|data_pin|main_thread|pin_memory"
    r"|nccl_(?:watchdg|heartbt)|thread)(?:_\d{1,6})?|cuda[-\w]{0,4}EvtHandlr|CUPTI worker thread"
    r"|MainThread|Thread-\d{1,6})\)? ?"
    r"|stream \d{1,10} ?"
)
"""Names that PyTorch, CUDA and Python themselves give; any other is the program's, and may be
anybody's."""


def public_record(record: Any) -> dict[str, Any]:
    """The known facts that the capture of traceprobe recorded; nothing of what is no record."""
    if not isinstance(record, dict):
        return {}
    read_apart = ("memory", "loader", "compiler")
    kept: dict[str, Any] = facts(
        {k: v for k, v in record.items() if k in RECORDED and k not in read_apart}
    )
    if (memory := read(record.get("memory"))) is not None:
        kept["memory"] = _public_memory(memory)
    if (loader := loaders.read(record.get("loader"))) is not None:
        kept["loader"] = _public_loader(loader)
    if (notes := _compiler_notes(record.get("compiler"))) is not None:
        kept["compiler"] = msgspec.to_builtins(replace(notes, lines=[]))
    return kept


def _compiler_notes(recorded: object) -> CompilerNotes | None:
    """What was noted of torch.compile; None of what no capture writes."""
    try:
        return msgspec.convert(recorded, CompilerNotes)
    except msgspec.ValidationError:
        return None


def _public_loader(loader: Loader) -> dict[str, Any]:
    """As it was recorded, but for the names of the program's own data and lines."""
    found: dict[str, Any] = msgspec.to_builtins(loader)
    found["dataset"] = _public(found["dataset"])
    for line in found["lines"]:
        line["name"] = _public(line["name"])
    return found


def _public(name: str | None) -> str | None:
    return name if name is None or told(name) == name else None


def _public_memory(memory: Memory) -> dict[str, Any]:
    """As it was recorded; reasons may quote anything."""
    told: dict[str, Any] = msgspec.to_builtins(memory)
    for reason in ("not_measured", "not_predicted"):
        if told[reason] is not None:
            told[reason] = quoted(told[reason])
    return told


def is_public_thread(name: str) -> bool:
    """Whether a thread's name is one of those."""
    return _PUBLIC_THREAD.fullmatch(name) is not None
