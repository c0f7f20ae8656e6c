"""Numbers and names as a reader sees them, the same in every output.

Times come in as nanoseconds and go out in the unit that keeps three significant digits short. Names
come from traces, so from anybody: whatever could steer a terminal or reorder the text around a name
is taken out before it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

NOT_OBSERVED = "—"
"""Stands where a quantity was not observed; never to be read as 0."""

_ASCII = str.maketrans("█▓▒░·▲■µ…—–−×≥→", "#%=-.!*u~---x>>")
"""Stand-ins, each as wide as what it stands for."""
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[PX\]^_].*?(?:\x07|\x1b\\|$)"  # strings up to their terminator: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]",  # all other two-character sequences
    re.DOTALL,
)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_SPACES = re.compile(r"\s+")
ROUND_FACTOR, TWICE, LEAST_FACTOR = 9.95, 1.995, 0.1
"""Factors are told without decimals from the first on, with one from the second, with two above the
third; from `TWICE` on they stand for percent."""
LEAST_PER_CENT, WHOLE_PER_CENT = 0.05, 9.95
"""Percent have a decimal from the first to the second."""
_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)")
_FUNCTION = re.compile(r"(?P<file>.+?\.pyx?): (?P<function>.+)")
MAX_PLACE = 80
"""Characters of a name in a place of the program."""
_SENTENCE_END = re.compile(r"[.;](?= )")
_CONDITION = re.compile(r"(If|Where|When|Unless|Once|While|As long as) ")
"""How a sentence begins whose first comma ends a condition."""
_EXAMPLES = re.compile(r"(such )?as |for example |like |where |which ")
"""How a list begins that makes no sense with its first part alone."""
_REMEMBERED = 1_000
"""Characters of the longest name that is cleaned once only."""


def clean(name: str) -> str:
    """`name` on one line, without what has no glyph.

    That is control characters, terminal escapes, bidi controls, zero-width marks, lone surrogates.
    What is clean stays as it is.
    """
    if name.isascii() and name.isprintable() and "  " not in name:
        return name.strip()
    return _clean(name) if len(name) <= _REMEMBERED else _clean.__wrapped__(name)


@lru_cache(maxsize=8192)
def _clean(name: str) -> str:
    text = _SPACES.sub(" ", _ESCAPE_SEQUENCE.sub("", name))
    return " ".join("".join(c for c in text if c.isprintable()).split())


def unsteered(line: str) -> str:
    """A line with its spaces, without what has no glyph or could steer a terminal."""
    text = _ESCAPE_SEQUENCE.sub("", line).expandtabs()
    return "".join(c for c in text if c.isprintable())


def shorten(name: str, limit: int) -> str:
    """`clean(name)` in at most `limit` characters; an ellipsis shows that some are missing."""
    text = clean(name[: limit * 8])
    if len(text) <= limit and len(name) <= limit * 8:
        return text
    return text[: limit - 1].rstrip() + "…"


def truncated(name: str, limit: int) -> str:
    """A name as it is, but for what is beyond so many characters: an ellipsis shows that."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


def line_place(name: str) -> str:
    """`train.py:57 in train_step` of a frame `train.py(57): train_step`; another name as it is."""
    frame = _FRAME.fullmatch(name)
    if frame is None:
        return shorten(name, MAX_PLACE)
    where = f"{_end_of(frame['file'])}:{frame['line']}"
    return f"{where} in {shorten(frame['function'], MAX_PLACE)}"


def is_function(name: str) -> bool:
    """Whether a frame is that of a function, `train.py: step`, of which no line is known."""
    return _FRAME.fullmatch(name) is None and _FUNCTION.fullmatch(name) is not None


def frame_place(name: str) -> str:
    """`at train.py:57 in step` of a line, `in step (train.py)` of a function."""
    frame = _FUNCTION.fullmatch(name)
    if frame is None or not is_function(name):
        return f"at {line_place(name)}"
    return f"in {shorten(frame['function'], MAX_PLACE)} ({_end_of(frame['file'])})"


def _end_of(file: str) -> str:
    """The end of a path, which says more than its beginning."""
    return clean(file if len(file) <= MAX_PLACE else f"…{file[1 - MAX_PLACE :]}")


def first_sentences(text: str, limit: int) -> str:
    """The whole sentences, or parts of them, that fit `limit`; of a long one its beginning."""
    if len(text) <= limit:
        return shorten(text, limit)
    ends = [found.start() for found in _SENTENCE_END.finditer(text[:limit])]
    return shorten(f"{text[: ends[-1]]}." if ends else text, limit)


def first_clauses(text: str, limit: int) -> str:
    """The same, and of a long sentence what comes before its last comma, where that says enough.

    For advice, which lists ways: with fewer of them it is as true, and nothing ends within a word.
    A condition that a sentence begins with is no way.
    """
    told = first_sentences(text, limit)
    if not told.endswith("…"):
        return told
    commas = [
        found.start()
        for found in re.finditer(r",(?= )", text[:limit])
        if not _inside(text[: found.start()])
    ]
    ways = commas[1:] if _CONDITION.match(text) else commas
    ends = [
        comma
        for comma, before in zip(commas, [-2, *commas], strict=False)
        if comma in ways and limit // 2 <= comma and not _EXAMPLES.match(text[before + 2 : comma])
    ]
    return f"{shorten(text[: ends[-1]], limit - 1)}." if ends else _whole_words(text, limit)


def _whole_words(text: str, limit: int) -> str:
    """The words that fit, and an ellipsis; code that is not all there is left out."""
    spaces = [found.start() for found in re.finditer(" ", text[: limit - 1])]
    ends = [space for space in spaces if not _inside(text[:space])]
    return f"{shorten(text[: ends[-1]], limit - 2)} …" if ends else shorten(text, limit)


def _inside(text: str) -> bool:
    """Whether code or a bracket is open at the end."""
    return text.count("`") % 2 == 1 or text.count("(") != text.count(")")


def ordinal(number: int) -> str:
    """`3rd`, `5th`, `12th`, `21st`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{_ENDINGS.get(last, 'th')}"


def encodable(text: str, encoding: str) -> str:
    """`text` with stand-ins for what `encoding` lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def significant(value: float) -> str:
    """`value` with three significant digits, no exponent and no more than four decimals."""
    if value == 0:
        return "0"
    decimals = sum(abs(value) < floor for floor in (99.95, 9.995, 0.9995, 0.09995))
    return f"{value:,.{decimals}f}"


def number(value: float | None) -> str:
    """`value` with three significant digits; a dash where it was not observed."""
    return NOT_OBSERVED if value is None else significant(value)


def plus_minus(value: float | None) -> str:
    """The same with its sign, as a difference."""
    if not value:
        return number(value)
    return ("+" if value > 0 else "−") + significant(abs(value))


def ms(nanoseconds: float | None) -> str:
    """A duration in ms, as a bare number for a column whose header names the unit."""
    return NOT_OBSERVED if nanoseconds is None else significant(nanoseconds / 1e6)


def duration(nanoseconds: float | None) -> str:
    """A duration with its unit: s from 10 s on, µs below 1 ms, ms between."""
    if nanoseconds is None:
        return NOT_OBSERVED
    magnitude = abs(nanoseconds)
    if magnitude >= 1e10:
        return f"{significant(nanoseconds / 1e9)} s"
    if magnitude >= 1e6 or magnitude == 0:
        return f"{significant(nanoseconds / 1e6)} ms"
    return f"{significant(nanoseconds / 1e3)} µs"


def percent(share: float | None, decimals: int = 1) -> str:
    """A share in [0, 1] as a percentage."""
    return NOT_OBSERVED if share is None else f"{100 * share:.{decimals}f} %"


def per(steps: bool | int) -> str:
    """What a time refers to, by whether there are any steps that it can be a mean of."""
    return "per step" if steps else "in the capture"


def plain(count: float) -> str:
    """A count, or a mean of counts: `3`, `1,260,000`, `2.5`, `2.33`; no exponent."""
    text = significant(count)
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: float, thing: str, things: str = "") -> str:
    """`1 step`, `3 steps`, `1,200 steps`; `things` is the plural where an s does not make it."""
    return f"{plain(count)} {thing if count == 1 else things or f'{thing}s'}"


def times(factor: float) -> str:
    """A ratio as one says it: `25×`, `3.4×`, `2×`, `1.08×`."""
    if factor >= ROUND_FACTOR:
        return f"{factor:,.0f}×"
    if factor >= TWICE:
        return f"{factor:.1f}".removesuffix(".0") + "×"
    return f"{factor:.2f}×" if factor >= LEAST_FACTOR else f"{significant(factor)}×"


def pace(factor: float) -> str:
    """How much faster than 1 a speed of `factor` is: `25× faster`, `1.5 % faster`, `40 % slower`.

    Slower is told by the time: what takes 1.4 times as long is 40 % slower. So both go on from
    percent to factors at 2 without a leap.
    """
    word = "faster" if factor > 1 else "slower"
    ratio = factor if factor > 1 else 1 / factor
    if ratio >= TWICE:
        return f"{times(ratio)} {word}"
    per_cent = 100 * (ratio - 1)
    if per_cent < LEAST_PER_CENT:
        return "as fast" if factor == 1 else f"less than 0.1 % {word}"
    return f"{per_cent:.1f} % {word}" if per_cent < WHOLE_PER_CENT else f"{per_cent:.0f} % {word}"


def signed(value: float) -> str:
    """`value` with its sign and two decimals, and no negative zero."""
    return f"{round(value, 2) + 0.0:+.2f}"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in words, neighbours as a range."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ", ".join("–".join(map(str, span)) for span in found)


def within_sentence(words: str) -> str:
    """A title as it stands in the midst of a sentence: `compute-bound`, but `I/O-bound`."""
    return words if words.startswith("I/O") else words[:1].lower() + words[1:]


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def code_spans(text: str) -> list[tuple[str, bool]]:
    """`text` cut at its backticks, each piece with whether it is code.

    Backticks that do not pair up are literal, and so are those of which two stand side by side: the
    text is then one piece.
    """
    pieces = text.split("`")
    if len(pieces) % 2 == 0 or not all(piece.strip() for piece in pieces[1:-1]):
        return [(text, False)]
    return [(piece, i % 2 == 1) for i, piece in enumerate(pieces) if piece]


def size(count: int | None) -> str:
    """A number of bytes in the largest binary unit that keeps it above 1."""
    if count is None:
        return NOT_OBSERVED
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{significant(value)} {unit}"
        value /= 1024
    return f"{significant(value)} GiB"
