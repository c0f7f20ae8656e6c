"""Tables of records: they are what the documentation says, and they add up to the record."""

from __future__ import annotations

import re

import pytest

from tests.cli_runner import LOOP, write_trace
from tests.conftest import ROOT
from tests.every_record import every_record
from tests.lazy import Lazy
from traceprobe.errors import UsageError

pl = Lazy("polars")
frames = Lazy("traceprobe.records.frames")
taxonomy = Lazy("traceprobe.model.taxonomy")
traceprobe = Lazy("traceprobe")

PAGE = (ROOT / "docs" / "frames.md").read_text(encoding="utf-8")
TYPES = {"str": "String", "int": "Int64", "float": "Float64", "bool": "Boolean"}


def documented(part):
    """Frames of a part of the page, each with its columns and their types in order."""
    text = PAGE.partition(f"## Of a {part}")[2].partition("\n## Of a c")[0]
    found = {}
    for name, body in re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", text, re.M | re.S):
        rows = re.findall(r"^\| (`[^|]*`) \| ([^|]+) \| \S.*\|$", body, re.M)
        found[name] = [(c, kind) for cell, kind in rows for c in re.findall(r"`(\w+)`", cell)]
    return found


def written(kind):
    return {name: [*frame.columns.items()] for name, frame in frames.FRAMES[kind].items()}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = write_trace(tmp_path_factory.mktemp("frames") / "run.json")
    return traceprobe.analyze(traceprobe.load(path))


@pytest.fixture(scope="module")
def real():
    ranks = [ROOT / "sample_traces" / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)]
    return traceprobe.analyze([traceprobe.load(path) for path in ranks])


def test_every_frame_and_column_is_documented():
    records = every_record()
    assert documented("report, by rank") | documented("report, as a whole") == written(
        type(records["report"])
    )
    assert documented("comparison") == written(type(records["comparison"]))


@pytest.mark.parametrize("kind", ["report", "run", "comparison"])
def test_the_columns_are_there_with_and_without_rows(kind):
    record = every_record()[kind]
    for name, columns in written(type(record)).items():
        made = record.frame(name)
        assert made.columns == [column for column, _ in columns], name
        for (_, wanted), dtype in zip(columns, made.dtypes, strict=True):
            inner = TYPES[wanted.rpartition(" ")[2]]
            assert str(dtype) == "List(" * wanted.count("list") + inner + ")" * wanted.count("list")


def test_an_unknown_name_is_answered_with_the_known_ones():
    records = every_record()
    with pytest.raises(UsageError, match=r"'nonsense' here; there are: ranks, iterations, part"):
        records["report"].frame("nonsense")
    with pytest.raises(
        UsageError, match=r"there are: runs, steps, classes, measures, kernels, operators$"
    ):
        records["comparison"].frame("iterations")
    with pytest.raises(UsageError, match="there are: none"):
        records["whatif"].frame("iterations")


@pytest.mark.parametrize("which", ["report", "real"])
def test_iterations_add_up_to_windows_and_totals(which, request):
    report = request.getfixturevalue(which)
    iterations = report.frame("iterations")
    with_window = iterations.filter(pl.col("window_ns").is_not_null())
    parts = with_window.select(pl.sum_horizontal(f"{n}_ns" for n in taxonomy.PARTITION)).to_series()
    assert parts.to_list() == with_window["window_ns"].to_list()
    partition = report.frame("partition")
    for rank in report.ranks:
        of_rank = pl.col("rank") == rank.rank
        used = iterations.filter(of_rank & pl.col("used"))
        total = partition.filter(of_rank)
        assert used["window_ns"].sum() == total["ns"].sum() == rank.summary.window_ns > 0
        assert total["share"].sum() == pytest.approx(1)
        for name, ns, busy in total.select("class", "ns", "busy_ns").iter_rows():
            assert used[f"{name}_ns"].sum() == (ns or 0)
            if name in taxonomy.BUSY:
                assert used[f"busy_{name}_ns"].sum() == (busy or 0)
        row = report.frame("ranks").filter(of_rank).row(0, named=True)
        assert row["window_ns"] == rank.summary.window_ns
        assert row["step_ms_mean"] == rank.summary.step_ms.mean


@pytest.mark.parametrize("which", ["report", "real"])
@pytest.mark.parametrize("level", ["modules", "lines", "operators", "tree"])
def test_owners_add_up_to_the_time_of_their_rank(which, level, request):
    report = request.getfixturevalue(which)
    found = report.frame(level)
    for rank in report.ranks:
        own = found.filter(pl.col("rank") == rank.rank)
        assert own["ns" if level == "tree" else "own_ns"].sum() == rank.summary.window_ns
        if level == "tree":
            assert own.drop("rank").equals(report.tree(rank.rank))


def test_gaps_and_findings_are_those_of_the_record(report):
    gaps, expected = report.frame("gaps"), report.ranks[0].gaps
    assert gaps["ns"].to_list() == [gap.end_ns - gap.start_ns for gap in expected]
    assert gaps["cause"].to_list() == [gap.cause for gap in expected]
    findings = report.frame("findings")
    assert findings["id"].to_list() == [finding.id for finding in report.findings]
    assert findings.filter(id="data-wait")["saving_ms_per_step"][0] > 0
    assert LOOP.expected().shares["io"] == pytest.approx(
        report.frame("partition").filter(counts_as="io")["share"].sum(), abs=1e-5
    )


def test_collectives_of_two_ranks_stand_below_each_other(real):
    found = real.frame("collectives")
    assert found["rank"].unique().sort().to_list() == [0, 1]
    for rank in real.ranks:
        own = found.filter(rank=rank.rank)
        assert own["count"].sum() == sum(group.count for group in rank.summary.collectives)
        assert (own["exposed_ns"] + own["overlapped_ns"] == own["total_ns"]).all()


def test_parts_of_the_memory_add_up_to_its_peak():
    report = every_record()["report"]
    held = report.frame("memory")
    parts = [name for name in held.columns if name.endswith("_bytes") and name != "total_bytes"]
    assert held.select(pl.sum_horizontal(parts)).to_series().equals(held["total_bytes"])
    for kind in ("measured", "predicted"):
        peak = getattr(report.memory, kind).peak_bytes
        assert held.filter(step=kind)["total_bytes"].max() == peak


def test_the_parts_of_the_critical_path_are_the_step(real):
    path = real.frame("critical_path")
    assert path["ms"].sum() == pytest.approx(real.critical_path.step_ms, rel=1e-3)


def test_the_classes_of_a_comparison_add_up_to_the_change_of_the_step():
    comparison = every_record()["comparison"]
    traced = comparison.frame("measures").filter(name="traced_step")
    total = comparison.frame("classes")["delta"].sum()
    assert total == pytest.approx(traced["delta"][0], abs=1e-3)
    assert comparison.frame("runs")["run"].to_list() == ["base", "new"]
    assert comparison.frame("steps").filter(run="new")["ms"].to_list() == comparison.steps_ms[1]


def test_the_examples_of_the_page_run(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    space: dict = {}
    for example in re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M):
        exec(compile(example, "docs/frames.md", "exec"), space)
    assert "idle_data_wait" in capsys.readouterr().out
    assert space["steps"].columns.tolist() == space["iterations"].columns
