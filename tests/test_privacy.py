"""What a trace holds beside the names of its work reaches no output.

A canary is put into every text of a trace that names neither an event nor a device, into cells of
every column that are no such name, and into the name of the folder. Then every output is searched.
"""

from __future__ import annotations

import gzip
import json

import pytest

from tests.canaries import (
    CANARY,
    KINETO_SAMPLES,
    NSIGHT_SAMPLES,
    canary_in_chrome_trace,
    canary_in_export,
)
from tests.conftest import ROOT

OUTPUTS = ("run.html", "run.json", "run.md")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "redact"),
    [
        (name, name in (KINETO_SAMPLES[0], NSIGHT_SAMPLES[0]))
        for name in (*KINETO_SAMPLES, *NSIGHT_SAMPLES)
    ],
)
def test_no_canary_in_any_output(cli, tmp_path, name, redact):
    folder = tmp_path / CANARY
    folder.mkdir()
    data = (ROOT / "sample_traces" / name).read_bytes()
    planted = canary_in_export(data) if ".sqlite" in name else canary_in_chrome_trace(data)
    trace = folder / name
    trace.write_bytes(planted)
    hidden = gzip.decompress(planted)
    assert hidden.count(CANARY.encode()) > 8
    options = ["--redact"] if redact else []
    outputs = [argument for output in OUTPUTS for argument in ("-o", output)]
    done = cli("analyze", trace, *outputs, *options).expect(0)
    shown = done.out.partition("next, ")[
        0
    ]  # the command that follows names the file that was given
    texts = {output: (tmp_path / output).read_text() for output in OUTPUTS} | {"terminal": shown}
    assert {output for output, text in texts.items() if CANARY in text.lower()} == set()
    assert json.loads(texts["run.json"])["verdict"]["bound"] != "inconclusive"
    listed = cli("inspect", trace).expect(0).out
    assert CANARY not in listed.lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", [KINETO_SAMPLES[0], NSIGHT_SAMPLES[0]])
def test_no_canary_in_a_slice(cli, tmp_path, name):
    data = (ROOT / "sample_traces" / name).read_bytes()
    trace = tmp_path / name
    trace.write_bytes(canary_in_export(data) if ".sqlite" in name else canary_in_chrome_trace(data))
    cli("slice", trace, "--steps", "1:4", "-o", f"small.{name}").expect(0)
    assert CANARY.encode() not in gzip.decompress((tmp_path / f"small.{name}").read_bytes())
