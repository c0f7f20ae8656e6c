"""An ablation in words and columns: the rows that every output shows, and the terminal's table."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from traceprobe.formatting import NOT_OBSERVED, encodable, percent, shorten, significant
from traceprobe.model.taxonomy import SHARE_LABELS
from traceprobe.records.ablation import Ablation, Interval, Share, Variant
from traceprobe.render.console import collected, console
from traceprobe.verdict.agreement import named

NARROW = 72
"""Columns below which the interval and the rate of tokens are left out."""
LEAST_MS = 0.01
"""A loader that takes less for a batch only hands out what is there: its rate means nothing."""
NO_LIMIT = "no limit"
PARTS = ("io", "communication", "overhead", "compute")
MAX_PROSE = 400


@dataclass(frozen=True)
class Row:
    """One variant, ready to print; times are ms a step."""

    name: str
    step: str
    interval: str
    samples: str
    tokens: str
    includes: str


def rows(ablation: Ablation) -> list[Row]:
    """The variants in the order they build on each other."""
    return [
        Row(
            name=variant.name,
            step=f"< {LEAST_MS}" if _idle(variant) else significant(variant.step_ms.median),
            interval=NOT_OBSERVED if _idle(variant) else step_bounds(variant.step_ms),
            samples=_rate(variant, variant.samples_per_second),
            tokens=_rate(variant, variant.tokens_per_second),
            includes=shorten(variant.includes, MAX_PROSE),
        )
        for variant in ablation.variants
    ]


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
    return ", ".join(f"{row.name} {row.step}" for row in rows(ablation))


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
    told = overlap_sentence(ablation)
    return [
        *(shorten(reason, MAX_PROSE) for reason in ablation.oracle.reasons),
        *([told] if told else []),
        *_unknown(ablation),
        *(f"not measured: {names} ({why})" for names, why in absences(ablation)),
    ]


def _unknown(ablation: Ablation) -> list[str]:
    """Where the parts count for which there is no share."""
    shares = ablation.oracle.shares
    found = []
    if shares.get("overhead") is None:
        found.append("overhead cannot be told from computing here and counts as compute")
    if shares.get("communication") is None and ablation.ranks > 1:
        rest = "compute" if shares.get("overhead") is None else "overhead"
        found.append(f"communication cannot be taken out here; what is not hidden counts as {rest}")
    return found


def render(ablation: Ablation, width: int, color: bool, encoding: str = "utf-8") -> str:
    """The ablation in lines of at most `width` columns, all of it encodable in `encoding`."""
    printed = console(width, color=color)

    def say(text: str, style: str = "") -> None:
        printed.print(Text(encodable(text, encoding), style=style), overflow="fold")

    def item(text: str) -> None:
        """Further lines begin below the first word."""
        grid = Table.grid(padding=0)
        grid.add_column(width=2)
        grid.add_column(overflow="fold")
        grid.add_row("-", Text(encodable(text, encoding)))
        printed.print(grid)

    say(f"{title(ablation)}  by ablation", "bold")
    say("")
    printed.print(_variants(ablation, encoding, wide=printed.width >= NARROW))
    say("")
    for word, share, spread in share_rows(ablation):
        say(f"{word:<15}{share:>8}  {spread}")
    say("")
    for sentence in reasons(ablation):
        item(sentence)
    return collected(printed)


def _variants(ablation: Ablation, encoding: str, *, wide: bool) -> Table:
    found = rows(ablation)
    tokens = wide and any(variant.tokens_per_second for variant in ablation.variants)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("variant", no_wrap=True)
    for name in ("ms a step", *(["95 % interval"] if wide else []), "samples/s"):
        table.add_column(name, justify="right")
    if tokens:
        table.add_column("tokens/s", justify="right")
    for row in found:
        cells = [row.name, row.step, *([row.interval] if wide else []), row.samples]
        cells += [row.tokens] if tokens else []
        table.add_row(*(encodable(cell, encoding) for cell in cells))
    return table


def _idle(variant: Variant) -> bool:
    """Whether this is a loader that does nothing."""
    return variant.name == "io" and variant.step_ms.median < LEAST_MS


def _rate(variant: Variant, rate: Interval | None) -> str:
    if rate is None:
        return NOT_OBSERVED
    return NO_LIMIT if _idle(variant) else significant(rate.median)
