"""What to do first, by verdict and findings."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests import records
from tests.analyses import SAMPLES, report_of
from tests.report_factory import make_report
from traceprobe.findings import RULES
from traceprobe.findings.first_fixes import SUBJECTS, first_fixes
from traceprobe.records.report import Finding
from traceprobe.verdict.finding_order import in_order


def finding(name, saving=None, *classes, status="warn"):
    """A finding that asks for a change."""
    return Finding(
        id=name,
        status=status,
        title=name,
        saving_ms_per_step=saving,
        saving_of=list(classes) or UNSET,
        evidence=[],
        advice=f"mend {name}",
    )


LOADER = finding("data-wait", 20.0, "idle_data_wait", status="fail")
COPIES = finding("h2d-pageable", 3.0, "h2d")
PRECISION = finding("lower-precision", 50.0, "matmul_fp32", "layout", "other")
TF32 = finding("tf32-off", 40.0, "matmul_fp32")
HOST = finding("host-overhead", 30.0, "idle_host", "idle_latency")
SMALL = finding("small-kernels", 30.0, "idle_host", "idle_latency")
OPTIMIZER = finding("optimizer-launches", 8.0, "optimizer", "idle_host")
SKEW = finding("communication-skew", 15.0, "communication")
MISSING = finding("gpu-rows-missing", status="fail")
DRAINED = finding("prefetch-drained")


def fixes(*findings, bound="io", shares=None, skew=UNSET, secondary=None, most=3, run=None):
    report = make_report("io")
    shares = shares or {"io": 0.4, "overhead": 0.3, "compute": 0.3}
    every = dict.fromkeys(("io", "communication", "overhead", "compute", "other"), 0.0)
    verdict = replace(
        report.verdict, bound=bound, shares={**every, **shares}, skew=skew, secondary=secondary
    )
    report = replace(report, verdict=verdict, findings=list(findings), run=run)
    return [fix.id for fix in first_fixes(report, most)]


def test_what_bounds_the_run_comes_first_and_the_rest_by_saving():
    assert fixes(COPIES, HOST, PRECISION, LOADER) == [
        "data-wait",
        "lower-precision",
        "host-overhead",
    ]
    assert fixes(COPIES, HOST, PRECISION, LOADER, bound="compute") == [
        *("lower-precision", "host-overhead", "data-wait")
    ]
    assert fixes(COPIES, PRECISION, LOADER, most=1) == ["data-wait"]


def test_what_some_iterations_do_more_is_part_of_any_bound():
    long = finding("long-iterations", 60.0)
    assert fixes(LOADER, PRECISION, long)[0] == "long-iterations"
    assert fixes(LOADER, replace(long, saving_ms_per_step=10.0))[0] == "data-wait"
    assert fixes(LOADER, replace(long, saving_ms_per_step=None)) == ["data-wait"]  # it was once


def test_of_two_causes_the_larger_saving_comes_first():
    assert fixes(LOADER, HOST, PRECISION, bound="mixed", secondary="io+overhead") == [
        *("host-overhead", "lower-precision", "data-wait")
    ]


@pytest.mark.parametrize(("cause", "first"), [("overhead", SKEW.id), ("compute", HOST.id)])
def test_waiting_for_late_ranks_is_about_what_makes_them_late(cause, first):
    run = records.run(skew_ns=60 * records.MS, skew_causes={cause: 0.9, "other": 0.1})
    waits = replace(SKEW, saving_ms_per_step=60.0)
    assert fixes(HOST, waits, bound="overhead", run=run)[0] == first


@pytest.mark.parametrize(("gain", "first"), [(5.0, "host-overhead"), (10.0, "synchronization")])
def test_what_the_program_does_comes_before_what_is_left_of_the_same_time(gain, first):
    waits = finding("synchronization", gain, "idle_sync", "idle_host")
    assert fixes(HOST, waits, bound="overhead")[0] == first
    ordered = in_order([replace(HOST, status="fail"), waits])
    assert ordered[0].id == first


@pytest.mark.parametrize(("gain", "first"), [(19.0, "data-wait"), (17.0, "communication-skew")])
def test_a_loader_that_makes_a_rank_late_comes_before_the_waiting_for_it(gain, first):
    waits = replace(SKEW, saving_ms_per_step=20.0, status="fail")
    loader = replace(LOADER, saving_ms_per_step=gain, status="fail")
    assert in_order([waits, loader])[0].id == first


def test_without_a_fix_of_the_bound_the_largest_saving_comes_first():
    assert fixes(HOST, PRECISION) == ["lower-precision", "host-overhead"]


@pytest.mark.parametrize("status", ["pass", "not-applicable", "inconclusive"])
def test_what_asks_for_nothing_is_no_fix(status):
    assert fixes(replace(LOADER, status=status)) == []
    assert fixes(replace(LOADER, status=status), COPIES) == ["h2d-pageable"]


def test_what_the_verdict_holds_to_be_negligible_is_no_fix():
    shares = {"io": 0.02, "overhead": 0.03, "compute": 0.95}
    found = fixes(LOADER, HOST, OPTIMIZER, PRECISION, bound="compute", shares=shares)
    assert found == ["lower-precision", "optimizer-launches"]  # an optimizer is computation, too


def test_waiting_for_ranks_counts_although_the_verdict_has_it_by_its_causes():
    assert fixes(LOADER, SKEW) == ["data-wait"]
    assert fixes(LOADER, SKEW, skew=0.2) == ["data-wait", "communication-skew"]


def test_one_saving_is_promised_once():
    assert fixes(HOST, SMALL) == ["host-overhead"]
    assert fixes(PRECISION, TF32) == ["lower-precision", "tf32-off"]  # savings of their own
    assert len(fixes(HOST, replace(LOADER, saving_ms_per_step=30.0))) == 2  # of other time


def test_without_savings_the_bound_still_comes_first():
    skew, loader, other = (
        replace(f, saving_ms_per_step=None, saving_of=UNSET) for f in (SKEW, LOADER, PRECISION)
    )
    assert fixes(other, skew, loader, skew=0.3)[0] == "data-wait"
    assert fixes(DRAINED, PRECISION) == ["prefetch-drained", "lower-precision"]
    assert fixes(other, finding("phase-attribution")) == ["lower-precision"]
    assert fixes(finding("phase-attribution")) == []  # it is about the capture, not the run


def test_an_inconclusive_verdict_is_mended_first():
    assert fixes(HOST, MISSING, bound="inconclusive") == ["gpu-rows-missing", "host-overhead"]
    loader = replace(LOADER, saving_ms_per_step=None, saving_of=UNSET)
    assert fixes(loader, bound="inconclusive") == []  # nothing says that it matters


def test_subjects_are_rules():
    assert set(SUBJECTS) <= set(RULES)


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.name)
def test_a_report_begins_with_what_its_page_says_to_do_first(file):
    report = report_of(file)
    first = first_fixes(report)
    assert report.findings[: len(first)] == first
