"""Write constraints.txt: one version of every dependency for each supported Python.

Give it one interpreter for each Python version that the project supports:

    python scripts/pin_dependencies.py python3.10 python3.11 python3.12 python3.13

Each resolves the runtime dependencies and the dev group afresh in an empty environment, in which an
empty package stands for PyTorch, since the trainers that tests use depend on it. A package
whose version is the same everywhere gets one line; where an older Python needs an older release,
each version gets a line with a marker.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "constraints.txt"
PIP = "pip>=26.0"
"""Older releases cannot read dependency groups or constrain what a build installs."""
TORCH = "torch==2.13.0"
"""Pinned, not resolved: its builds for CPUs and for CUDA need different packages, and those of the
latter are gigabytes."""
HEAD = """\
# Every dependency of traceprobe and of its tests, for reproducible runs of make and CI.
# Written by scripts/pin_dependencies.py; users' installations are not bound by it.
"""

Python = tuple[int, int]


def resolve(interpreter: str, folder: Path) -> tuple[Python, dict[str, str]]:
    """Names and versions that an empty environment of `interpreter` would get."""
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", PIP], check=True)
    report = folder / "report.json"
    write_torch_stub(folder)
    dry_run = [python, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
    wanted = [PIP, f"{TORCH}+stub", "-e", ".[dask]", "--group", "dev"]
    subprocess.run(
        [*dry_run, "--find-links", folder, "--report", report, *wanted],
        check=True,
        cwd=ROOT,
    )
    found = json.loads(report.read_text())
    major, minor = found["environment"]["python_version"].split(".")
    packages = (entry["metadata"] for entry in found["install"])
    versions = {re.sub(r"[-_.]+", "-", p["name"]).lower(): p["version"] for p in packages}
    del versions["traceprobe"]
    name, _, version = TORCH.partition("==")
    versions[name] = version
    return (int(major), int(minor)), versions


def write_torch_stub(folder: Path) -> None:
    """A wheel of PyTorch's name and version that needs nothing."""
    name, _, version = f"{TORCH}+stub".partition("==")
    stem = f"{name}-{version}"
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        wheel.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def lines(name: str, versions: dict[Python, str], pythons: list[Python]) -> list[str]:
    """The constraints of one package; the newest Python's line holds for later ones too."""
    if len(set(versions.values())) == 1:
        return [f"{name}=={next(iter(versions.values()))}"]
    groups: dict[str, list[Python]] = defaultdict(list)
    for python in sorted(versions):
        groups[versions[python]].append(python)
    result = []
    for version, members in groups.items():
        bounds = [f"python_version >= '{members[0][0]}.{members[0][1]}'"]
        if members[0] == pythons[0]:
            bounds = []
        if members[-1] != pythons[-1]:
            major, minor = pythons[pythons.index(members[-1]) + 1]
            bounds.append(f"python_version < '{major}.{minor}'")
        result.append(f"{name}=={version} ; {' and '.join(bounds)}")
    return result


def main(interpreters: list[str]) -> None:
    """Resolve for every interpreter and write the file."""
    if not interpreters:
        sys.exit(__doc__)
    found: dict[str, dict[Python, str]] = defaultdict(dict)
    pythons = []
    for interpreter in interpreters:
        with tempfile.TemporaryDirectory() as folder:
            python, versions = resolve(interpreter, Path(folder))
        pythons.append(python)
        for name, version in versions.items():
            found[name][python] = version
    pythons.sort()
    pinned = [line for name in sorted(found) for line in lines(name, found[name], pythons)]
    OUT.write_text(HEAD + "\n".join(pinned) + "\n")
    print(f"{OUT.name}: {len(found)} packages for Python", *(f"{a}.{b}" for a, b in pythons))


if __name__ == "__main__":
    main(sys.argv[1:])
