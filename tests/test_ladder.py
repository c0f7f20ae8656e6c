"""A chain of runs: gains multiply, noise is called noise, the last rung says what is next."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.observed_runs import calibrated, run_of_classes
from tests.report_factory import make_report
from traceprobe.compare.ladder import ladder
from traceprobe.records.ladder import Ladder, Missing
from traceprobe.render import document_of
from traceprobe.render.document import Table


def tables(document, section):
    """The tables of a section."""
    (found,) = (one for one in document.sections if one.id == section)
    return [block for block in found.blocks if isinstance(block, Table)]


def settings(**named):
    return {"name": "toy", "settings": named, "samples_per_step": named.get("batch", 8)}


def chain():
    return [
        run_of_classes(
            {"forward": 10, "backward": 30}, label="a", workload=settings(precision="fp32")
        ),
        run_of_classes(
            {"forward": 5, "backward": 15}, label="b", workload=settings(precision="bf16")
        ),
        run_of_classes(
            {"forward": 5, "backward": 15}, label="c", workload=settings(precision="bf16", x=1)
        ),
    ]


def test_gains_multiply_and_the_change_is_told_by_the_settings():
    found = ladder(chain())
    assert [rung.change for rung in found.rungs[:2]] == ["start", "precision fp32 → bf16"]
    assert found.rungs[1].speedup == pytest.approx(2, rel=0.02)
    product = np.prod([rung.speedup for rung in found.rungs[1:]])
    assert found.rungs[-1].total_speedup == pytest.approx(product, abs=2e-4)
    assert [change.name for change in found.rungs[1].classes] == ["backward", "forward"]
    assert "the largest gain is precision fp32 → bf16" in found.headline


def test_a_gain_within_the_noise_is_called_that():
    document = document_of(ladder(chain()))
    (table,) = tables(document, "rungs")
    assert [row[2] for row in table.rows] == ["—", "2×", "noise"]


def test_the_headline_names_what_gained_and_what_lost():
    runs = [
        run_of_classes({"forward": ms}, label=name) for name, ms in (("a", 10), ("b", 5), ("c", 8))
    ]
    found = ladder(runs, ["", "half", "worse"])
    assert "the largest gain is half (2× faster)" in found.headline
    assert "the largest loss is worse (60 % slower)" in found.headline
    assert "most" not in ladder(runs[1:], ["", "worse"]).headline


def test_rungs_of_which_some_are_calibrated_are_all_told_as_traced():
    runs = chain()
    mixed = ladder([calibrated(runs[0], 12.0), *runs[1:]])
    assert [r.run.basis for r in mixed.rungs] == ["traced"] * 3
    assert mixed.rungs[1].speedup == ladder(runs).rungs[1].speedup
    told = [[c.code for c in r.cautions if c.code == "different-bases"] for r in mixed.rungs]
    assert told == [[], ["different-bases"], ["different-bases"]]


def test_words_of_the_caller_go_first_and_missing_rungs_are_told():
    lost = Missing(label="d", change="8 GPUs", reason="there are 4")
    found = ladder(chain(), ["fp32", "half", "nothing"], [lost], "mine")
    assert [rung.change for rung in found.rungs] == ["fp32", "half", "nothing"]
    assert "there are 4" in found.to_markdown()
    assert document_of(found).title == "mine: 2× faster after 2 changes"


def test_bigger_batches_are_compared_by_sample():
    runs = [
        run_of_classes({"forward": 10}, label="a", workload=settings(batch=8)),
        run_of_classes({"forward": 15}, label="b", workload=settings(batch=16)),
    ]
    found = ladder(runs)
    assert found.per == "sample"
    assert found.rungs[1].speedup == pytest.approx((16 / 15) / (8 / 10), rel=0.02)


def test_a_rung_of_unknown_batches_leaves_steps_to_all():
    known, unknown = settings(batch=64), {"name": "toy"}
    fast = run_of_classes({"forward": 10}, label="a", workload=unknown)
    slow = run_of_classes({"forward": 80}, label="b", workload=known)
    for chain, said in (([fast, slow], "8× slower"), ([slow, fast], "8× faster")):
        found = ladder(chain)
        assert found.per == "step"
        assert said in found.headline
        assert document_of(found).title == f"{said} after 1 change"


def test_known_batches_that_differ_beside_unknown_ones_are_cautioned():
    runs = [
        run_of_classes({"forward": 10}, label="a", workload=settings(batch=8)),
        run_of_classes({"forward": 15}, label="b", workload=settings(batch=16)),
        run_of_classes({"forward": 15}, label="c", workload={"name": "toy"}),
    ]
    found = ladder(runs)
    assert found.per == "step"
    assert found.rungs[1].speedup == pytest.approx(10 / 15, rel=0.02)
    assert "different-batches" in [c.code for c in found.rungs[1].cautions]
    assert "different-batches" not in [c.code for c in found.rungs[2].cautions]


def test_the_step_without_a_profiler_counts():
    before, after, _ = chain()
    found = ladder([calibrated(before, 30.0), calibrated(after, 10.0)])
    assert found.rungs[1].speedup == 3
    assert found.rungs[1].step.delta == pytest.approx(10 - 30)


def test_suggestions_are_the_last_rungs_findings_with_what_they_allow():
    report = make_report("io")
    last = run_of_classes({"forward": 10}, label="b")
    last = type(last)("b", report, last.step_ms, last.classes)
    found = ladder([run_of_classes({"forward": 20}, label="a"), last])
    wanted = [f for f in report.findings if f.status in ("fail", "warn") and f.saving_ms_per_step]
    assert found.suggestions
    assert {s.finding for s in found.suggestions} <= {f.id for f in wanted}
    first = found.suggestions[0]
    effect = report.quality.observer_effect
    whole = effect.unprofiled_step_ms if effect else report.ranks[0].summary.step_ms.mean
    assert first.speedup == pytest.approx(whole / (whole - first.saving_ms_per_step), abs=1e-3)
    none = replace(report, findings=[f for f in report.findings if f not in wanted])
    bare = type(last)("b", none, last.step_ms, last.classes)
    assert ladder([bare]).suggestions == []


def test_a_ladder_comes_back_from_its_json():
    from traceprobe.records.kinds import read

    found = ladder(chain())
    assert isinstance(read(found.to_json()), Ladder)
    assert read(found.to_json()).to_json() == found.to_json()
