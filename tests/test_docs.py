"""The documentation is complete: every command, long option, exit code and finding is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from traceprobe.cli import app
from traceprobe.findings import RULES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FINDINGS = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
EXIT_CODES = (0, 1, 2, 70, 130)
SHELL_COMPLETION = {"--install-completion", "--show-completion", "--help"}


def commands():
    """Name to command, as typer builds them."""
    return typer.main.get_command(app).commands


def options():
    """Every (command, long option)."""
    groups = {"traceprobe": typer.main.get_command(app), **commands()}
    return sorted(
        (name, option)
        for name, command in groups.items()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--") and option not in SHELL_COMPLETION
    )


def test_there_are_commands():
    assert {"analyze", "inspect", "render"} <= set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_is_documented(name):
    assert f"traceprobe {name}" in TEXT


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_explains_itself(name):
    assert commands()[name].help


@pytest.mark.parametrize(("command", "option"), options())
def test_every_option_is_documented(command, option):
    assert re.search(rf"`[^`\n]*{re.escape(option)}(?![\w-])[^`\n]*`", TEXT)


@pytest.mark.parametrize("code", EXIT_CODES)
def test_every_exit_code_is_documented(code):
    assert re.search(rf"^\| *`?{code}`? *\|", TEXT, re.MULTILINE)


def test_the_help_names_the_exit_codes():
    assert all(re.search(rf"\b{code} [a-z]", app.info.epilog) for code in EXIT_CODES)


def test_every_finding_is_documented():
    assert [name for name in RULES if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_report_and_the_page_state_the_same_rule(rule):
    section = re.search(rf"^## {rule.id}$(.*?)(?=^## |\Z)", FINDINGS, re.MULTILINE | re.DOTALL)[1]
    plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", section).split())
    assert f"- **Rule.** {rule.definition} - **Threshold.**" in plain
    assert f"- **Verify.** {rule.verify}" in plain


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_section_says_rule_threshold_precedent_advice_and_how_to_verify(rule):
    section = re.search(rf"^## {rule.id}$(.*?)(?=^## |\Z)", FINDINGS, re.MULTILINE | re.DOTALL)[1]
    items = re.findall(r"^- \*\*([A-Z][a-z]+)\.\*\* (.)", section, re.MULTILINE)
    assert [name for name, _ in items] == ["Rule", "Threshold", "Precedent", "Advice", "Verify"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
