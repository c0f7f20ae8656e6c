"""What is read at a glance: 25 lines in a terminal, 3 kB of Markdown, the first fix on top."""

from __future__ import annotations

import pytest

from tests.analyses import REFUSED, report_of, runs
from tests.every_record import RECORD_NAMES, every_record
from tests.rendering import markdown_of, terminal_of
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.render import document_of, terminal
from traceprobe.render.pages.report_summary import misleading

SCREEN = 24
"""Lines; the line that says what was written makes it 25."""
NARROW = 45
COMMENT = 3_000
"""Bytes."""
CORPUS = ("wild/h200_fsdp_w2", "wild/h200_hf_io.sqlite.gz", "wild/llmc_dd2360.nsys.sqlite.gz")


def check(report):
    screen = terminal_of(report, 80, False).splitlines()
    assert len(screen) <= SCREEN
    assert max(map(len, screen)) <= 80
    assert len(terminal_of(report, 200, False).splitlines()) <= SCREEN
    assert len(terminal_of(report, 40, False).splitlines()) <= NARROW
    assert len(terminal_of(report, 80, False, verbose=True).splitlines()) > len(screen)
    text = markdown_of(report)
    assert len(text.encode()) <= COMMENT
    fixes = first_fixes(report)
    said = [report.verdict.headline, *(f"- ⚠ {line}" for line in misleading(report))]
    lines = [line for line in text.splitlines()[1:] if line]
    first = next(line for line in lines if line.rstrip(".") not in {s.rstrip(".") for s in said})
    assert first.startswith("**Try first:** ") is bool(fixes)
    for n, fix in enumerate(fixes, 1):
        assert f"\n{n}. {fix.title}" in "\n".join(screen)
    assert ("Try first:" in screen) is bool(fixes)


@pytest.mark.parametrize("name", sorted(runs()))
def test_a_sample_is_told_at_a_glance(name):
    check(report_of(*runs()[name]))


@pytest.mark.parametrize("name", CORPUS)
def test_a_trace_of_others_is_told_at_a_glance(corpus, name):
    path = corpus / name
    if not path.exists():
        pytest.skip("not in this corpus")
    files = sorted(path.glob("*.gz")) if path.is_dir() else [path]
    try:
        check(report_of(*files))
    except REFUSED:
        pytest.skip("refused")


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_any_record_fits_the_screen(name):
    document = document_of(every_record()[name])
    text = terminal.render(document, 80, False)
    assert len(text.splitlines()) <= SCREEN
    whole = terminal.render(document, 80, False, verbose=True)
    assert len(whole.splitlines()) >= len(text.splitlines()) - 2
    assert ("more with -v" in text) or whole == text
