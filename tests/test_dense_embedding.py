"""Tables of embeddings whose dense gradients are updated row by row, used or not."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.evidence import evidence, finding_of
from tests.report_factory import MS
from traceprobe.findings.rule import RULES
from traceprobe.model.operands import Operand
from traceprobe.records.embedding_table import EmbeddingTable
from traceprobe.records.operator_calls import OperatorPace
from traceprobe.timeline.embedding_tables import embedding_tables

ROWS, WIDTH, USED, STEPS = 1_000_000, 64, 5_000, 3
TABLE, IDS, LOOKED_UP = (ROWS, WIDTH), (100, 50), (100, 50, WIDTH)
LINEAR = (WIDTH, 512)
LOOKUP, DENSE = ("aten::embedding", TABLE, IDS), ("aten::embedding_dense_backward", LOOKED_UP, IDS)
GRADIENTS = [("torch::autograd::AccumulateGrad", shape) for shape in (TABLE, LINEAR)]
PRODUCT = ("aten::mm", (100, WIDTH), LINEAR)
USUAL = [LOOKUP, DENSE, *GRADIENTS, PRODUCT]


def found(calls, steps=STEPS):
    """Tables of operators that are called in each step: names and shapes of their tensors."""
    names = sorted({name for name, *_ in calls})
    operands = [
        (*(Operand("float", (shape,)) for shape in shapes), Operand("Scalar"))
        for _, *shapes in calls
    ]
    columns = {
        "name": [names.index(name) for name, *_ in calls] * steps,
        "operands": [*range(len(calls))] * steps,
    }
    return embedding_tables(pl.DataFrame(columns), names, operands)


def test_a_table_that_only_lookups_read_is_known_by_its_shape():
    (table,) = found(USUAL)
    assert (table.rows, table.width, table.tables) == (ROWS, WIDTH, 1)
    assert table.looked_up == USED
    assert table.part == pytest.approx(ROWS / (ROWS + 512))


@pytest.mark.parametrize(
    "calls",
    [
        [LOOKUP, *GRADIENTS, PRODUCT],
        [LOOKUP, DENSE, GRADIENTS[1], PRODUCT],
        [*USUAL, ("aten::linear", (100, WIDTH), TABLE)],
        [*USUAL, ("aten::mm", (100, WIDTH), TABLE[::-1])],
        [LOOKUP, ("aten::embedding_dense_backward", (5, 8), (5,)), *GRADIENTS, PRODUCT],
        [
            ("aten::embedding", (ROWS, 1, WIDTH), IDS),
            DENSE,
            ("torch::autograd::AccumulateGrad", (ROWS, 1, WIDTH)),
        ],
        [],
    ],
    ids=[
        *("its gradient is sparse", "it is frozen", "tied", "tied, turned"),
        *("that of another is dense", "no table", "no operator"),
    ],
)
def test_other_tables_are_none(calls):
    assert found(calls) == []


def test_bags_of_rows_are_lookups_and_the_largest_table_comes_first():
    small = (10_000, WIDTH)
    calls = [
        ("aten::_embedding_bag", small, IDS),
        ("aten::_embedding_bag_dense_backward", LOOKED_UP, IDS),
        ("torch::autograd::AccumulateGrad", small),
        *USUAL,
    ]
    assert [table.rows for table in found(calls)] == [ROWS, 10_000]


def test_a_trace_with_shapes_tells_it(tmp_path):
    script = Script()
    for step in range(4):
        t = MS * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 999_000)
        with_times = [*enumerate([LOOKUP, PRODUCT, DENSE, *GRADIENTS])]
        for number, (name, *shapes) in with_times:
            at = t + 50_000 * (number + 1)
            types = {"Input Dims": [list(s) for s in shapes], "Input type": ["float"] * len(shapes)}
            script.operator(name, at, at + 9_000, operands=types)
            script.op("kernel", at + 10_000, at + 20_000, (at + 1_000, at + 2_000))
        script.range("Optimizer.step#Adagrad.step", t + 500_000, t + 600_000)
        script.op("kernel", t + 520_000, t + 900_000, (t + 510_000, t + 512_000))
    report = traceprobe.analyze(traceprobe.load(kineto.write(script.build(), tmp_path / "a.json")))
    (table,) = report.ranks[0].summary.embedding_tables
    assert (table.rows, table.width, table.looked_up) == (ROWS, WIDTH, USED)
    finding = next(f for f in report.findings if f.id == "dense-embedding")
    assert finding.saving_ms_per_step == pytest.approx(0.38 * 0.995, rel=0.01)


def test_a_parameter_that_is_seldom_used_does_not_multiply_tables():
    seldom = ("torch::autograd::AccumulateGrad", (3, 3))
    names = [*(each for each in USUAL for _ in range(8)), seldom]
    (table,) = found([*names, *[("torch::autograd::AccumulateGrad", (7,))] * 8])
    assert table.tables == 1


def test_a_table_of_a_product_of_batches_is_tied_too():
    assert found([*USUAL, ("aten::bmm", (1, 100, WIDTH), (1, *TABLE[::-1]))]) == []


def test_tables_of_one_shape_are_counted():
    calls = [*(each for each in USUAL for _ in range(3) if each[1] != LINEAR), GRADIENTS[1]]
    (table,) = found(calls)
    assert (table.tables, table.looked_up) == (3, USED)


def test_where_no_shapes_are_recorded_nothing_is_known():
    operators = pl.DataFrame({"name": [0], "operands": [-1]})
    assert embedding_tables(operators, ["aten::embedding"], [()]) == []
    assert embedding_tables(operators, ["aten::embedding"], []) == []


def rank(tables=1, looked_up=20_000.0, ms=40):
    """One whose optimizer takes so long of steps of 100 ms, nearly all of it for tables."""
    made = records.rank({"idle_host": 60 - ms, "forward": 40, "optimizer": ms})
    table = EmbeddingTable(rows=ROWS, width=WIDTH, tables=tables, looked_up=looked_up, part=0.999)
    return replace(made, summary=replace(made.summary, embedding_tables=[table]))


def test_what_goes_to_rows_that_no_lookup_used_can_be_saved():
    finding = finding_of("dense-embedding", rank())
    assert finding.status == "warn"
    assert finding.saving_ms_per_step == pytest.approx(40 * 0.999 * 0.98)
    assert "1 table with dense gradients, the largest of 1,000,000 rows" in finding.evidence[1]
    assert "sparse=True" in finding.advice


def test_filling_gradients_with_zeros_is_needless_too():
    made = records.rank({"idle_host": 20, "backward": 40, "optimizer": 40})
    tables = rank().summary.embedding_tables
    seen = evidence(replace(made, summary=replace(made.summary, embedding_tables=tables)))
    filling = {"aten::fill_": OperatorPace(1.0, 9.0, 1.0, 10.0)}
    finding, changes = RULES["dense-embedding"].examine(replace(seen, called=lambda: filling))
    assert finding.saving_ms_per_step == pytest.approx(50 * 0.999 * 0.98)
    assert changes.speedup["backward"] == pytest.approx(40 / (40 - 10 * 0.979), rel=0.01)


@pytest.mark.parametrize(
    ("tables", "sparse"), [(1, True), (12, True), (13, False)], ids=lambda value: str(value)
)
def test_many_tables_would_merge_rows_for_longer_than_they_save(tables, sparse):
    changes = RULES["dense-embedding"].examine(evidence(rank(tables)))[1]
    assert (changes is not None) is sparse
    assert ("sparse=True" in finding_of("dense-embedding", rank(tables)).advice) is sparse


@pytest.mark.parametrize(("name", "other"), [("Adagrad", False), ("SGD", False), ("AdamW", True)])
def test_only_some_optimizers_take_sparse_gradients(name, other):
    advice = finding_of("dense-embedding", records.with_optimizer(rank(), name)).advice
    assert ("SparseAdam" in advice) is other


def test_ranks_share_a_table_and_what_they_look_up():
    made = [rank(looked_up=0.03 * ROWS), replace(rank(looked_up=0.03 * ROWS), rank=1)]
    two = finding_of("dense-embedding", *made, together=records.run(world_size=2))
    assert two.status == "warn"
    assert "TorchRec" in two.advice
    four = finding_of("dense-embedding", *made, together=records.run(world_size=4))
    assert four.status == "not-applicable"


def test_what_micro_batches_look_up_counts_together():
    made = rank(looked_up=0.03 * ROWS)
    assert finding_of("dense-embedding", made).status == "warn"
    made = replace(made, summary=replace(made.summary, micro_batches=4))
    assert finding_of("dense-embedding", made).status == "not-applicable"


@pytest.mark.parametrize(("ms", "status"), [(6, "warn"), (5, "pass")])
def test_little_time_needs_no_change(ms, status):
    assert finding_of("dense-embedding", rank(ms=ms)).status == status


def test_rows_that_are_mostly_used_are_updated_rightly():
    assert finding_of("dense-embedding", rank(looked_up=0.11 * ROWS)).status == "not-applicable"
    assert finding_of("dense-embedding", records.rank({"forward": 100})).status == "not-applicable"
