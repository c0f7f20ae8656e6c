"""Options that are plainly right are taken without pydantic, and mean what Typer makes of them."""

from __future__ import annotations

import pytest
import typer.core
import typer.main

from traceprobe.cli import app, command
from traceprobe.errors import UsageError

GROUP = typer.main.get_command(app)
PLAIN = [
    "analyze a.json b.json -o free.html -o file --rank 4 --unprofiled-step-ms 52.5",
    "analyze file --jobs 2 --limit names=5 --limit devices=3 --flops-per-step 14",
    "inspect file -o free.json",
    "profile --workload unet --nproc-per-node 2 --active 3 -o free",
    "profile -- python train.py --lr 3",
    "slice file --steps 3:8 -o free.json.gz",
    "sweep tiny --rungs 0:5 -o -",
    "top report.json -n 50",
    "watch --readings 0.25 --captures 2 -- python train.py",
    "whatif report.json --remove data-wait --speedup backward=1.3 --bucket-mb 100",
]
LEFT_TO_TYPER = [
    "profile --backend nsys -- train.py",
    "profile -o folder -- train.py",
    "top report.json --by kernel",
    "watch -o folder -- train.py",
    "watch --readings 1e-1 -- train.py",
]
WRONG = [
    "inspect absent",
    "inspect folder",
    "inspect ''",
    "profile --active two -- train.py",
    "profile --active 2 -- train.py",
    "profile --active 99999999999999999999 -- train.py",
    "profile --active ٣ -- train.py",
    "profile --backend other -- train.py",
    "analyze file --cache file",
    "slice file",
    "watch --readings nan -- train.py",
    "watch --readings -1 -- train.py",
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()


def parsed(line):
    """What the function of a command line gets."""
    name, *words = [word.replace("''", "") for word in line.split(" ")]
    return GROUP.commands[name].make_context(name, words).params


def as_typer(line, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(command, "take_plainly", lambda params: None)
        return parsed(line)


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_plain_is_as_typer_has_it_and_typer_is_not_asked(line, monkeypatch):
    expected = as_typer(line, monkeypatch)
    monkeypatch.delattr(typer.core, "build_runtime_param")
    found = parsed(line)
    assert found == expected
    assert [*map(type, found.values())] == [*map(type, expected.values())]


@pytest.mark.parametrize("line", LEFT_TO_TYPER)
def test_what_is_not_plain_is_as_typer_has_it(line, monkeypatch):
    assert parsed(line) == as_typer(line, monkeypatch)


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_refused_in_the_words_of_typer(line, monkeypatch):
    with pytest.raises((typer.BadParameter, UsageError)) as expected:
        as_typer(line, monkeypatch)
    with pytest.raises(expected.type) as found:
        parsed(line)
    assert words(found.value) == words(expected.value)


def words(error):
    return str(error) if isinstance(error, UsageError) else error.format_message()
