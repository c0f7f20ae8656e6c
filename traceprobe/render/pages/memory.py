"""A prediction of memory as a document: what `traceprobe memory` shows."""

from __future__ import annotations

from traceprobe.formatting import percent, shorten, size
from traceprobe.records.memory import PARTS, Memory
from traceprobe.render.document import Document, Section, Table
from traceprobe.render.pages import memory_parts as memory_text


def document(memory: Memory, version: str) -> Document:
    """The parts at the peak of the simulated step, and the largest of each phase.

    Args:
        memory: one with a prediction. version: of traceprobe.
    """
    step = memory.predicted
    assert step is not None, "only a prediction is shown so"
    needed = step.reserved_bytes + memory_text.CONTEXT_BYTES
    kept = [(part, getattr(step.parts, part)) for part in PARTS]
    parts = [
        (memory_text.WORDS[part], size(nbytes), percent(nbytes / max(step.peak_bytes, 1)))
        for part, nbytes in kept
        if nbytes
    ]
    phases = [(shorten(name, 40), size(nbytes)) for name, nbytes in step.phases.items()]
    return Document(
        kind="memory",
        title=f"{size(needed)} of GPU memory",
        tone="plain",
        headline=f"A step holds {size(step.peak_bytes)} at its peak; the allocator would reserve "
        f"{size(step.reserved_bytes)}, and a CUDA context takes about "
        f"{size(memory_text.CONTEXT_BYTES)}.",
        points=memory_text.sentences(memory),
        cautions=[],
        sections=[
            Section(
                "parts",
                "What for",
                blocks=[
                    Table(
                        "Parts at the peak", ["part", "bytes", "share"], parts, frozenset({1, 2})
                    ),
                    Table("Largest of each phase", ["phase", "bytes"], phases, frozenset({1})),
                ],
            )
        ],
        inputs=[],
        version=version,
        json=memory.to_json(),
    )
