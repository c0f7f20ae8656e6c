"""Every field of every record has a decision on what of it may be passed on, and it is kept."""

from __future__ import annotations

import importlib.util
import re
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, inspect
from msgspec.structs import replace

from tests.cli_runner import Cli
from tests.conftest import ROOT
from tests.rendering import terminal_of
from tests.saved_records import RECORD_NAMES, ROOTS, record_types, records
from traceprobe.anonymise.redact import disclosure_of, redact
from traceprobe.records.base import Record
from traceprobe.records.kinds import KINDS
from traceprobe.records.memory import Memory
from traceprobe.records.report import Report
from traceprobe.records.texts import Disclosure, Name
from traceprobe.render import document_of
from traceprobe.render import terminal as document_terminal
from traceprobe.vocabulary import digest, known, own_tokens, quoted, told

CANARY = "CNRY"


class Canaries:
    """Texts that are nowhere else, each once."""

    def __init__(self) -> None:
        self._number = count(100)

    def __call__(self) -> str:
        return f"{CANARY}{next(self._number)}"

    def of(self, kind: inspect.Type) -> object:
        """A value of a type with a canary in every text, keys of mappings too."""
        if isinstance(kind, inspect.Metadata):
            return self.of(kind.type)
        if isinstance(kind, inspect.UnionType):
            return self.of(next(t for t in kind.types if not isinstance(t, inspect.NoneType)))
        if isinstance(kind, inspect.StructType):
            return kind.cls(**{field.name: self.of(field.type) for field in kind.fields})
        if isinstance(kind, inspect.LiteralType):
            return kind.values[0]
        if isinstance(kind, inspect.DictType):
            return {self(): self.of(kind.value_type), self(): self.of(kind.value_type)}
        if isinstance(kind, inspect.ListType):
            return [self.of(kind.item_type), self.of(kind.item_type)]
        if isinstance(kind, inspect.AnyType):
            return {self(): [self(), {self(): self()}], "name": self(), "flags": [{"x": self()}]}
        if isinstance(kind, inspect.StrType):
            return self()
        plain = {inspect.IntType: 7, inspect.FloatType: 0.5, inspect.BoolType: True}
        return {**plain, inspect.BytesType: b"\x07"}[type(kind)]


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """A record that nobody has decided about."""

    text: str = ""
    number: int = 0


MORE = [
    ("new_text", str),
    ("new_texts", list[str]),
    ("new_mapping", dict[str, str]),
    ("new_record", Inner),
    ("new_default", str, ""),
    ("new_perhaps", str | None, None),
]


def extended(value: object, canary: Canaries) -> object:
    """The same with more fields in every record, however deep, each with a canary."""
    if isinstance(value, msgspec.Struct):
        kind = type(value)
        wider = msgspec.defstruct(
            kind.__name__, MORE, bases=(kind,), frozen=True, kw_only=True, module=__name__
        )
        kept = {name: extended(getattr(value, name), canary) for name in kind.__struct_fields__}
        return wider(
            **kept,
            new_text=canary(),
            new_texts=[canary()],
            new_mapping={canary(): canary()},
            new_record=Inner(text=canary()),
            new_default=canary(),
            new_perhaps=canary(),
        )
    if isinstance(value, dict):
        return {key: extended(item, canary) for key, item in value.items()}
    return [extended(item, canary) for item in value] if isinstance(value, list) else value


def planted(value: object, canary: Canaries, rule: Disclosure = Disclosure.WORD) -> object:
    """The same with a canary in every text that is no word of a closed list."""
    if isinstance(value, msgspec.Struct):
        kind = inspect.type_info(type(value))
        rules = {field.name: disclosure_of(field.type) for field in kind.fields}
        return replace(
            value,
            **{
                name: planted(getattr(value, name), canary, rules[name])
                for name in value.__struct_fields__
            },
        )
    if isinstance(value, dict):
        return {key: planted(item, canary, rule) for key, item in value.items()}
    if isinstance(value, list):
        return [planted(item, canary, rule) for item in value]
    open_lists = (Disclosure.NAME, Disclosure.SENTENCE, Disclosure.OPTIMIZER, Disclosure.PRIVATE)
    return f"{value} {canary()}" if isinstance(value, str) and rule in open_lists else value


def outputs(record: msgspec.Struct) -> dict[str, str]:
    """Everything that can be written of a record."""
    if isinstance(record, Report):
        shown = {"terminal": terminal_of(record, 100, color=False)}
    elif isinstance(record, Record):
        shown = {"terminal": document_terminal.render(document_of(record), 100, False)}
    else:
        return {"json": record.to_json()}
    pages = {"html": record.to_html(), "markdown": record.to_markdown()}
    return {"json": record.to_json(), **pages, **shown}


def leaks(texts: dict[str, str]) -> dict[str, int]:
    return {name: text.count(CANARY) for name, text in texts.items() if CANARY in text}


def test_every_field_of_every_record_has_a_decision():
    """What is left out is left out because its type says so."""
    left_out = {
        f"{kind.__name__}.{field.name}": field.type
        for kind in record_types()
        for field in inspect.type_info(kind).fields
        if disclosure_of(field.type) is Disclosure.PRIVATE
    }
    assert set(left_out) == {
        *("Report.workload", "Ablation.workload", "Causal.workload"),
        *("RunSummary.settings", "Comparison.settings"),
        *("RungResult.arguments", "RungResult.environment_digest"),
    }
    for kind in left_out.values():
        assert isinstance(kind, inspect.Metadata)
        assert kind.extra == {"disclosure": Disclosure.PRIVATE}


@pytest.mark.parametrize(
    "undecided", [str, str | None, list[str], dict[str, int], dict[Name, str], Any, bytes]
)
def test_a_text_without_a_decision_is_private(undecided):
    assert disclosure_of(inspect.type_info(undecided)) is Disclosure.PRIVATE


@pytest.mark.parametrize("kind", ROOTS, ids=lambda kind: kind.__name__)
def test_no_canary_of_any_field_is_left(kind):
    canary = Canaries()
    made = canary.of(inspect.type_info(kind))
    assert made.to_json().count(CANARY) > 1
    assert leaks({"json": redact(made).to_json()}) == {}


@pytest.mark.parametrize("kind", record_types(), ids=lambda kind: kind.__name__)
def test_a_record_that_is_redacted_is_one_still(kind):
    made = redact(Canaries().of(inspect.type_info(kind)))
    assert CANARY.encode() not in msgspec.json.encode(made)
    literals = msgspec.convert(msgspec.to_builtins(made), kind)
    assert literals == made


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_names_of_real_records_reach_no_output(name):
    made = planted(records()[name], Canaries())
    found = leaks(outputs(made))
    assert {"json"} <= set(found)
    assert leaks(outputs(redact(made))) == {}


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_a_new_field_is_left_out_until_somebody_decides(name):
    made = extended(records()[name], Canaries())
    assert leaks(outputs(made))["json"] > 6
    assert leaks(outputs(redact(made))) == {}


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_redacting_twice_changes_nothing(name):
    once = redact(records()[name])
    assert redact(once) == once


def unnamed(finding):
    """A finding without its sites, and without the operators that its evidence names."""
    evidence = [re.sub(r"`[^`]*`", "", line) for line in finding.evidence]
    return replace(finding, sites=UNSET, evidence=evidence)


def test_numbers_and_words_of_ours_stay():
    report = records()["report"]
    hidden = redact(report)
    assert hidden.verdict == report.verdict
    assert [unnamed(f) for f in hidden.findings] == [unnamed(f) for f in report.findings]
    assert [r.summary.partition_ns for r in hidden.ranks] == [
        r.summary.partition_ns for r in report.ranks
    ]
    assert hidden.ranks[0].device == report.ranks[0].device
    # Names of operators and kernels are anybody's; numbers tell nobody anything.
    shown, known = hidden.ranks[0].replay, report.ranks[0].replay
    assert replace(shown, names=[]) == replace(known, names=[])
    known_flags = {"cudnn_allow_tf32": True, "matmul_precision": "high"}
    bench = replace(report.ablation, workload=None, flags=known_flags)
    assert redact(bench) == bench
    assert hidden.ablation.oracle == report.ablation.oracle


def test_a_lost_rank_is_told_by_the_digest_of_its_name():
    report = records()["report"]
    hidden = redact(report)
    assert hidden.quality.lost[0].name == digest("c.json")
    assert hidden.quality.lost[0].reason == f"{digest('c.json')}: no GPU work in the trace"
    assert hidden.quality.warnings[-1].message.endswith(hidden.quality.lost[0].reason)


def test_only_classes_of_pytorch_stay_as_optimizers():
    assert redact(Memory(optimizer="AdamW")).optimizer == "AdamW"
    assert redact(Memory(optimizer="OurTrick")).optimizer == digest("OurTrick")


@pytest.mark.parametrize("kind", KINDS)
def test_render_redacts_every_kind(tmp_path, monkeypatch, capfdbinary, kind):
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    made = planted(records()[kind], Canaries())
    (tmp_path / "a.json").write_text(made.to_json())
    cli("render", "a.json", "--redact", "-q", "-o", "b.html", "-o", "b.md", "-o", "b.json")
    texts = {path.name: path.read_text() for path in tmp_path.glob("b.*")}
    texts["terminal"] = cli("render", "a.json", "--redact").expect(0).out
    assert len(texts) == 4
    assert leaks(texts) == {}


def test_the_words_of_ours_are_those_of_the_source():
    path = ROOT / "scripts" / "write_vocabulary.py"
    spec = importlib.util.spec_from_file_location("write_vocabulary", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    listed = script.TARGET.read_text(encoding="utf-8")
    assert listed == script.harvested(), "run scripts/write_vocabulary.py"
    assert {"overhead", "idle_data_wait", "--unprofiled-step-ms"} <= own_tokens()


@pytest.mark.parametrize(
    "sentence",
    [
        "Overhead takes 38.2 % of the step (12.3 ms of 32.1 ms).",
        "no GPU work in the export; profile with `nsys profile --trace=cuda,nvtx`",
        "NVIDIA H200, 8 ranks: 1.2 GB/s",
        "PyTorch profiler (Kineto), CUPTI 130001, 2024.6.1.90",
        "cudaStreamSynchronize takes 4.2 ms/step",
    ],
)
def test_sentences_of_ours_are_told_whole(sentence):
    assert told(sentence) == sentence


@pytest.mark.parametrize(
    "private",
    [
        *("node17.cluster.org", "10.20.30.41", "fe80::1ff:fe23:4567:890a", "alice@example.org"),
        *("/home/alice/run", "C:\\Users\\alice", "~alice/run", "../alice", "./train/run"),
        *("HF_TOKEN=hf_abc", "https://hub.example.org/x", "kanarienvogel", "Überwald"),
        *("run_8812345.json", "mymodel::forward", "alice's", "login-kanarienvogel-3"),
    ],
)
@pytest.mark.parametrize("frame", ["{}", "work on {}, lost", "({})", "`{}`: failed", "a \t{}\n"])
def test_what_is_no_word_of_ours_is_told_as_a_digest_and_quoted_not_at_all(frame, private):
    text = frame.format(private)
    for part in ("alice", "node17", "20.30", "fe23", "hf_abc", "kanarien", "wald", "8812", "hub."):
        assert part not in told(text)
        assert part not in quoted(text)
    assert "#" in told(text)
    assert "…" in quoted(text)
    assert not known(text)


def test_a_quotation_keeps_no_long_numbers_and_has_an_end():
    assert quoted("job 8812345678 failed") == "… failed" or "8812345678" not in quoted("8812345678")
    assert len(quoted("failed " * 1000)) == 300


@pytest.mark.parametrize("unit", ["a!", "!", "-", "7,", "[", "x/", "#", "\\"])
def test_a_token_of_a_megabyte_is_one_digest(unit):
    """Work that grew with the square of its length would not end."""
    text = f"b{unit * 500_000}{CANARY}7"
    assert told(text) == digest(text)
    assert CANARY not in quoted(text)
    assert not known(text)
