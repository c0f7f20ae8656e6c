"""Kept batches that lie on the device already: copies to it find them there.

The program's batches stay in host memory, so that all it does with them there works as before.
Only PyTorch's functions that copy to a device are replaced, and these know the kept tensors, and
views of them, by their storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from traceprobe.capture.machine.device import computes
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.kept_batches import CHANGED
from traceprobe.capture.oracle.nested import tensors, version_of

NO_GPU = "there is no GPU"
NO_COPIES = (
    "the program copies its batches to the device by other ways than those of their tensors, or "
    "changes them before"
)
_ROOM = 0.25
"""Part of the free memory of a device that batches may take."""
_COPIES = ("to", "cuda", "copy_")


class ResidentBatches:
    """The copies on the device of what a loader gave."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        self._batches = batches
        self._storages: dict[int, Any] = {}
        self._views: dict[tuple[Any, ...], Any] = {}
        self._versions: list[tuple[Any, int]] = []
        self._found = 0
        self._entered = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Copies of kept batches to the device copy nothing.

        Raises:
            Unavailable: nothing could be taken out, or nothing safely.
        """
        if not computes():
            raise Unavailable(NO_GPU)
        if self._entered and not self._found:
            raise Unavailable(NO_COPIES)
        if any(version_of(view) != version for view, version in self._versions):
            raise Unavailable(CHANGED)
        if not self._entered:
            self._copy()
        self._entered = True
        import torch

        kind = torch.Tensor
        own = {name: vars(kind)[name] for name in _COPIES if name in vars(kind)}
        for name in _COPIES:
            setattr(kind, name, self._replacing(name, getattr(kind, name)))
        try:
            yield
        finally:
            for name in _COPIES:
                if name in own:
                    setattr(kind, name, own[name])
                else:
                    delattr(kind, name)

    def _copy(self) -> None:
        """All kept tensors, by the storages that they are views of."""
        import torch

        found = [t for batch in self._batches() for t in tensors(batch)]
        host = {
            storage.data_ptr(): storage
            for tensor in found
            if tensor.device.type == "cpu" and tensor.layout == torch.strided
            for storage in [tensor.untyped_storage()]
            if storage.nbytes()
        }
        free = torch.cuda.mem_get_info()[0]
        if sum(storage.nbytes() for storage in host.values()) > _ROOM * free:
            raise Unavailable("the device has no room for the batches beside what it holds")
        self._storages = {pointer: storage.cuda() for pointer, storage in host.items()}

    def _replacing(self, name: str, copy: Callable[..., Any]) -> Callable[..., Any]:
        """One of the functions that copy, for kept tensors from the device itself."""
        if name == "copy_":

            def copy_(tensor: Any, other: Any, *args: Any, **options: Any) -> Any:
                return copy(
                    tensor, self._there(other) if tensor.is_cuda else other, *args, **options
                )

            return copy_

        def to(tensor: Any, *args: Any, **options: Any) -> Any:
            if tensor.is_cuda or not (name == "cuda" or _to_gpu(args, options)):
                return copy(tensor, *args, **options)
            return copy(self._there(tensor), *args, **options)

        return to

    def _there(self, tensor: Any) -> Any:
        """A kept tensor on the device, and any other as it is."""
        import torch

        if type(tensor) is not torch.Tensor or tensor.device.type != "cpu":
            return tensor
        storage = self._storages.get(tensor.untyped_storage().data_ptr())
        if storage is None:
            return tensor
        self._found += 1
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (storage.data_ptr(), tensor.dtype, *place)
        view = self._views.get(key)
        if view is None:
            view = torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage, *place)
            self._views[key] = view
            self._versions.append((view, version_of(view)))
        return view


def _to_gpu(args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether `Tensor.to` is asked for a GPU."""
    target = options.get("device", options.get("other", args[0] if args else None))
    if isinstance(target, int) and not isinstance(target, bool):
        return True
    target = getattr(target, "device", target)
    return str(target).startswith("cuda")
