"""Exit status 1 and the cycle as a path, if modules of a package import each other in a circle.

Every import counts: inside a function and under `TYPE_CHECKING` too, and
`import_module` of a name that is written out. A circle that is hidden there still
means that neither module can be understood, tested or moved without the other.

Usage: scripts/check_cycles.py [PACKAGE]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Imports = dict[str, set[str]]


def imports_of(package: Path) -> Imports:
    """Module to the modules of the same package that it imports, by their dotted names."""
    paths = {_dotted(path, package.parent): path for path in package.rglob("*.py")}
    imports: Imports = {module: set() for module in sorted(paths)}
    for module, path in paths.items():
        for names in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            imports[module].update([name for name in names if name in paths][:1])
        imports[module].discard(module)
    return imports


def cycle_of(imports: Imports) -> list[str] | None:
    """One cycle, each module importing the next one and the last being the first, or None."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return None


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """What each import may mean, the most specific first: `from a import b` is a.b or a."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name,) for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((f"{module}.{alias.name}", module) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield (module,)


def main() -> int:
    """Print the cycle, if there is one."""
    root = Path(__file__).resolve().parents[1]
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "traceprobe"
    cycle = cycle_of(imports_of(package))
    if cycle is None:
        return 0
    print(f"{sys.argv[0]}: modules import each other in a circle: {' → '.join(cycle)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
