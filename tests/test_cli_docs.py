"""docs/cli.md is a reference: each command with exactly its options, and examples that work."""

from __future__ import annotations

import re
import shlex

import pytest
import typer.main

from tests.conftest import ROOT
from traceprobe.cli import app
from traceprobe.cli.help import is_input

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
GROUP = typer.main.get_command(app)
EXAMPLE = re.compile(r"^traceprobe ((?!COMMAND)[a-z][^|\n]*)", re.MULTILINE)


def section(name):
    found = re.search(rf"^## traceprobe {name}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section on traceprobe {name}"
    return found[1]


def documented(text):
    """Every option in the first cells of the tables."""
    cells = re.findall(r"^\| (.*?) \| ", text, re.MULTILINE)
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", " ".join(cells)))


def known(command):
    options = (p for p in command.params if p.param_type_name == "option")
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def examples():
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE + README, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in EXAMPLE.findall(block)]
    return sorted({line.partition(" #")[0].strip() for line in lines if "OPTIONS" not in line})


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_each_section_lists_the_options_of_its_command(name):
    assert documented(section(name)) == known(GROUP.commands[name]) - {"-h", "--help"}


def test_the_first_table_lists_the_options_of_the_program():
    common = PAGE.partition("\n## ")[0]
    everywhere = {"-h", "--help", "--install-completion", "--show-completion"}
    assert documented(common) == known(GROUP) | everywhere


def test_the_first_table_lists_the_commands():
    listed = re.findall(r"^\| \[`traceprobe (\w+)`\]\(#traceprobe-(\w+)\) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == [(name, name) for name in sorted(GROUP.commands)]


def test_there_are_examples():
    assert len(examples()) > 10


@pytest.mark.parametrize("example", examples())
def test_examples_use_options_that_exist(example):
    name, *arguments = shlex.split(example)
    assert name in GROUP.commands or is_input(name)
    command = GROUP.commands.get(name, GROUP.commands["analyze"])
    used = {word for word in arguments if re.match(r"--?[a-z]", word)}
    assert used <= known(command) or command.context_settings.get("ignore_unknown_options")


def test_the_readme_works_from_the_top_and_shows_what_it_prints(cli):
    (cli.folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    printed = {}
    for command in of_a_stranger():
        printed[command] = cli(*shlex.split(command)).expect(0).out
    assert len(printed) >= 6
    for command in (command for command in printed if command.startswith("compare ")):
        assert "How many samples a step holds" not in printed[command]
    shown = re.search(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1]
    assert next(iter(printed.values())).startswith(shown)


def of_a_stranger():
    """Commands of the README on files that are here; capitals stand for files of the reader."""
    blocks = re.findall(r"^```console\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in EXAMPLE.findall(block)]
    for line in (line.partition(" #")[0].strip() for line in lines):
        if not re.search(r" [A-Z]", line) and line.split()[0] not in ("profile", "bench", "sweep"):
            yield line


def test_environment_variables_are_the_ones_that_are_read():
    table = PAGE.partition("### Environment variables")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("cli", "report", "ingest")
        for path in sorted((ROOT / "traceprobe" / folder).glob("*.py"))
    )
    assert set(re.findall(r'os\.environ\.get\("(\w+)"\)', code)) <= listed
    assert {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "TRACEPROBE_NSYS"} <= listed
