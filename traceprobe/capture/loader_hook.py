"""Finding the DataLoaders of a program that knows nothing of it.

Every loader that is built on PyTorch's, those of Lightning, Accelerate and the Trainer of
Transformers among them, gives its batches through the classes that are watched here.
"""

from __future__ import annotations

from typing import Any

from traceprobe.capture.ablation_plan import AblationPlan
from traceprobe.capture.batch_feed import feed
from traceprobe.capture.loader_tally import Tally, time_fetches
from traceprobe.capture.loader_watch import loaders
from traceprobe.capture.loader_worker import watched_worker
from traceprobe.capture.probe_plan import ProbePlan
from traceprobe.capture.recording_plan import RecordingPlan
from traceprobe.capture.watch_plan import WatchPlan


def install_loader_hook(module: Any) -> None:
    """Watch the loaders of this process, or what this worker makes, if the run is recorded.

    Args:
        module: torch.utils.data.dataloader, just imported; in a process of the program or, where
            workers begin with a new interpreter, in a worker.
    """
    plans = (AblationPlan.current(), ProbePlan.current(), WatchPlan.current())
    recording = RecordingPlan.current()
    batches = getattr(module, "_BaseDataLoaderIter", None)
    if not hasattr(batches, "__next__") or not any((recording, *plans)):
        return
    _watch_batches(batches)
    fetchers = getattr(module, "_DatasetKind", None)
    if recording is not None and hasattr(fetchers, "create_fetcher"):
        _watch_workers(fetchers, recording.folder, module.get_worker_info)


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


def _watch_workers(fetchers: Any, folder: str, worker: Any) -> None:
    create = fetchers.create_fetcher
    of_process: list[Tally | None] = []  # persistent workers make a fetcher for every epoch

    def create_fetcher(kind: Any, dataset: Any, *args: Any, **options: Any) -> Any:
        fetcher = create(kind, dataset, *args, **options)
        info = worker()
        if info is not None and info.dataset is dataset:  # and not a loader inside of a worker
            if not of_process:
                of_process.append(watched_worker(folder, info.seed - info.id))
            if of_process[0] is not None:
                time_fetches(fetcher, of_process[0])
        return fetcher

    fetchers.create_fetcher = staticmethod(create_fetcher)
