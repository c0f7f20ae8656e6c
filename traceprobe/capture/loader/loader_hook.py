"""Finding the DataLoaders of a program that knows nothing of it.

Every loader that is built on PyTorch's, those of Lightning, Accelerate and the Trainer of
Transformers among them, gives its batches through the classes that are watched here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.loader.loader_tally import time_fetches
from traceprobe.capture.loader.loader_watch import loaders
from traceprobe.capture.loader.loader_worker import watched_worker
from traceprobe.capture.oracle.ablation_plan import AblationPlan
from traceprobe.capture.oracle.probe_plan import ProbePlan
from traceprobe.capture.oracle.worker_delay import DelayFile
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.watch.watch_plan import WatchPlan


def install_loader_hook(module: Any) -> None:
    """Watch the loaders of this process, or what this worker makes, if the run is recorded.

    Args:
        module: torch.utils.data.dataloader, just imported; in a process of the program or, where
            workers begin with a new interpreter, in a worker.
    """
    recording, probes = RecordingPlan.current(), ProbePlan.current()
    plans = (recording, probes, AblationPlan.current(), WatchPlan.current())
    batches = getattr(module, "_BaseDataLoaderIter", None)
    if not hasattr(batches, "__next__") or not any(plans):
        return
    _watch_batches(batches)
    fetchers = getattr(module, "_DatasetKind", None)
    if not hasattr(fetchers, "create_fetcher"):
        return
    if recording is not None:
        _watch_workers(fetchers, partial(_tallied, recording.folder), module.get_worker_info)
    elif probes is not None:
        _watch_workers(fetchers, partial(_delayed, probes.folder), module.get_worker_info)


def _watch_batches(batches: Any) -> None:
    begin, give = batches.__init__, batches.__next__

    def __init__(self: Any, loader: Any, *args: Any, **options: Any) -> None:
        begin(self, loader, *args, **options)
        loaders.opened(self, loader)
        feed.opened(self, loader)

    def __next__(self: Any) -> Any:
        loaders.asked(self)
        batch = feed.next(self, give)
        loaders.gave(self)
        return batch

    batches.__init__, batches.__next__ = __init__, __next__


def _watch_workers(
    fetchers: Any, watch: Callable[[Any], Callable[[Any], None]], worker: Any
) -> None:
    """Have `watch` make, once in each worker, what is done with all that fetches its batches."""
    create = fetchers.create_fetcher
    of_process: list[Callable[[Any], None]] = []  # persistent workers make a fetcher every epoch

    def create_fetcher(kind: Any, dataset: Any, *args: Any, **options: Any) -> Any:
        fetcher = create(kind, dataset, *args, **options)
        info = worker()
        if info is not None and info.dataset is dataset:  # and not a loader inside of a worker
            if not of_process:
                of_process.append(watch(info))
            of_process[0](fetcher)
        return fetcher

    fetchers.create_fetcher = staticmethod(create_fetcher)


def _tallied(folder: str, info: Any) -> Callable[[Any], None]:
    tally = watched_worker(folder, info.seed - info.id)
    return lambda fetcher: None if tally is None else time_fetches(fetcher, tally)


def _delayed(folder: str, info: Any) -> Callable[[Any], None]:
    delay = DelayFile.of_parent(folder)

    def watch(fetcher: Any) -> None:
        if delay is not None:
            fetcher.fetch = delay.slow(fetcher.fetch, info.id)

    return watch
