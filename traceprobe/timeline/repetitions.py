"""What repeats: windows of kernels with equal contents, and the smallest cycle that they form.

A window is compared by how often each kernel runs in it, so that concurrent streams and threads,
whose order varies, make no difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from traceprobe.model.codes import UNKNOWN, Bools, Int64s

SAME = 0.95
"""Part of the kernels of two windows that they share if they are repetitions of one another."""
REGULAR = 0.9
"""Part of the windows that fit a cycle; the others hold what happens now and then."""
MOST_CYCLE = 128
"""Windows of a cycle: micro-batches, or layers."""
_MOST_WINDOWS = 4096
"""Windows that are compared; a cycle shows long before."""
_MOST_COUNTS = 1 << 22
"""Numbers in a table of contents, 32 MB: a trace may have a million names."""
_RECURS = 3
"""Times that a kind of window comes evenly until it is seen to belong to a cycle."""
_MOST_KINDS = 32


class Cycle(msgspec.Struct, frozen=True):
    """Windows that repeat.

    Args:
        labels: kind of each window, from 0.
        typical: kind at each place of the cycle; one where each window is a repetition.
        fits: which windows are of the kind that their place has.
    """

    labels: Int64s
    typical: Int64s
    fits: Bools

    @property
    def length(self) -> int:
        """Windows of a cycle."""
        return len(self.typical)

    @property
    def misfits(self) -> int:
        """Windows that are not of the kind that their place has."""
        return int((~self.fits).sum())


def contents_of(window: Int64s, name: Int64s, count: int) -> Int64s:
    """How often each name occurs in each window.

    Args:
        window: window of each kernel; those below 0, or from `count` on, are left out.
        name: name of each kernel, numbered from 0.

    Returns:
        (windows, names); the first 4,096 windows at most, and fewer where there are more than a
        thousand names.
    """
    names = int(name.max()) + 1 if len(name) else 0
    count = min(count, _MOST_WINDOWS, max(_MOST_COUNTS // max(names, 1), 3))
    inside = (window >= 0) & (window < count)
    flat = np.bincount(window[inside] * names + name[inside], minlength=count * names)
    return flat.reshape(count, names)


def covers(whole: Int64s, part: Int64s) -> bool:
    """Whether a window has all that another one has, and perhaps more."""
    total = int(part.sum())
    return total > 0 and int(np.minimum(whole, part).sum()) >= SAME * total


def find_cycle(
    contents: Int64s,
    traits: Int64s | None = None,
    *,
    strict: bool = False,
    updating: Bools | None = None,
) -> Cycle | None:
    """The smallest cycle that windows form; None where they do not repeat.

    Args:
        contents: as from `contents_of`.
        traits: (traits, windows); what else windows of one kind have in common.
        strict: whether windows that do not fit form a longer cycle where they recur evenly: after
            every 32 layers of a model comes its head. Else they are what a loop does now and then,
            unless they update other parameters.
        updating: which names are those of kernels that update parameters.
    """
    labels = _labels(contents)
    if labels is None:
        return None
    if traits is not None:
        apart = np.column_stack([labels, *traits])
        labels = np.unique(apart, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    lengths = range(1, min(MOST_CYCLE, max(len(labels) // 2, 1)) + 1)
    cycles = (_cycle(labels, length) for length in lengths)
    regular = (cycle for cycle in cycles if cycle.fits.mean() >= REGULAR)
    if not strict:
        shortest = next(regular, None)
        if shortest is None:
            return None
        rare = (
            None if updating is None else _with_rare_updates(shortest, regular, contents, updating)
        )
        return rare or _shorter(shortest, contents, traits)
    every = list(regular)
    least = min((cycle.misfits for cycle in every), default=0)
    return next((cycle for cycle in every if cycle.misfits <= least + 1), None)


def _shorter(cycle: Cycle, contents: Int64s, traits: Int64s | None) -> Cycle:
    """The cycle that this one is several of, if some of its windows only do more.

    A GAN's two updates of one kind and one of the other are the cycle, also where an evaluation
    comes after every third of them. Where all windows are of one kind, that is for others to say.
    Windows of a kind that the shorter cycle has in another place do not only do more; nor does it
    go on without what is in the long one alone, an input or an update.
    """
    smallest = _smallest(cycle, contents)
    example = contents[smallest]
    shared = np.zeros((1, len(example)), dtype=np.int64) if traits is None else traits[:, smallest]
    for length in range(2, cycle.length // 2 + 1):
        if cycle.length % length:
            continue
        size = example.sum(axis=1).reshape(-1, length)
        least = np.arange(length) + length * np.argmin(size, axis=0)
        typical = cycle.typical[least]
        kinds = cycle.typical.reshape(-1, length)
        elsewhere = np.isin(kinds, typical) & (kinds != typical)
        lacking = shared.any(axis=1) & ~shared[:, least].any(axis=1)
        if len(np.unique(typical)) < 2 or elsewhere.any() or lacking.any():
            continue
        if all(
            covers(found, example[least[place % length]]) for place, found in enumerate(example)
        ):
            fits = [covers(found, example[least[k % length]]) for k, found in enumerate(contents)]
            return Cycle(cycle.labels, typical, np.array(fits, dtype=np.bool_))
    return cycle


def _with_rare_updates(
    cycle: Cycle, longer: Iterator[Cycle], contents: Int64s, updating: Bools
) -> Cycle | None:
    """The first longer cycle with a place for all windows that update other parameters.

    After 20 updates of a critic comes one of its actor, which is less than a tenth of the windows
    and no exception. The last batch of an epoch may have other kernels, but not for its update, and
    an evaluation has none. Only what comes evenly, three times at least, is seen to recur; the
    windows at both ends may be cut.
    """
    example = _examples(cycle, contents)[np.arange(len(contents)) % cycle.length]
    mine, usual = contents[:, updating], example[:, updating]
    other = (mine != usual).any(axis=1) & mine.any(axis=1) & ~cycle.fits
    other[[0, -1]] = False
    for window in np.flatnonzero(other).tolist():
        other[window] = not covers(contents[window], example[window])
    times = np.bincount(cycle.labels[other], minlength=int(cycle.labels.max()) + 1)
    rare = np.flatnonzero(other & (times[cycle.labels] >= _RECURS))
    if not len(rare):
        return None
    recurring = (found for found in longer if len(contents) >= _RECURS * found.length)
    return next((found for found in recurring if found.fits[rare].all()), None)


def _examples(cycle: Cycle, contents: Int64s) -> Int64s:
    """Contents of the smallest window of the kind of each place of a cycle."""
    return np.asarray(contents[_smallest(cycle, contents)])


def _smallest(cycle: Cycle, contents: Int64s) -> list[int]:
    """The smallest window of the kind of each place of a cycle."""
    total = contents.sum(axis=1)
    of_kind = [np.flatnonzero(cycle.labels == label) for label in cycle.typical]
    return [int(rows[np.argmin(total[rows])]) for rows in of_kind]


def first_place(cycle: Cycle, contents: Int64s) -> int:
    """Where a cycle begins: after the last place whose kind no other has, as D, D, G after G.

    One that only does more than most is no end where another does other work: it begins with what
    it does more, as the rollout before the first of many updates.
    """
    odd = np.flatnonzero(np.bincount(cycle.typical)[cycle.typical] == 1)
    if not len(odd):
        return 0
    usual, example = most_frequent(contents), _examples(cycle, contents)
    other = [place for place in odd.tolist() if not covers(example[place], usual)]
    return int((other or odd.tolist())[-1] + 1) % cycle.length


def regular_windows(cycle: Cycle, contents: Int64s) -> Bools:
    """Windows that hold what their place in the cycle does, also where some do more.

    An evaluation after every third step makes a window longer, and it stays one of its kind.
    """
    example, held = _examples(cycle, contents), cycle.fits.copy()
    for place in np.flatnonzero(~held):
        held[place] = covers(contents[place], example[place % cycle.length])
    return held


def typical_contents(cycle: Cycle, contents: Int64s) -> Int64s:
    """What a whole cycle holds, without what happens now and then."""
    return np.asarray(_examples(cycle, contents).sum(axis=0))


def _cycle(labels: Int64s, length: int) -> Cycle:
    typical = np.array([np.bincount(labels[r::length]).argmax() for r in range(length)])
    return Cycle(labels, typical, labels == typical[np.arange(len(labels)) % length])


def most_frequent(contents: Int64s) -> Int64s:
    """Contents of a window of the most frequent kind; of a window in the middle, if none recurs.

    The shortest of its kind: a longer one may hold what happens now and then, such as a line of the
    log, and the first and the last repetition would not have all of it.
    """
    labels = _labels(contents)
    if labels is None:
        return np.asarray(contents[len(contents) // 2])
    alike = contents[labels == np.bincount(labels).argmax()]
    return np.asarray(alike[np.argmin(alike.sum(axis=1))])


def plain_windows(cycle: Cycle, contents: Int64s) -> Bools | None:
    """Places in a cycle whose windows are plain, where the others only do more; else None.

    Most windows must be plain ones: of evaluations after every fifth step, four are.
    """
    plain, usual = np.bincount(cycle.labels).argmax(), most_frequent(contents)
    if not all(covers(found, usual) for found in _examples(cycle, contents)):
        return None
    return np.asarray(cycle.typical == plain, dtype=np.bool_)


def _labels(contents: Int64s) -> Int64s | None:
    """A number for each kind of window; None where hardly two are alike."""
    total = contents.sum(axis=1)
    labels = np.full(len(contents), UNKNOWN, dtype=np.int64)
    for label in range(_MOST_KINDS):
        rest = np.flatnonzero(labels == UNKNOWN)
        if not len(rest):
            break
        first = rest[0]
        shared = np.minimum(contents[rest], contents[first]).sum(axis=1)
        labels[rest[shared >= SAME * np.maximum(total[rest], total[first])]] = label
        labels[first] = label
    return labels if len(labels) and (labels != UNKNOWN).all() else None
