"""What to do about a run: how much can go, three fixes, then all other checks, folded."""

from __future__ import annotations

from traceprobe.findings.first_fixes import causes_of_skew, first_fixes, is_about
from traceprobe.model.taxonomy import SHARE_LABELS
from traceprobe.records.report import Finding, Report
from traceprobe.render.document import Block, Findings, Section, Text
from traceprobe.render.pages import report_headroom
from traceprobe.render.savings import together
from traceprobe.verdict.bounds import deciding

_HELP = (
    "Each check is one question about the run. The three that are written out would save most. "
    "What they save is predicted by replaying the recorded steps without their causes; in "
    "brackets is where nine of ten measurements should lie. “Up to” is an upper bound. Removing "
    "one cause shows the next one, so the numbers do not add up. A failure costs as much as what "
    "decides a verdict, a warning is worth a look. Change one thing, and measure again."
)


def advice_section(report: Report) -> Section:
    """At most three fixes, and every other check that applies."""
    fixes = first_fixes(report)
    blocks: list[Block] = [*report_headroom.sections(report)]
    bounds = deciding(report.verdict.bound, report.verdict.secondary)
    if bounds and not any(_explains(finding, bounds, report) for finding in fixes):
        on_cpu = all(rank.device.kind == "cpu" for rank in report.ranks)
        blocks.append(Text([_unexplained(bounds, on_cpu=on_cpu)]))
    applying = [f for f in report.findings if f.status != "not-applicable"]
    first = [finding.id for finding in fixes]
    blocks.append(Findings(applying, first, report.step_ms, together(report, fixes)))
    return Section("findings", "What to do first", blocks=blocks, help=_HELP, nav="Fix first")


def _explains(finding: Finding, bounds: tuple[str, ...], report: Report) -> bool:
    """Whether a finding says where a bound comes from; iterations that do more take all kinds."""
    about = is_about(finding, bounds) or not causes_of_skew(finding, report).isdisjoint(bounds)
    return about or finding.id == "long-iterations"


def _unexplained(bounds: tuple[str, ...], *, on_cpu: bool) -> str:
    """For a bound that no check has advice about."""
    if bounds == ("compute",):
        device = "CPU" if on_cpu else "GPU"
        return (
            f"The {device} computes nearly all the time, and no check found it computing in a "
            f"wasteful way: a faster step needs less work, or a faster {device}."
        )
    named = " and ".join(SHARE_LABELS[name] for name in bounds)
    return f"No check names what makes {named} take so long; the timeline shows where it is."
