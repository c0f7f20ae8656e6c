"""What is kept of each rank until all are read."""

from __future__ import annotations

from msgspec import UNSET

from tests.conftest import ROOT
from traceprobe.options import Options
from traceprobe.pipeline.merge import merge
from traceprobe.pipeline.packed_part import packed, unpacked
from traceprobe.pipeline.trace_part import Lost, read_part

PAIR = [ROOT / "sample_traces" / f"profile_wide_mlp.rank{n}.json.gz" for n in (0, 1)]
MOST_BYTES = 32_000
"""Of a packed rank of this run; its files have 100,000."""


def test_a_rank_that_waits_for_others_is_small():
    assert all(len(packed(read_part(path, Options()))) < MOST_BYTES for path in PAIR)


def test_packed_parts_give_the_same_report():
    parts = [*(read_part(path, Options()) for path in PAIR), Lost("rank2", "gone")]
    report = merge(parts, Options())
    waiting = [packed(part) for part in parts]
    assert merge(unpacked(waiting), Options()).to_json() == report.to_json()
    assert not waiting


def test_ranks_have_their_texts_in_common():
    one, other = unpacked([packed(read_part(path, Options())) for path in PAIR])
    names = [part.devices[0].record.summary.top_kernels[0].name for part in (one, other)]
    assert names[0] is names[1]


def test_details_come_back_with_the_report():
    part = read_part(PAIR[0], Options())
    record = part.devices[0].record
    assert (record.gaps, record.replay, record.picture) == ([], UNSET, UNSET)
    (shown,) = merge([part], Options()).ranks
    assert shown.gaps
    assert shown.summary.operators
    assert UNSET not in (shown.replay, shown.picture)
