"""Programs that tests start load the compiler of PyTorch when they use it.

The first optimizer imports `torch._dynamo`, only to tell a compiler to leave optimizers alone. In a
small program nothing takes longer. On this path the import gives a module that answers this much,
and is executed as soon as it is asked for more, as it is by `torch.compile`.

Every Python that a test starts runs this, so that it imports nothing that is not loaded already.
"""

from __future__ import annotations

import sys

COMPILER = "torch._dynamo"
ModuleType = type(sys)


class Finder:
    """Finds the compiler, and those of its modules that executing it has just imported."""

    def find_spec(self, name, path, target=None):
        if not name.startswith(COMPILER):
            return None
        from importlib.machinery import ModuleSpec, PathFinder

        if name == COMPILER:
            spec = PathFinder.find_spec(name, path)
            spec.loader = Late(spec.loader)
            return spec
        return ModuleSpec(name, Imported()) if name in sys.modules else None


class Late:
    """Loads a module without executing it."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__class__ = Compiler


class Imported:
    """Leaves a module as it is: an import of `a.b` looks for it after `a`, which may import it."""

    def create_module(self, spec):
        module = sys.modules[spec.name]
        self.spec = module.__spec__
        return module

    def exec_module(self, module):
        if module.__spec__ is not self.spec:
            module.__spec__ = self.spec


class Compiler(ModuleType):
    """The compiler before it is executed."""

    def __getattribute__(self, name):
        if name in ("graph_break", "disable"):
            return globals()[name]
        if name not in ("__class__", "__spec__"):  # which imports look at
            execute(self)
        return ModuleType.__getattribute__(self, name)


def execute(module):
    """Make of it what it is without us."""
    loader = module.__spec__.loader.loader
    module.__class__ = ModuleType
    module.__loader__ = module.__spec__.loader = loader
    loader.exec_module(module)
    for function in asked:
        vars(function).pop("__dynamo_disable", None)  # what PyTorch keeps of `disable`
    asked.clear()


graph_break = int  # does nothing, and is no frame in a recording
asked = []
"""Functions of optimizers that PyTorch wanted to keep from the compiler before there was one."""


def disable(function, recursive=True, *, wrapping=True, **options):
    """The function: what is not compiled is not kept from it."""
    if wrapping:
        compiler = sys.modules[COMPILER]
        execute(compiler)
        return compiler.disable(function, recursive, **options)
    asked.append(function)
    return function


sys.meta_path.insert(0, Finder())
