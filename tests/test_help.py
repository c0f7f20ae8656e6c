"""`--help` is whole, in groups and in words; a trace in the place of a command is analysed."""

from __future__ import annotations

import re

import pytest
import typer.main

from tests.cli_runner import Cli, write_trace
from traceprobe.cli import app
from traceprobe.cli.help import is_input

COMMANDS = sorted(typer.main.get_command(app).commands)


@pytest.fixture
def cli(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.setenv("COLUMNS", "80")
    return Cli(tmp_path, monkeypatch, capfdbinary)


def test_commands_are_in_groups_with_all_that_they_do(cli):
    text = cli("--help").expect(0).out
    titles = re.findall(r"^([A-Z]\w+):", text, re.MULTILINE)
    assert titles == ["Usage", "Options", "Analyse", "Record", "Compare", "More", "Examples"]
    assert "..." not in text.replace("[ARGS]...", "")
    assert sorted(re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE)) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_in_groups_in_words_and_examples_come_last(cli, name):
    text = cli(name, "--help").expect(0).out
    assert "…" not in text
    assert not re.search(r"<\w+|\bTEXT\b|\bFLOAT\b|\bINTEGER\b|<=x", text)
    assert max(map(len, text.splitlines())) <= 80
    groups = re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE)
    assert groups[-2:] == ["Other options", "Examples"]
    assert "Output" in groups
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert all(line.startswith(f"  traceprobe {name}") for line in examples)


def test_the_help_of_all_commands_is_that_of_each(cli):
    text = cli("--help-all").expect(0).out
    assert text.startswith(cli("--help").out.rstrip())
    for name in COMMANDS:
        assert f"\n{name}\n{len(name) * '='}\n\n{cli(name, '--help').out.rstrip()}\n" in text


def test_a_wide_terminal_is_used(cli, monkeypatch):
    narrow = cli("analyze", "--help").out
    monkeypatch.setenv("COLUMNS", "120")
    assert len(cli("analyze", "--help").out.splitlines()) < len(narrow.splitlines())


def test_a_trace_in_the_place_of_a_command_is_analysed(cli, tmp_path):
    write_trace(tmp_path / "run.json.gz")
    expected = cli("analyze", "run.json.gz", "-o", "-").expect(0).out
    assert cli("run.json.gz", "-o", "-").expect(0).out == expected
    (tmp_path / "traces").mkdir()
    write_trace(tmp_path / "traces" / "run.json.gz")
    assert cli("traces", "-o", "-").expect(0).out == expected
    assert cli("*.json.gz", "-q").expect(0).out == ""
    assert "traceprobe-run.html" in cli.files()


@pytest.mark.parametrize("name", ["absent.json", "./absent", "a/b", "*.nothing"])
def test_a_path_that_is_not_there_is_called_so(cli, name):
    done = cli(name).expect(2)
    assert re.search(r"is absent|no file fits", done.err)
    assert len(done.err.splitlines()) == 1


def test_a_mistyped_command_is_corrected(cli):
    done = cli("anlyze", "run.json.gz").expect(2)
    assert "No such command 'anlyze'. Did you mean 'analyze'?" in done.err


def test_a_command_goes_before_a_file_of_its_name(cli, tmp_path):
    (tmp_path / "inspect").touch()
    assert "INPUT" in cli("inspect").expect(2).err
    assert not is_input("--version")
