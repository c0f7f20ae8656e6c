"""What a rank that the others wait for computes more of."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests import records
from tests.records import MS, STEPS, host
from traceprobe.findings.more_computing import more_computing


def rank(number, *, computes, kernels=100.0, blocks=9_000.0, stage=UNSET, kind="gpu"):
    """A rank with its work in a step: ms of computing, kernels and their thread blocks."""
    waits = replace(records.communication(10), stage_wait_ns=stage)
    found = records.rank(
        {"forward": computes},
        number,
        communication=waits,
        host=host(kernels_per_step=kernels, blocks_per_step=blocks),
    )
    return replace(found, device=replace(found.device, kind=kind))


def told(late, **usual):
    others = [rank(number, computes=20, **usual) for number in (0, 2)]
    found = more_computing(late, others)
    return None if found is None else f"{found.told} | {found.advice}"


@pytest.mark.parametrize(
    ("more", "expected", "advice"),
    [
        ({"kernels": 130.0}, "130 kernels a step, the others with 100", "what it alone does"),
        ({"blocks": 13_500.0}, "1.50 times as many thread blocks", "batches of the size"),
        ({}, "as many kernels and thread blocks as the others, 1.50 times as long", "its GPU"),
    ],
    ids=["more kernels", "more data", "slower"],
)
def test_more_kernels_more_data_and_a_slower_gpu_are_told_apart(more, expected, advice):
    found = told(rank(1, computes=30, **more))
    assert expected in found
    assert advice in found


def test_stages_of_a_pipeline_differ_by_design():
    found = told(rank(1, computes=30, kernels=130.0, stage=0), stage=5 * MS * STEPS)
    assert found.startswith("its stage of the pipeline computes 30.0 ms a step, the others 20.0 ms")
    assert "move layers" in found


@pytest.mark.parametrize(
    "late",
    [
        rank(1, computes=21, kernels=104.0, blocks=9_400.0),
        rank(1, computes=21, stage=0),
        rank(1, computes=30, blocks=UNSET),
        rank(1, computes=30, kernels=80.0),
        rank(1, computes=30, kind="cpu"),
    ],
    ids=["hardly more", "even stages", "unknown grids", "fewer kernels", "no gpu"],
)
def test_what_does_not_tell_says_nothing(late):
    assert told(late) is None


def test_one_rank_alone_has_no_others():
    assert more_computing(rank(0, computes=20), []) is None
