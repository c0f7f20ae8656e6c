"""A pipeline of equal or unequal stages, played by its schedule, with what each stage has to wait.

A message takes `transfer_ns` from the instant at which its sender has it and its receiver waits for
it; its kernel runs on the receiver from then on, and on the sender until it is gone. A stage asks
for a message when it has nothing else to do, and computes on while one of its own leaves.

    stage 0   F0 F1 F2 F3 ·················· B0 B1 B2 B3
    stage 1   ·· F0 F1 F2 F3 B0 B1 B2 B3 ···············
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.builders.scenario import COMM_STREAM, Message, Process, Scenario, Script

Schedule = Literal["gpipe", "1f1b"]
Task = tuple[str, int]
BETWEEN_NS = 500
"""From the end of a step to the next, where the host waits for the end."""
NAME = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Pipeline:
    """Parameters of a run; durations in ns.

    Args:
        steps: recorded ones; the one before them, which fills the pipeline, is not.
        slower: factor by which a stage is slower than the others.
        named: whether messages say between which ranks they go.
        ahead: whether the host launches all of a step at once, and waits for its end; else it
            launches each operation just before.
    """

    stages: int
    micro_batches: int
    forward_ns: int = 10_000
    backward_ns: int = 20_000
    transfer_ns: int = 10
    schedule: Schedule = "gpipe"
    steps: int = 6
    slower: dict[int, int] = field(default_factory=dict)
    named: bool = False
    ahead: bool = False

    def tasks(self, stage: int) -> list[Task]:
        """Forward (F) and backward (B) passes of a stage in a step, in order."""
        forward = [("F", k) for k in range(self.micro_batches)]
        backward = [("B", k) for k in range(self.micro_batches)]
        if self.schedule == "gpipe":
            return forward + backward
        ahead = min(self.stages - stage - 1, self.micro_batches)
        turns = [task for pair in zip(forward[ahead:], backward, strict=False) for task in pair]
        return forward[:ahead] + turns + backward[self.micro_batches - ahead :]

    def ranks(self) -> list[Scenario]:
        """What each stage records, a rank each."""
        played = _Played(self)
        return [played.record(stage) for stage in range(self.stages)]


class _Played:
    """When everything happens."""

    def __init__(self, plan: Pipeline) -> None:
        self.plan = plan
        self.free = [0] * plan.stages
        self.asked: dict[tuple[int, int, Task], int] = {}
        self.done: dict[tuple[int, int, Task], int] = {}
        self.start: dict[tuple[int, int, Task], int] = {}
        self.launched = 0
        todo = [
            [(step, task) for step in range(plan.steps + 1) for task in plan.tasks(stage)]
            for stage in range(plan.stages)
        ]
        while any(todo):
            for stage, tasks in enumerate(todo):
                while tasks and self._ready(stage, *tasks[0]):
                    self._run(stage, *tasks.pop(0))

    def source(self, stage: int, task: Task) -> int | None:
        """The stage that a task waits for a message of, if any."""
        before = stage - 1 if task[0] == "F" else stage + 1
        return before if 0 <= before < self.plan.stages else None

    def arrival(self, stage: int, step: int, task: Task) -> int:
        """When the message that a task needs is there."""
        source = self.source(stage, task)
        return max(self.asked[stage, step, task], self.done[source or 0, step, task]) + (
            self.plan.transfer_ns
        )

    def _ready(self, stage: int, step: int, task: Task) -> bool:
        source = self.source(stage, task)
        return source is None or (source, step, task) in self.done

    def _run(self, stage: int, step: int, task: Task) -> None:
        key, begin = (stage, step, task), self.free[stage]
        self.asked[key] = begin
        if self.source(stage, task) is not None:
            begin = self.arrival(stage, step, task)
        lasts = self.plan.forward_ns if task[0] == "F" else self.plan.backward_ns
        self.start[key] = begin
        self.done[key] = self.free[stage] = begin + lasts * self.plan.slower.get(stage, 1)
        if self.plan.ahead and task == self.plan.tasks(stage)[-1]:
            self.free[stage] += BETWEEN_NS

    def record(self, stage: int) -> Scenario:
        plan = self.plan
        script = Script(Process(1_000 * (stage + 1), rank=stage), world_size=plan.stages)
        recorded = range(1, plan.steps + 1)
        first = {k: 1_000_000 + self.asked[stage, k, plan.tasks(stage)[0]] for k in recorded}
        begins = {**first, plan.steps + 1: 1_000_000 + self.free[stage]}
        for k in recorded:
            script.range(f"step {k}", begins[k] - 60, begins[k + 1] - 60)
            self.launched = begins[k] - 50
            for task in plan.tasks(stage):
                key = (stage, k, task)
                self._message(script, stage, stage, k, task)
                kernel = (1_000_000 + self.start[key], 1_000_000 + self.done[key])
                script.op("kernel", *kernel, self._call(max(kernel[0] - 50, begins[k] - 50)))
                after = stage + 1 if task[0] == "F" else stage - 1
                if 0 <= after < plan.stages:
                    self._message(script, stage, after, k, task)
            if plan.ahead:
                script.call("cudaDeviceSynchronize", self.launched, begins[k + 1] - 65)
        return script.build()

    def _call(self, late: int) -> tuple[int, int]:
        """When an operation is launched: `late`, or right after the one before it."""
        if not self.plan.ahead:
            return late, late + 5
        self.launched += 1
        return self.launched - 1, self.launched

    def _message(self, script: Script, stage: int, receiver: int, step: int, task: Task) -> None:
        """The kernel of the message that `receiver` needs for a task, on `stage`."""
        source = self.source(receiver, task)
        if source is None:
            return
        at = self.asked if stage == receiver else self.done
        begin = 1_000_000 + at[stage, step, task]
        end = 1_000_000 + self.arrival(receiver, step, task)
        call = begin - (40 if stage == receiver else 75)  # sent before the step ends
        pair = (min(source, receiver), max(source, receiver))
        script.op(
            *("comm", begin, end, self._call(call)),
            stream=COMM_STREAM + (stage == receiver) + 2 * (receiver > source),
            name=NAME,
            message=Message("send", ranks=pair, group=str(pair)) if self.plan.named else None,
        )
