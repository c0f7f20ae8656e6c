"""Batches of the program's own DataLoaders, kept and given again, so that nothing is loaded.

An epoch ends after as many batches as it would, whichever of them were loaded. What a loader does
alone is measured of a second pass over it, which takes nothing away from the program's.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from traceprobe.capture.loader.batch_feed import Give, feed
from traceprobe.capture.loader.batch_source import wait_for_workers
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.kept_loader import KeptLoader
from traceprobe.capture.oracle.nested import tensors

KEPT = 8
"""Batches of a loader: where their sizes differ, a block sees several."""
MOST_BYTES = 1 << 30
"""Of all of them together, as long as each loader has one."""
_FEEDS = 0.5
"""Part of the steps in which a loader is asked that feeds the training."""
_NEARLY_WHOLE = 0.1
"""Batches a step: so little more or less is the begin of an epoch, where some are fetched ahead."""
NO_LOADER = "no DataLoader of PyTorch feeds the steps of this program"
THERE = "the loader's batches are on the device already"
CHANGED = "the program changes its batches in place, so that they cannot be given again"


class KeptBatches:
    """The source of all batches of a process for as long as `feed.source` is set to it."""

    def __init__(self) -> None:
        self._loaders: dict[tuple[Any, ...], KeptLoader] = {}
        self._steps = 0
        self._rates: dict[int, float] = {}
        self._keeping, self._serving = True, False
        self._inside, self._exhausted = False, False
        self._bytes = 0
        self.waited = False
        """Whether a batch was not ready since `loading` began, or none ever lies ready."""
        self._lock = threading.RLock()  # programs fetch ahead on threads of their own
        self._process = os.getpid()

    def step(self) -> None:
        """A step of the program ends."""
        self._steps += 1

    def kept(self) -> None:
        """Enough has been seen: what is kept, and how many batches a step takes, is settled."""
        self._keeping = False
        # Nothing is known of what the first step took.
        steps = max(self._steps - 1, 1)
        self._rates = {
            id(loader): _whole(loader.asked / steps)
            for loader in self._loaders.values()
            if loader.batches and loader.fed >= _FEEDS * steps
        }

    @property
    def feeding(self) -> list[KeptLoader]:
        """The loaders of the training."""
        return [loader for loader in self._loaders.values() if id(loader) in self._rates]

    @property
    def workers(self) -> int:
        """Most processes of one of them."""
        return max((loader.workers for loader in self.feeding), default=0)

    @property
    def steps_ahead(self) -> int:
        """Steps until no batch is given that lay ready while the program did not load."""
        found = [loader.ahead / self._rates[id(loader)] for loader in self.feeding]
        return math.ceil(max(found, default=0))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Batches are loaded as the program does it; what lay ready before is used up."""
        self.waited = not self.steps_ahead
        yield

    def __call__(self, iterator: Any, give: Give) -> Any:
        """The next batch of an iterator, for the program."""
        if self._inside or os.getpid() != self._process:
            return give(iterator)
        with self._lock:
            loader = self._loader(iterator)
            loader.iterator, loader.give = iterator, give
            if self._serving and loader.batches:
                batch = loader.again()
            else:
                batch = self._loaded(loader, give)
            loader.asked += 1
            loader.fed += loader.last_step != self._steps
            loader.last_step = self._steps
            return batch

    @contextmanager
    def again(self) -> Iterator[None]:
        """Batches are given again, when the workers have come to rest.

        Raises:
            Unavailable: there are none, or they are no longer what they were.
        """
        self.check()
        wait_for_workers()
        self._serving = True
        try:
            yield
        finally:
            self._serving = False

    def check(self) -> None:
        """Whether batches can be given again.

        Raises:
            Unavailable: there are none, or they are no longer what they were.
        """
        if not self.feeding:
            raise Unavailable(NO_LOADER)
        if any(loader.changed for loader in self.feeding):
            raise Unavailable(CHANGED)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Loaders can be made to give batches by `pull`, while the program waits.

        Workers of the program and of the second pass take CPU time from each other until their
        queues are full, so either begins when the other has come to rest.

        Raises:
            Unavailable: there are none.
        """
        if not self.feeding:
            raise Unavailable(NO_LOADER)
        if self._exhausted:
            raise Unavailable("the loader cannot be passed over anew")
        import torch

        drawn = torch.get_rng_state()  # by samplers, and by data that is made in this process
        try:
            wait_for_workers()
            for loader in self.feeding:
                loader.due = 0.0
                self._drain(loader)
            yield
            wait_for_workers()
        finally:
            torch.set_rng_state(drawn)

    def pull(self) -> None:
        """Load what one step takes, and throw it away."""
        for loader in self.feeding:
            loader.due += self._rates[id(loader)]
            while loader.due >= 1:
                loader.due -= 1
                self._throw_away(loader)

    def end(self) -> None:
        """Nothing is loaded, kept or given any more."""
        self._keeping = self._serving = False
        self._loaders.clear()
        self._rates.clear()

    def batches(self) -> Iterator[Any]:
        """All that are kept of the loaders of the training."""
        for loader in self.feeding:
            yield from loader.batches

    @property
    def on_device(self) -> bool:
        """Whether the loaders of the training give batches that need no copy."""
        found = [tensor for batch in self.batches() for tensor in tensors(batch)]
        return bool(found) and all(tensor.is_cuda for tensor in found)

    @property
    def samples_per_step(self) -> int | None:
        """Samples that the first of these loaders gives in a step, by its first tensor."""
        for loader in self.feeding:
            first = next(tensors(loader.batches[0]), None)
            if first is not None and first.dim():
                return int(first.shape[0] * self._rates[id(loader)] + 0.5)
        return None

    def _loader(self, iterator: Any) -> KeptLoader:
        found = (getattr(iterator, "_dataset", None), feed.loader(iterator), iterator)
        # Not by truth: that of a data set is its length, which it may not have.
        made_of = next(each for each in found if each is not None)
        owners = (made_of, getattr(iterator, "_collate_fn", None))
        size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        key = (id(owners[0]), id(owners[1]), str(size))
        if key not in self._loaders:
            self._loaders[key] = KeptLoader(owners)
        return self._loaders[key]

    def _loaded(self, loader: KeptLoader, give: Give) -> Any:
        if loader.stretched and loader.ended:
            raise StopIteration
        self._inside = True  # a loader may be made of others
        began = time.perf_counter()
        try:
            batch = give(loader.iterator)
        finally:
            self._inside = False
        late = loader.waited(time.perf_counter() - began)
        self.waited |= late and id(loader) in self._rates
        if self._keeping and len(loader.batches) < KEPT:
            self._keep(loader, batch)
        return batch

    def _keep(self, loader: KeptLoader, batch: Any) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors(batch))
        if not loader.batches or self._bytes + size <= MOST_BYTES:
            self._bytes += size
            loader.keep(batch)

    def _drain(self, loader: KeptLoader) -> None:
        """Throw away as many batches as may lie ready.

        Not only those until one is late: so is a large one that lies ready.
        """
        for _ in range(loader.ahead):
            self._throw_away(loader)

    def _throw_away(self, loader: KeptLoader) -> None:
        """Let a loader make a batch for nobody."""
        give, iterator = loader.give, loader.iterator
        self._inside = True
        try:
            for _ in range(2):  # the pass may have ended
                if loader.second is None:
                    loader.second = type(iterator)(feed.loader(iterator))
                with suppress(StopIteration):
                    if give is not None:
                        give(loader.second)
                        return
                loader.second = None
            self._exhausted = True
        except Exception:  # of a loader that can be passed over once
            self._exhausted = True
        finally:
            self._inside = False


def _whole(rate: float) -> float:
    return round(rate) if abs(rate - round(rate)) < _NEARLY_WHOLE else rate
