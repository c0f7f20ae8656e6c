"""An ablation told in sections, and what a report says of one beside its own verdict."""

from __future__ import annotations

from traceprobe.formatting import NOT_OBSERVED, percent, shorten, significant
from traceprobe.model.taxonomy import AGREEMENT_LABELS, SHARE_LABELS, SHARES
from traceprobe.records.ablation import Ablation, AblationVerdict, Interval, Share, Variant
from traceprobe.records.report import Verdict
from traceprobe.render.bars import segments, share_bar
from traceprobe.render.document import Bars, Block, Code, Document, Section, Table, Text, Tone
from traceprobe.verdict import agreement
from traceprobe.verdict.agreement import named

LEAST_MS = 0.01
"""A loader that takes less for a batch only hands out what is there: its rate means nothing."""
NO_LIMIT = "no limit"
INCLUDES = "what it includes"
PARTS = ("io", "communication", "overhead", "compute")
MAX_PROSE = 400
_TONES: dict[str, Tone] = {"agree": "good", "disagree": "unclear"}
_HELP = (
    "The same loop ran without a profiler, with parts of it taken out: {method}. What a step gets "
    "shorter without a part is the share of that part; intervals are 95 % bootstrap intervals over "
    "the trials. The trace has its shares from what it recorded. Neither knows of the other. “—” "
    "means that it cannot tell; “no limit” that the loader only hands out batches that are there."
)


def document(ablation: Ablation) -> Document:
    """The ablation for all outputs."""
    words = "\n".join(
        f"{word:<15}{share:>8}  {low}"
        for word, share, low in share_rows(ablation)
        if share != NOT_OBSERVED
    )
    table = variants_table(ablation)
    columns = [n for n, name in enumerate(table.head) if name != INCLUDES]
    short = Table(
        table.caption,
        [table.head[n] for n in columns],
        [[row[n] for n in columns] for row in table.rows],
        table.numeric,
    )
    listed = Text(reasons(ablation), "-")
    return Document(
        kind="ablation",
        title=title(ablation),
        aside="by ablation",
        headline="",
        sections=[Section("variants", "The variants", blocks=[table, Text(reasons(ablation))])],
        summary={"terminal": [*([[Code(words)]] if words else []), [short], [listed]]},
        version=ablation.traceprobe_version,
        json=ablation.to_json(),
    )


def beside(verdict: Verdict, ablation: Ablation) -> Section:
    """The verdict of a trace beside that of an ablation."""
    compared = agreement.compare(verdict, ablation)
    measured = ablation.oracle.shares
    known = {key: share.value for key in SHARES if (share := measured.get(key)) is not None}
    bars = [share_bar("by trace", verdict.shares), share_bar("by ablation", known)]
    # Rounded as in the verdict: two figures for one share would puzzle.
    traced = {segment.word: segment.text for segment in segments(bars[0])}
    rows = [
        [
            SHARE_LABELS[key],
            traced.get(SHARE_LABELS[key], NOT_OBSERVED),
            percent(share.value if (share := measured.get(key)) else None),
            f"{bounds(share)} %" if share else "",
        ]
        for key in SHARES
    ]
    rows.append(["bound by", _bound_by(verdict), _bound_by(ablation.oracle), ""])
    head = ["", "by trace", "by ablation", "95 % interval"]
    trials = max((len(variant.trial_ms) for variant in ablation.variants), default=0)
    ranks = f", on {ablation.ranks} ranks at once" if ablation.ranks > 1 else ""
    blocks: list[Block] = [
        Text(
            [f"By ablation: {compared.words}."],
            f"{AGREEMENT_LABELS[compared.state]}.",
            _TONES.get(compared.state, "plain"),
        ),
        Bars("Shares of the step", "share of the step", bars, relative=True),
        Table("The step by trace and by ablation", head, rows, frozenset({1, 2, 3})),
        Text(reasons(ablation)),
        variants_table(ablation),
    ]
    help_text = _HELP.format(method=f"{trials} trials of each variant, in turns{ranks}")
    return Section("ablation", "Checked by ablation", blocks=blocks, help=help_text)


def _bound_by(judged: Verdict | AblationVerdict) -> str:
    words = [SHARE_LABELS[part] for part in agreement.parts(judged)]
    return " and ".join(words) or "no verdict"


def variants_table(ablation: Ablation) -> Table:
    """How fast each variant is, and what it includes."""
    tokens = any(variant.tokens_per_second for variant in ablation.variants)
    rates = ["samples/s", "tokens/s"] if tokens else ["samples/s"]
    head = ["variant", "ms a step", "95 % interval", *rates, INCLUDES]
    found = [
        [
            variant.name,
            _step(variant),
            NOT_OBSERVED if _idle(variant) else step_bounds(variant.step_ms),
            _rate(variant, variant.samples_per_second),
            *([_rate(variant, variant.tokens_per_second)] if tokens else []),
            shorten(variant.includes, MAX_PROSE),
        ]
        for variant in ablation.variants
    ]
    return Table("The variants", head, found, frozenset(range(1, len(head) - 1)))


def step_bounds(interval: Interval) -> str:
    """The bounds of a 95 % interval."""
    return f"{significant(interval.low)}–{significant(interval.high)}"


def bounds(share: Share) -> str:
    """The bounds of a share's 95 % interval, in per cent."""
    return f"{100 * share.low:.1f}–{100 * share.high:.1f}"


def share_rows(ablation: Ablation) -> list[tuple[str, str, str]]:
    """Word, share and interval of the four parts of a step."""
    found = []
    for name in PARTS:
        share = ablation.oracle.shares.get(name)
        spread = NOT_OBSERVED if share is None else f"{bounds(share)} %"
        found.append((SHARE_LABELS[name], percent(share.value if share else None), spread))
    return found


def shares_line(ablation: Ablation) -> str:
    """The parts that are known, with their intervals, on one line."""
    known = [(name, share) for name in PARTS if (share := ablation.oracle.shares.get(name))]
    words = [f"{SHARE_LABELS[n]} {percent(s.value)} ({bounds(s)})" for n, s in known]
    return ", ".join(words)


def steps_line(ablation: Ablation) -> str:
    """The step time of every variant on one line."""
    return ", ".join(f"{variant.name} {_step(variant)}" for variant in ablation.variants)


def overlap_sentence(ablation: Ablation) -> str | None:
    """Where the whole loop lies between no overlap of loading and training, and all of it."""
    overlap = ablation.overlap
    if overlap is None:
        return None
    if overlap.position is None:
        return "overlap could not show: of loading and training, one takes next to no time"
    if overlap.position < 0:
        verdict = "loading and training slow each other down"
    elif overlap.position < 0.5:
        verdict = "loading and training hardly overlap"
    else:
        verdict = "loading and training overlap"
    return (
        f"overlap {overlap.position:.2f} of 1 ({significant(overlap.full)} steps/s; one after the "
        f"other {significant(overlap.serial)}, at once {significant(overlap.parallel)}): {verdict}"
    )


def title(ablation: Ablation) -> str:
    """The bound and the runner-up."""
    judged = ablation.oracle
    second = SHARE_LABELS.get(judged.secondary or "")
    return f"{named(judged)}, then {second}" if second else named(judged)


def absences(ablation: Ablation) -> list[tuple[str, str]]:
    """Variants that were not measured, by the reason that they have in common."""
    names: dict[str, list[str]] = {}
    for name, why in sorted(ablation.absent.items()):
        names.setdefault(shorten(why, MAX_PROSE), []).append(shorten(name, 40))
    return [(", ".join(found), why) for why, found in names.items()]


def reasons(ablation: Ablation) -> list[str]:
    """The sentences below the numbers."""
    overlap = overlap_sentence(ablation)
    return [
        *(shorten(reason, MAX_PROSE) for reason in ablation.oracle.reasons),
        *([overlap] if overlap else []),
        *_unknown(ablation),
        *(f"not measured: {names} ({why})" for names, why in absences(ablation)),
    ]


def _unknown(ablation: Ablation) -> list[str]:
    """Where the parts count for which there is no share."""
    shares = ablation.oracle.shares
    found = []
    if shares.get("io") is None:
        rest = "compute" if shares.get("overhead") is None else "overhead"
        found.append(f"loading cannot be taken out here; what is not hidden counts as {rest}")
    if shares.get("overhead") is None:
        found.append("overhead cannot be told from computing here and counts as compute")
    if shares.get("communication") is None and ablation.ranks > 1:
        rest = "compute" if shares.get("overhead") is None else "overhead"
        found.append(f"communication cannot be taken out here; what is not hidden counts as {rest}")
    return found


def _idle(variant: Variant) -> bool:
    """Whether this is a loader that does nothing."""
    return variant.name == "io" and variant.step_ms.median < LEAST_MS


def _step(variant: Variant) -> str:
    return f"< {LEAST_MS}" if _idle(variant) else significant(variant.step_ms.median)


def _rate(variant: Variant, rate: Interval | None) -> str:
    if rate is None:
        return NOT_OBSERVED
    return NO_LIMIT if _idle(variant) else significant(rate.median)
