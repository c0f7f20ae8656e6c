"""A run while it goes on, for those who collect metrics: Prometheus text, or JSON lines."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from traceprobe.capture.watch.rows import FACTS, ROW, SUFFIX, Kind
from traceprobe.formatting import counted, duration, percent
from traceprobe.system.atomic_write import write_whole

RECENT = 100
"""Steps whose median is the pace of now."""
_NAMES = {
    Kind.COLLECTION: "garbage-collection",
    Kind.SAVE: "checkpoint",
    Kind.EVALUATION: "evaluation",
    Kind.COMPILATION: "compilation",
    Kind.RETRY: "allocator",
    Kind.PASS: "loader-pass",
    Kind.CAPTURE: "capture",
}


class LiveProcess:
    """What a process has noted so far; only what is new is read.

    Args:
        facts: its file of facts.
    """

    def __init__(self, facts: Path) -> None:
        told = json.loads(facts.read_bytes())
        self.rank, self._began_ns = int(told["rank"]), int(told["began_ns"])
        self._path, self._offset = facts.with_suffix(SUFFIX), 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.steps, self.seconds, self.waited_s = 1, 0.0, 0.0
        self.last: dict[str, object] | None = None
        self.events: Counter[str] = Counter()
        self.event_seconds: Counter[str] = Counter()

    @property
    def step_s(self) -> float:
        """The pace of now."""
        return median(self._recent) if self._recent else 0.0

    def read(self) -> Iterator[dict[str, object]]:
        """What happened since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = len(content) // ROW.size * ROW.size
        self._offset += whole
        for kind, many, number, end_ns, ns, wait_ns, _ in ROW.iter_unpack(content[:whole]):
            if kind == Kind.STEP:
                self.steps += many
                self.seconds += ns / 1e9
                self.waited_s += wait_ns / 1e9
                self._recent.append(ns / many / 1e9)
                continue
            name = _NAMES[Kind(kind)]
            self.events[name] += 1
            self.event_seconds[name] += ns / 1e9
            self.last = {
                "at_s": round((end_ns - self._began_ns) / 1e9, 3),
                "rank": self.rank,
                "event": name,
                "step": number,
                "ms": round(ns / 1e6, 3),
            }
            yield self.last

    def summary(self) -> dict[str, object]:
        """How far it is, and at which pace."""
        return {
            "rank": self.rank,
            "steps": self.steps,
            "step_ms": round(self.step_s * 1e3, 4),
            "wait_share": round(self.waited_s / max(self.seconds, 1e-9), 4),
        }


class Live:
    """All processes of a run.

    Args:
        work: folder in which they leave what they note.
        prometheus: file that is replaced at each look, in the text format of Prometheus.
        lines: file that gets a line of JSON for each event and for each look.
        on_state: takes a line for the person who waits, at each look.
    """

    def __init__(
        self,
        work: Path,
        prometheus: Path | None,
        lines: Path | None,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        self._work, self._prometheus, self._lines = work, prometheus, lines
        self._on_state = on_state
        self._processes: dict[Path, LiveProcess] = {}
        if lines is not None:
            lines.write_text("", encoding="utf-8")

    def look(self) -> None:
        """Read what is new, and tell it. A disk that is full does not end the run."""
        if self._prometheus is None and self._lines is None and self._on_state is None:
            return
        with suppress(OSError):
            for facts in self._work.glob(f"*{FACTS}"):
                if facts not in self._processes:
                    self._processes[facts] = LiveProcess(facts)
            processes = sorted(self._processes.values(), key=lambda process: process.rank)
            news = [event for process in processes for event in process.read()]
            if self._lines is not None:
                told = [*news, *(process.summary() for process in processes)]
                with self._lines.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(line) + "\n" for line in told)
            if self._prometheus is not None:
                with write_whole(self._prometheus, replace=True) as temporary:
                    temporary.write_text(prometheus_text(processes), encoding="utf-8")
            if self._on_state is not None and processes:
                self._on_state(state_line(processes))


def state_line(processes: Sequence[LiveProcess]) -> str:
    """`12,345 steps, 84 ms, loader 2.1 %, last checkpoint at step 12,300: 1.8 s`.

    Steps are those of the lowest rank, the share is that of the one that waits most.
    """
    first = processes[0]
    share = max(process.waited_s / max(process.seconds, 1e-9) for process in processes)
    line = (
        f"{counted(first.steps, 'step')}, {duration(first.step_s * 1e9)}, loader {percent(share)}"
    )
    noted = [process.last for process in processes if process.last is not None]
    if not noted:
        return line
    last = max(noted, key=lambda event: float(str(event["at_s"])))
    took = duration(float(str(last["ms"])) * 1e6)
    return f"{line}, last {last['event']} at step {last['step']:,}: {took}"


def prometheus_text(processes: list[LiveProcess]) -> str:
    """Metrics in Prometheus' text format, as node_exporter's textfile collector reads it."""
    metrics: dict[tuple[str, str, str], list[tuple[str, float]]] = {
        ("traceprobe_steps_total", "counter", "Updates of the optimizer."): [
            (f'rank="{p.rank}"', p.steps) for p in processes
        ],
        ("traceprobe_step_seconds", "gauge", f"Median of the last {RECENT} steps."): [
            (f'rank="{p.rank}"', p.step_s) for p in processes
        ],
        ("traceprobe_loader_wait_seconds_total", "counter", "Time spent waiting for batches."): [
            (f'rank="{p.rank}"', p.waited_s) for p in processes
        ],
        ("traceprobe_events_total", "counter", "Pauses of the loop, by cause."): [
            (f'rank="{p.rank}",cause="{cause}"', count)
            for p in processes
            for cause, count in sorted(p.events.items())
        ],
        ("traceprobe_event_seconds_total", "counter", "Time of these pauses."): [
            (f'rank="{p.rank}",cause="{cause}"', seconds)
            for p in processes
            for cause, seconds in sorted(p.event_seconds.items())
        ],
    }
    return "".join(
        f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"
        + "".join(f"{name}{{{labels}}} {value:.9g}\n" for labels, value in samples)
        for (name, kind, meaning), samples in metrics.items()
        if samples
    )
