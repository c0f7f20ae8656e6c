"""What a report says of memory: only what makes sense, the same in every output, and its advice."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tests import records
from tests.memory_records import GB, make_memory, make_record, make_step
from tests.rendering import terminal_of
from tests.report_factory import HOSTILE, make_report
from traceprobe.anonymise.redact import redact
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.memory_peak import memory_peak
from traceprobe.findings.memory_slack import memory_slack
from traceprobe.records.memory import PARTS, read
from traceprobe.records.report import Report
from traceprobe.render.pages import memory as memory_text
from traceprobe.render.pages.memory import document


def changed(path, value):
    """A record with one entry of the measured step replaced."""
    record = make_record()
    at = record["measured"]
    *way, last = path
    for key in way:
        at = at[key]
    at[last] = value
    return record


def test_what_a_capture_records_is_read():
    memory = make_memory()
    assert memory.measured.slack == 2 * GB
    assert memory.used_bytes == 11 * GB + GB // 2
    assert memory.predicted.allocated == 8 * GB


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "memory",
        {"measured": 1},
        changed(["peak_bytes"], 5),
        changed(["parts", "weights"], -GB),
        changed(["reserved_bytes"], 1 << 60),
        changed(["timeline", "position"], []),
        changed(["timeline", "position"], [0.0, 1.0]),
        changed(["timeline", "position"], [0.0, 1.0, 2.0, 1e300]),
        changed(["timeline", "parts"], {}),
        changed(["timeline", "phase"], ["x" * 1000] * 4),
        changed(["phases"], {str(n): 0 for n in range(100)}),
        make_record(not_measured="x" * 1000),
        make_record(device_bytes=-1),
    ],
)
def test_what_makes_no_sense_is_nothing(record):
    assert read(record) is None


def test_the_parts_and_the_rest_add_up_in_the_bar():
    memory = make_memory()
    found = memory_text.bar(memory, memory.measured, "measured").pieces
    assert sum(piece.value for piece in found) == memory.used_bytes
    assert [piece.word for piece in found][-2:] == ["allocator slack", "CUDA context"]


def test_rows_have_the_difference_and_its_share():
    rows = {row[0]: row[1:] for row in memory_text.table(make_memory()).rows}
    assert rows["activations"] == ["4.00 GiB", "4.00 GiB", "0 B", "0.0 %"]
    assert rows["temporary"] == ["1.00 GiB", "1.50 GiB", "−512 MiB", "−33.3 %"]
    assert rows["sum of the parts in use: the peak"] == [
        *("8.00 GiB", "9.00 GiB"),
        *("−1.00 GiB", "−11.1 %"),
    ]


def test_without_a_prediction_there_is_no_column_of_it():
    memory = make_memory(predicted=None, not_predicted="of other programs")
    assert memory_text.table(memory).head == ["", "measured"]
    assert "Not predicted: of other programs" in memory_text.sentences(memory)


def test_the_gap_is_explained_by_its_parts():
    told = " ".join(memory_text.sentences(make_memory()))
    assert "The prediction is 11.1 % below the measurement" in told
    assert "512 MiB were there before the step" in told
    assert "512 MiB more of temporary memory than predicted" in told
    assert "less reserved" not in told
    assert "The foreach optimizer goes up to 5.00 GiB, 1.00 GiB above" in told


@pytest.mark.parametrize("way", ["fused", "for-loop", None])
def test_only_foreach_has_lists_of_intermediate_results(way):
    assert "lists of intermediate" not in " ".join(
        memory_text.sentences(make_memory(implementation=way))
    )


def test_the_picture_piles_the_parts_up_to_the_peak():
    step = make_memory().predicted
    chart = memory_text.chart(step, "predicted")
    parts, first, last = chart.data["parts"], step.timeline.position[0], step.timeline.position[-1]
    (peak,) = chart.data["peak"]["at"]
    assert (peak - first) / (last - first) == 0.5
    assert list(dict.fromkeys(parts["part"])) == [
        *("weights", "optimizer state", "activations", "temporary"),
    ]
    held = [gib for at, gib in zip(parts["at"], parts["GiB"], strict=True) if at == peak]
    assert sum(held) * GB == step.peak_bytes
    assert chart.data["phases"]["phase"] == ["forward", "backward"]


@pytest.fixture
def report():
    return make_report("compute", memory=make_memory(input=0))


def test_a_report_with_memory_comes_back_as_it_was(report):
    assert Report.from_json(report.to_json()) == report


def test_a_report_without_has_no_such_key():
    assert "memory" not in json.loads(make_report("compute").to_json())


def test_every_output_has_it(report):
    page = report.to_html()
    assert 'id="memory"' in page
    for name in ("predicted", "measured"):
        assert f'id="chart-memory-{name}"' in page
    said = "A step held 9.00 GiB at its peak in backward, of which activations 4.00 GiB"
    assert said in page
    assert said in report.to_markdown()
    assert said in re.sub(r"\s+", " ", terminal_of(report, 80, color=False, verbose=True))


def test_no_output_has_it_where_nothing_was_recorded():
    plain = make_report("compute")
    assert 'id="memory"' not in plain.to_html()
    assert "\nmemory: " not in terminal_of(plain, 80, color=False, verbose=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_phases_cannot_leave_their_place(name):
    step = make_step()
    short = name[:150]
    step["peak_phase"] = short
    step["phases"] = {short: 8 * GB}
    step["timeline"]["phase"] = [short] * 4
    memory = make_memory(measured={**step, "allocated_bytes": None}, not_predicted=short)
    page = make_report("compute", memory=memory).to_html()
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_redacted_phases_that_the_program_named_are_digests():
    step = make_step()
    step["phases"] = {"canary": 1, "forward": 2}
    step["timeline"]["phase"] = ["canary", "forward", "backward", ""]
    memory = make_memory(predicted=step, not_measured="of canary")
    hidden = redact(make_report("compute", memory=memory)).memory
    assert "canary" not in msgspec.json.encode(hidden).decode()
    assert hidden.predicted.timeline.phase[1:] == ["forward", "backward", ""]


def test_a_prediction_alone_says_what_a_gpu_must_have():
    memory = make_memory(measured=None, device_bytes=None, outside_bytes=None)
    found = document(memory, "0")
    assert found.title == "10.5 GiB of GPU memory"
    assert "The largest part is activations, 4.00 GiB." in found.headline
    rows = [row[0] for row in found.sections[0].blocks[0].rows]
    assert rows == ["activations", "optimizer state", "weights", "temporary"]


@pytest.fixture
def looked_at():
    """What the findings see of a report with this memory."""

    def made(memory):
        report = make_report("compute")
        return Evidence(
            report.ranks,
            None,
            report.quality,
            report.verdict,
            records.THRESHOLDS,
            frozenset(),
            None,
            {},
            memory,
        )

    return made


def test_a_device_with_room_passes(looked_at):
    found = memory_peak(looked_at(make_memory()))
    assert (found.status, found.advice) == ("pass", "")
    assert found.evidence[0] == "11.5 GiB of 16.0 GiB are in use: 71.9 %"


def test_a_full_device_asks_for_what_lowers_its_largest_part(looked_at):
    found = memory_peak(looked_at(make_memory(device_bytes=12 * GB)))
    assert found.status == "warn"
    assert "accumulate gradients" in found.advice
    assert found.saving_ms_per_step is None


def test_a_peak_in_a_foreach_update_asks_for_fused(looked_at):
    memory = make_memory(device_bytes=12 * GB)
    step = msgspec.structs.replace(memory.measured, peak_phase="optimizer")
    found = memory_peak(looked_at(msgspec.structs.replace(memory, measured=step)))
    assert "`fused=True`" in found.advice
    other = msgspec.structs.replace(memory, measured=step, implementation="fused")
    assert "fused" not in memory_peak(looked_at(other)).advice


def test_weights_that_fill_a_device_ask_for_shards(looked_at):
    step = make_step(11.0, activations=0.5, temporary=0.5, weights=3)
    found = memory_peak(looked_at(make_memory(measured=step, device_bytes=12 * GB)))
    assert "shard them" in found.advice


def test_bf16_is_advice_only_where_the_device_has_it(looked_at):
    seen = looked_at(make_memory(device_bytes=12 * GB))
    rank = seen.ranks[0]
    summary = msgspec.structs.replace(rank.summary, kernel_ns={"matmul_fp32": 1_000_000})
    for capability, advised in (("9.0", True), ("10.0", True), ("7.5", False), (None, False)):
        device = msgspec.structs.replace(rank.device, capability=capability)
        ranks = [msgspec.structs.replace(rank, summary=summary, device=device)]
        found = memory_peak(
            Evidence(
                ranks,
                None,
                seen.quality,
                seen.verdict,
                seen.thresholds,
                frozenset(),
                None,
                {},
                seen.memory,
            )
        )
        assert ("bfloat16" in found.advice) is advised, capability


@pytest.mark.parametrize("rule", [memory_peak, memory_slack])
def test_without_a_measurement_they_do_not_apply(looked_at, rule):
    assert rule(looked_at(None)).status == "not-applicable"
    assert rule(looked_at(make_memory(measured=None))).status == "not-applicable"


@pytest.mark.parametrize(
    ("reserved", "device", "status"),
    [(11.0, 16, "pass"), (12.0, 16, "warn"), (12.0, 25, "pass")],
)
def test_slack_matters_on_a_crowded_device(looked_at, reserved, device, status):
    step = make_step(reserved, held=1)
    found = memory_slack(looked_at(make_memory(measured=step, device_bytes=device * GB)))
    assert found.status == status
    assert ("expandable_segments" in found.advice) is (status == "warn")


def test_the_parts_of_the_records_are_those_of_the_ledger():
    from traceprobe.capture.memory import allocation_log

    assert allocation_log.PARTS == PARTS
