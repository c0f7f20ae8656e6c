"""The classes of time: stated once, complete, each with a label and a colour."""

from __future__ import annotations

from itertools import chain

from traceprobe.model import taxonomy
from traceprobe.model.codes import Kind
from traceprobe.render import colours
from traceprobe.timeline.partition import TRANSFER_KINDS


def test_every_class_counts_for_one_share():
    members = list(chain.from_iterable(taxonomy.SHARE_CLASSES.values()))
    assert sorted(members) == sorted(taxonomy.PARTITION)
    assert set(taxonomy.SKEW_CAUSES) < set(taxonomy.SHARES)


def test_every_kind_of_op_but_kernels_is_one_transfer():
    kinds = list(chain.from_iterable(TRANSFER_KINDS.values()))
    assert tuple(TRANSFER_KINDS) == taxonomy.TRANSFERS
    assert sorted(kinds) == sorted(set(Kind) - {Kind.KERNEL})


def test_everything_has_a_label_and_a_colour():
    for names, *tables in (
        (taxonomy.PARTITION, taxonomy.CLASS_LABELS, taxonomy.BUSY_LABELS, colours.CLASS_COLOURS),
        (taxonomy.SHARES, taxonomy.SHARE_LABELS, taxonomy.SHARE_MEANINGS, colours.SHARE_COLOURS),
        (taxonomy.LOSSES, taxonomy.LOSS_LABELS, colours.LOSS_COLOURS),
        (taxonomy.STATUS_LABELS, colours.STATUS_SHAPES),
    ):
        for table in tables:
            assert tuple(table) == tuple(names)
