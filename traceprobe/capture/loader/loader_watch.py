"""The DataLoaders of a program: which one feeds its steps, and what its batches take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from traceprobe.capture.loader.loader_tally import Tally, means, time_fetches
from traceprobe.capture.loader.loader_worker import end_watching, left_by_workers

_MOST_LOADERS = 64
"""Kinds of loaders that a process tells apart."""
_MOST_SEEDS = 4_096
"""Passes over a loader whose workers are known."""
_FEEDS = 0.5
"""Share of the steps that the loader of the training data gives a batch; others are read now and
then."""
_LONGEST_NAME = 100
_MARK = "_traceprobe_loader"


@dataclass(frozen=True)
class LoaderSettings:
    """What a DataLoader was made with; those of every epoch are one if nothing differs.

    Args:
        dataset: class of the data. iterable: whether each worker goes through all of it.
    """

    workers: int
    batch_size: int | None
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    dataset: str
    iterable: bool


@dataclass
class _Loader:
    tally: Tally = field(default_factory=Tally)
    """Of batches that are made on the step thread."""
    seeds: set[int] = field(default_factory=set)
    batches: int = 0
    steps: int = 0
    last_step: int = -1


class LoaderWatch:
    """Counts batches per step, from `begin` to `end`."""

    def __init__(self) -> None:
        self._loaders: dict[LoaderSettings, _Loader] = {}
        self._step = 0
        self._found: tuple[LoaderSettings, _Loader, dict[str, Any]] | None = None

    def opened(self, iterator: Any, loader: Any) -> None:
        """A pass over a loader begins."""
        with suppress(Exception):  # a loader of any make, whose program must not fail for it
            settings = _settings(loader)
            if settings not in self._loaders and len(self._loaders) >= _MOST_LOADERS:
                return
            entry = self._loaders.setdefault(settings, _Loader())
            seed = getattr(iterator, "_base_seed", None)
            if isinstance(seed, int) and len(entry.seeds) < _MOST_SEEDS:
                entry.seeds.add(seed)
            setattr(iterator, _MARK, entry)

    def asked(self, iterator: Any) -> None:
        """A batch is asked for."""
        entry = getattr(iterator, _MARK, None)
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if entry is not None and fetcher is not None and "fetch" not in vars(fetcher):
            time_fetches(fetcher, entry.tally)

    def gave(self, iterator: Any) -> None:
        """A batch was given."""
        entry = getattr(iterator, _MARK, None)
        if entry is None:
            return
        entry.batches += 1
        if entry.last_step != self._step:
            entry.steps += 1
            entry.last_step = self._step

    @property
    def steps_ahead(self) -> int:
        """Steps for which the loader of most steps may have batches ready."""
        feeding = max(self._loaders.items(), key=lambda e: e[1].steps, default=None)
        if feeding is None or not feeding[1].batches:
            return 0
        settings, entry = feeding
        ready = settings.workers * (settings.prefetch_factor or 0)
        return -(-ready * entry.steps // entry.batches)

    def step(self) -> None:
        """A step of the program begins."""
        self._step += 1

    def begin(self) -> None:
        """Count from now on."""
        for entry in self._loaders.values():
            entry.batches = entry.steps = 0

    def end(self, folder: str, steps: int) -> None:
        """Count no more, after so many steps."""
        end_watching(folder)
        feeding = max(self._loaders.items(), key=lambda e: (e[1].steps, e[1].batches), default=None)
        if feeding is None or feeding[1].steps < _FEEDS * steps:
            return
        settings, entry = feeding
        per_step = round(entry.batches / steps, 3)
        in_process = means([entry.tally.plain()]) if not settings.workers else {}
        self._found = settings, entry, {"batches_per_step": per_step, **in_process}

    def facts(self, folder: str) -> dict[str, Any] | None:
        """The loader that feeds the steps, as `traceprobe.model.sidecar.Loader`; None for none."""
        if self._found is None:
            return None
        settings, entry, found = self._found
        if settings.workers:
            found = {**found, **means(_of(entry, folder))}
        return {**asdict(settings), **found}


def _of(entry: _Loader, folder: str) -> Iterator[dict[str, Any]]:
    for tally in left_by_workers(folder):
        if tally.pop("seed") in entry.seeds:
            yield tally


def _settings(loader: Any) -> LoaderSettings:
    from torch.utils.data import IterableDataset

    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    dataset = loader.dataset
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return LoaderSettings(
        workers=int(loader.num_workers),
        batch_size=_whole(size),
        prefetch_factor=_whole(getattr(loader, "prefetch_factor", None)),
        pin_memory=bool(getattr(loader, "pin_memory", False)),
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
        dataset=type(dataset).__qualname__[:_LONGEST_NAME],
        iterable=isinstance(loader.dataset, IterableDataset),
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


loaders = LoaderWatch()
"""Of this process."""
