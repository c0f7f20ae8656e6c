"""Loaders, to put into reports and into what captures record."""

from __future__ import annotations

from typing import Any

import msgspec

from traceprobe.records.loader import Loader, read


def make_loader_record(**changes: Any) -> dict[str, Any]:
    """Four workers that take 320 ms for a batch of eight, 36 ms an item."""
    lines = [("item", "data.py(31): decode", 208), ("item", "data.py(33): decode", 16)]
    lines += [("item", "data.py(40): flip", 64), ("collate", "data.py(60): pad", 32)]
    return {
        "workers": 4,
        "batch_size": 8,
        "prefetch_factor": 2,
        "pin_memory": True,
        "persistent_workers": False,
        "dataset": "Pictures",
        "iterable": False,
        "batches_per_step": 1.0,
        "batches": 30,
        "items_per_batch": 8.0,
        "item_ms": 36.0,
        "collate_ms": 32.0,
        "samples": 100,
        "lines": [{"part": part, "name": name, "ms": ms} for part, name, ms in lines],
        **changes,
    }


def make_loader(**changes: Any) -> Loader:
    """The same as it is read."""
    found = read(make_loader_record(**changes))
    assert found is not None
    return msgspec.structs.replace(found)
