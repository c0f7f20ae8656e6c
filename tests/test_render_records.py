"""`traceprobe render` of what is no report: comparisons, ladders and all that come after them."""

from __future__ import annotations

import json
from importlib import import_module

import msgspec
import pytest

from tests.report_factory import make_report
from traceprobe.anonymise.redact import digest
from traceprobe.compare.compare import compare
from traceprobe.compare.run import observe
from traceprobe.records import kinds
from traceprobe.records.base import Record
from traceprobe.records.kinds import KINDS
from traceprobe.render import document_of


@pytest.fixture
def made(tmp_path):
    """A comparison, and its JSON in a file."""
    runs = (observe(make_report(bound), bound) for bound in ("io", "compute"))
    comparison = compare(*runs, 0.05)
    (tmp_path / "a.json").write_text(comparison.to_json(), encoding="utf-8")
    return comparison


def test_a_record_renders_to_every_output(cli, made):
    cli("render", "a.json", "-o", "b.html", "-o", "b.md", "-o", "b.json").expect(0)
    written = {kind: (cli.folder / f"b.{kind}").read_text() for kind in ("html", "md", "json")}
    assert written == {"html": made.to_html(), "md": made.to_markdown(), "json": made.to_json()}
    assert "<title>" in written["html"]
    assert written["md"].startswith("### ")


def test_without_output_its_summary_goes_to_the_terminal(cli, made):
    out = cli("render", "a.json").expect(0).out
    assert document_of(made).title in out
    assert "Where the time of a step goes" in out


def test_its_markdown_goes_to_the_summary_of_a_job(cli, made, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(cli.folder / "summary.md"))
    cli("render", "a.json", "--github-summary", "-q").expect(0)
    assert (cli.folder / "summary.md").read_text(encoding="utf-8") == made.to_markdown()


def refused(cli, **changes):
    """What is said of the record with other values."""
    record = {**json.loads((cli.folder / "a.json").read_text(encoding="utf-8")), **changes}
    (cli.folder / "other.json").write_text(json.dumps(record))
    done = cli("render", "other.json", "-o", "c.html").expect(2)
    assert not (cli.folder / "c.html").exists()
    return done.err


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "sonnet"}, "its kind is 'sonnet', known are causal, comparison"),
        ({"kind": 7}, "`$.kind`"),
        ({"schema_version": "9.1"}, "has schema version 9.1, this traceprobe reads 1."),
        ({"per": "fortnight"}, "`$.per`"),
        ({"kind": "document"}, "its kind is 'document'"),
    ],
)
def test_what_is_no_known_record_is_refused(cli, changes, said):
    message = refused(cli, **changes)
    assert "other.json" in message
    assert said in message


@pytest.mark.usefixtures("made")
def test_a_later_minor_version_is_read(cli):
    text = (cli.folder / "a.json").read_text(encoding="utf-8")
    later = text.replace('"schema_version": "1.0"', '"schema_version": "1.9"')
    assert later != text
    (cli.folder / "later.json").write_text(later, encoding="utf-8")
    cli("render", "later.json", "-o", "c.html").expect(0)


@pytest.mark.usefixtures("made")
def test_a_record_can_be_redacted_afterwards(cli):
    cli("render", "a.json", "--redact", "-o", "c.json").expect(0)
    assert kinds.read((cli.folder / "c.json").read_text()).base.label == digest("io")


def test_a_record_is_read_back_as_it_was(made):
    assert kinds.read(made.to_json()) == made


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_record_with_a_page(kind):
    record = KINDS[kind]
    fields = {f.name: f for f in msgspec.structs.fields(record)}
    assert issubclass(record, Record)
    assert fields["kind"].default == kind
    assert record.SCHEMA_VERSION.split(".")[0].isdigit()
    assert callable(import_module(f"traceprobe.render.pages.{kind}").document)
