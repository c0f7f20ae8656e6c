"""How what `traceprobe annotate` adds to a trace is told from the trace itself: by its category."""

from __future__ import annotations

ADDED = "traceprobe"
"""Category of events that were added: they are no part of what was recorded."""
VIEW = "traceprobe_view"
"""Category of an event that says that the file is made for viewers only: its times are those of
several files, or it was no Chrome trace. The event is called after the files it was made of."""
