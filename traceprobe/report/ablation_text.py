"""An ablation in words and columns: the rows that every output shows, and the terminal's table."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traceprobe.report.ablation import Ablation, Interval, Share
from traceprobe.report.palette import BOUND_WORDS, word_for
from traceprobe.report.text import NOT_OBSERVED, clean, percent, significant

MIN_WIDTH = 20
NARROW = 72
"""Columns below which the interval and the rate of tokens are left out."""


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
            step=significant(variant.step_ms.median),
            interval=spread(variant.step_ms),
            samples=_rate(variant.samples_per_second),
            tokens=_rate(variant.tokens_per_second),
            includes=variant.includes,
        )
        for variant in ablation.variants
    ]


def spread(interval: Interval | Share) -> str:
    """The bounds of a 95 % interval."""
    return f"{significant(interval.low)}–{significant(interval.high)}"


def share_rows(ablation: Ablation) -> list[tuple[str, str, str]]:
    """Word, share and interval of the four parts of a step."""
    found = []
    for name, share in ablation.oracle.shares.items():
        bounds = NOT_OBSERVED
        if share is not None:
            bounds = f"{100 * share.low:.1f}–{100 * share.high:.1f} %"
        found.append((word_for(name), percent(share.value if share else None), bounds))
    return found


def overlap_sentence(ablation: Ablation) -> str | None:
    """Where the whole loop lies between no overlap of loading and training, and all of it."""
    overlap = ablation.overlap
    if overlap is None or overlap.position is None:
        return None
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
    oracle = ablation.oracle
    found = BOUND_WORDS[oracle.bound]
    return f"{found}, then {word_for(oracle.secondary)}" if oracle.secondary else found


def render(ablation: Ablation, width: int, color: bool) -> str:
    """The ablation in lines of at most `width` columns."""
    out = StringIO()
    console = Console(
        file=out,
        width=max(width, MIN_WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(Text(f"{title(ablation)}  by ablation", style="bold"))
    console.print()
    console.print(_variants(ablation, wide=console.width >= NARROW))
    console.print()
    for word, share, bounds in share_rows(ablation):
        console.print(Text(f"{word:<15}{share:>8}  {bounds}"), overflow="fold")
    console.print()
    told = overlap_sentence(ablation)
    for sentence in (*ablation.oracle.reasons, *([told] if told else [])):
        console.print(Text(f"- {sentence}"), overflow="fold")
    for name, why in ablation.absent.items():
        console.print(Text(f"- {name} was not measured: {clean(why)}"), overflow="fold")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _variants(ablation: Ablation, *, wide: bool) -> Table:
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
        table.add_row(*cells, *([row.tokens] if tokens else []))
    return table


def _rate(rate: Interval | None) -> str:
    return NOT_OBSERVED if rate is None else significant(rate.median)
