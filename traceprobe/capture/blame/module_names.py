"""Names of the modules of a model, as its source knows them."""

from __future__ import annotations

import re
from typing import Any

MODULE = "nn.Module: "
"""As Kineto's rows of modules begin."""
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)"
    r"(?:\.|$)"
)
_PARALLEL = {"DistributedDataParallel", "DataParallel", "DeepSpeedEngine"}
"""Classes that hold the model as `module`."""


class ModuleNames:
    """Qualified names with the class: `nn.Module: encoder.layer.0.Linear`; of a root, the class.

    Wrappers of parallel training, of checkpointing and of compilation are left out of names.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        """Modules that were named: one that was gone could leave its id to another."""

    def __call__(self, module: Any) -> str:
        """The name of a module; one that was not seen below another is a root."""
        known = self._names.get(id(module))
        return self._add(module) if known is None else known

    def _add(self, root: Any) -> str:
        self._kept.append(root)
        for path, module in root.named_modules():
            if id(module) not in self._names or module is root:
                self._names[id(module)] = _name(_without_wrappers(path, root), module)
        return self._names[id(root)]


def _name(path: str, module: Any) -> str:
    kind = type(getattr(module, "_orig_mod", module)).__name__
    return f"{MODULE}{path}.{kind}" if path else f"{MODULE}{kind}"


def _without_wrappers(path: str, root: Any) -> str:
    if type(root).__name__ in _PARALLEL:
        path = re.sub(r"^module(?:\.|$)", "", path)
    return _WRAPPERS.sub("", path).rstrip(".")
