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


def graph_break():
    """What is not compiled is not broken."""


def disable(fn, recursive=True, *, wrapping=True, **options):
    """Keep a function from the compiler: the functions of optimizers when there is one."""
    compiler = sys.modules[COMPILER]
    if wrapping:
        execute(compiler)
        return compiler.disable(fn, recursive, **options)
    disabled = None

    def late(*arguments, **keywords):
        nonlocal disabled
        if disabled is None and type(compiler) is not Compiler:
            disabled = compiler.disable(fn, recursive, wrapping=wrapping, **options)
        return (disabled or fn)(*arguments, **keywords)

    return late


sys.meta_path.insert(0, Finder())
