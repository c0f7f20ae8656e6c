"""What a finding comes from: a rule with an id, and the function that applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import UNSET

from traceprobe.findings.evidence import Evidence, Saving
from traceprobe.findings.inference import in_words_of_inference
from traceprobe.findings.vendors import in_words_of
from traceprobe.records.report import Finding, Status
from traceprobe.records.site import Site
from traceprobe.replay.scenario import Changes


class Answer(msgspec.Struct, frozen=True):
    """What a rule finds in a run.

    Args:
        evidence: sentences with the numbers behind the status; empty ones are left out.
        saving: upper bound of what a step gets shorter by; see `Evidence.saving`.
        advice: what to do about it; empty where there is nothing to do.
        sites: where in the program most of it is.
        changes: what of the iterations is different once that is done, which predicts the saving;
            None where nothing that can be played corresponds to it.
    """

    status: Status
    evidence: Sequence[str]
    saving: Saving | None = None
    advice: str = ""
    sites: Sequence[Site] = ()
    changes: Changes | None = None


def not_applicable(why: str, advice: str = "") -> Answer:
    """The answer where the run has nothing of the kind."""
    return Answer("not-applicable", [why], advice=advice)


def inconclusive(why: str, advice: str = "") -> Answer:
    """The answer where the trace cannot tell; the advice says what to record."""
    return Answer("inconclusive", [why], advice=advice)


NO_CALLS = inconclusive(
    "the trace has no CUDA calls",
    "Record the CUDA runtime (`ProfilerActivity.CUDA`, `nsys profile --trace=cuda`).",
)
"""The answer where what the host asked of its device was not recorded."""


class Rule(msgspec.Struct, frozen=True):
    """A question about a run; `docs/findings.md` has the same texts.

    They are written for training on NVIDIA's GPUs; a run on others gets them in the words of their
    vendor, and advice about losses and updates is left out for one that only infers.

    Args:
        definition: how status and saving are computed.
        verify: how a user can check the finding.
        of_capture: it asks about the capture, not about the training in it.
        of_gpu: it asks about what only a GPU has.
        title_on_cpu: the title of a run on a CPU, where that is another.
    """

    id: str
    title: str
    definition: str
    verify: str
    of_capture: bool
    of_gpu: bool
    title_on_cpu: str
    answer: Callable[[Evidence], Answer]

    def __call__(self, evidence: Evidence) -> Finding:
        """The finding in a run."""
        return self.examine(evidence)[0]

    def examine(self, evidence: Evidence) -> tuple[Finding, Changes | None]:
        """The finding in a run, and what mending it changes, where it asks for that."""
        if self.of_gpu and evidence.on_cpu:
            answer = not_applicable("the run uses the CPU alone")
        elif evidence.no_training and not self.of_capture:
            answer = inconclusive(f"the capture shows no training: {evidence.no_training}")
        else:
            answer = self.answer(evidence)
        asking = answer.status in ("warn", "fail")
        say = partial(in_words_of, evidence.vendor)
        advice = in_words_of_inference(answer.advice) if evidence.infers else answer.advice
        finding = Finding(
            id=self.id,
            status=answer.status,
            title=say((self.title_on_cpu if evidence.on_cpu else "") or self.title),
            saving_ms_per_step=None if answer.saving is None else answer.saving.ms,
            saving_of=UNSET if answer.saving is None else list(answer.saving.classes),
            evidence=[say(line) for line in answer.evidence if line],
            advice=say(advice),
            rule=say(self.definition),
            verify=say(self.verify),
            sites=list(answer.sites) if asking and answer.sites else UNSET,
        )
        return finding, answer.changes if asking and answer.saving is not None else None


RULES: dict[str, Rule] = {}
"""Every rule by its id."""


def rule(
    id: str,
    *,
    title: str,
    definition: str,
    verify: str,
    of_capture: bool = False,
    of_gpu: bool = False,
    title_on_cpu: str = "",
) -> Callable[[Callable[[Evidence], Answer]], Rule]:
    """Register a function as the rule of that id."""

    def register(answer: Callable[[Evidence], Answer]) -> Rule:
        RULES[id] = Rule(id, title, definition, verify, of_capture, of_gpu, title_on_cpu, answer)
        return RULES[id]

    return register
