"""The model of more ranks: formulas by hand, links found again, and what it does not know."""

from __future__ import annotations

import pytest

from tests.rendering import points_of
from tests.scaling_runs import message, run_of
from traceprobe.compare.extrapolate import Nodes, Sized, Unpredictable, predict
from traceprobe.compare.scaling import scale
from traceprobe.render.document import Chart
from traceprobe.render.pages.scaling import document
from traceprobe.verdict.allreduce import Links, Message, better, cost, fit

MB = 1_000_000
SIZES = [4 * MB, 60 * MB, 130 * MB]
GRADIENTS = 467_908_116
"""Bytes of a U-Net of 117 million parameters."""


def links(algorithm="ring", gbps=250.0, latency_us=10.0):
    return Links(algorithm, gbps, latency_us, 0.0, (2, 4), True)


def transfers(wires, *ranks):
    return [message(wires, n, size) for n in ranks for size in SIZES]


@pytest.mark.parametrize(
    ("ranks", "gbps", "ms"), [(4, 200, 3.51), (8, 230, 3.56), (8, 25, 32.8), (128, 25, 37.1)]
)
def test_a_ring_by_hand(ranks, gbps, ms):
    wires = links(gbps=gbps, latency_us=0)
    assert wires.ms("all_reduce", GRADIENTS, ranks) == pytest.approx(ms, abs=0.05)


@pytest.mark.parametrize(
    ("operation", "algorithm", "expected"),
    [
        ("all_reduce", "ring", (1.75, 14)),
        ("all_reduce", "tree", (2, 6)),
        ("all_gather", "ring", (0.875, 7)),
        ("reduce_scatter", "tree", (0.875, 7)),
        ("broadcast", "ring", (1, 7)),
    ],
)
def test_volume_and_hops_among_eight_ranks(operation, algorithm, expected):
    assert cost(operation, 8, algorithm) == expected
    assert cost(operation, 1, algorithm) == (0, 0)


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_links_are_found_again(algorithm):
    wires = links(algorithm)
    found = {name: fit(transfers(wires, 2, 4), name) for name in ("ring", "tree")}
    assert found[algorithm].gbps == pytest.approx(250)
    assert found[algorithm].latency_us == pytest.approx(10)
    assert found[algorithm].error == pytest.approx(0, abs=1e-9)
    assert better(found["ring"], found["tree"]) == algorithm


def test_one_number_of_ranks_cannot_tell_a_tree_from_a_ring():
    found = [fit(transfers(links("tree"), 4), name) for name in ("ring", "tree")]
    assert found[0].error == pytest.approx(found[1].error, abs=1e-9)
    assert better(*found) == "ring"


def test_one_size_cannot_tell_latency():
    found = fit([message(links(), 2, 100 * MB)], "ring")
    assert not found.latency_known
    assert found.latency_us == 0
    assert found.ms("all_reduce", 100 * MB, 2) == pytest.approx(
        links().ms("all_reduce", 100 * MB, 2)
    )


def test_what_takes_long_counts_most():
    """One message at 100 GB/s, and 16 times the time of it at 50; alike they would give 83."""
    odd = [
        Message("all_reduce", 100 * MB, 2, 1.0, 1, 1),
        Message("all_reduce", 90 * MB, 2, 1.8, 9, 1),
    ]
    assert fit(odd, "ring").gbps == pytest.approx(55.5, abs=0.1)


def test_every_number_of_ranks_counts_alike():
    """Links of 100 GB/s among two ranks and of 50 among four, where there is less to send."""
    runs = [Message("all_reduce", 100 * MB, n, ms, k, 1) for n, ms, k in ((2, 1, 10), (4, 3, 1))]
    assert fit(runs, "ring").gbps == pytest.approx(83.3, abs=0.1)


def test_latency_is_never_below_nothing():
    shrinking = [Message("all_reduce", s, 2, ms, 1, 1) for s, ms in ((MB, 1), (100 * MB, 200))]
    assert fit(shrinking, "ring").latency_us == 0


def test_nothing_to_fit():
    assert fit([], "ring") is None
    assert fit([Message("all_reduce", MB, 1, 1.0, 1, 1)], "ring") is None


def sized(ranks, wires, *, room=0.0, exposed=None, scaling=90.0, constant=10.0, count=1):
    """A run all of whose transfers, or `exposed` ms of them, are exposed."""
    messages = [message(wires, ranks, size, count) for size in SIZES]
    transfer = sum(m.total_ms for m in messages)
    return Sized(
        world_size=ranks,
        work=64,
        scaling_ms=scaling,
        constant_ms=constant,
        exposed_ms=transfer if exposed is None else exposed,
        transfer_ms=transfer,
        messages=messages,
        room_ms=room,
    )


def test_the_model_is_the_measurement_at_the_anchor():
    run = sized(4, links(), room=50, exposed=0.3)
    found = predict([run], 4, 64, Nodes(), "ring")
    assert found.step_ms == pytest.approx(run.step_ms)
    assert found.transfer_ms == pytest.approx(run.transfer_ms)


def test_exposed_transfers_grow_by_the_formula():
    found = predict([sized(2, links())], 8, 64, Nodes(), "ring")
    expected = sum(m.ms for m in transfers(links(), 8))
    assert found.transfer_ms == pytest.approx(expected)
    assert found.step_ms == pytest.approx(100 + expected)


def test_hidden_transfers_stay_hidden_as_far_as_there_is_room():
    run = sized(2, links(), room=60, exposed=0.0)
    assert predict([run], 8, 64, Nodes(), "ring").step_ms == pytest.approx(100)
    # Three messages: the first is ready after a third of the pass, two thirds can hide.
    crowded = sized(2, links(), room=1.5, exposed=0.0)
    found = predict([crowded], 8, 64, Nodes(), "ring")
    assert found.exposed_ms == pytest.approx(found.transfer_ms - 1.0)


def test_strong_scaling_shrinks_computation_and_room_only():
    found = predict([sized(2, links(), room=60, exposed=0.0)], 4, 32, Nodes(), "ring")
    assert found.step_ms == pytest.approx(90 / 2 + 10)


def test_strong_scaling_shrinks_the_room_too():
    run = sized(2, links(), room=2.4, exposed=0.0)
    assert predict([run], 4, 64, Nodes(), "ring").exposed_ms == pytest.approx(0)
    # Of 2.4 ms the first third is no room, and of half the work it is half of the rest.
    found = predict([run], 4, 32, Nodes(), "ring")
    assert found.transfer_ms < 1.6
    assert found.exposed_ms == pytest.approx(found.transfer_ms - 0.8)


def test_sizes_ahead_share_the_work_of_strong_scaling():
    wide = {"forward": 20, "backward": 60, "optimizer": 20}
    half = {name: ms // 2 for name, ms in wide.items()}
    found = scale([run_of(1, samples=64, **wide), run_of(2, samples=64, host=4, **half)], to=[4])
    assert found.mode == "strong"
    # Ranks that exchange nothing: half the computation, as much host as before.
    assert found.predictions[0].step_ms == pytest.approx(29, abs=1e-3)
    assert found.predictions[0].efficiency == pytest.approx(25 / 29, abs=1e-4)
    assert found.predictions[0].per_second == pytest.approx(64e3 / 29, rel=1e-4)


def test_the_nearest_run_is_the_one_to_start_from():
    runs = [sized(2, links(), constant=10), sized(8, links(), constant=40)]
    rest = [
        predict(runs, n, 64, Nodes(), "ring").step_ms
        - predict(runs, n, 64, Nodes(), "ring").exposed_ms
        for n in (3, 6, 16)
    ]
    assert rest == pytest.approx([100, 130, 130])


def test_nodes_end_what_can_be_said():
    run = sized(4, links())
    with pytest.raises(Unpredictable, match="--inter-node-gbps"):
        predict([run], 16, 64, Nodes(8), "ring")
    assert predict([run], 8, 64, Nodes(8), "ring").step_ms > run.step_ms
    found = predict([run], 16, 64, Nodes(8, 25.0), "ring")
    fast = predict([run], 16, 64, Nodes(8, 1000.0), "ring")
    assert fast.transfer_ms == pytest.approx(sum(m.ms for m in transfers(links(), 16)))
    slow = links(gbps=25.0)
    assert found.transfer_ms == pytest.approx(sum(m.ms for m in transfers(slow, 16)))


def test_runs_on_several_nodes_tell_of_several_nodes():
    slow = links(gbps=20.0, latency_us=30.0)
    runs = [sized(4, links()), sized(16, slow)]
    found = predict(runs, 32, 64, Nodes(8), "ring")
    assert found.transfer_ms == pytest.approx(sum(m.ms for m in transfers(slow, 32)))


def test_one_rank_alone_tells_nothing():
    alone = Sized(1, 64, 90, 10, 0, 0, [], 60)
    with pytest.raises(Unpredictable, match="one rank alone"):
        predict([alone], 2, 64, Nodes(), "ring")


def test_ranks_that_do_not_communicate_scale():
    apart = Sized(2, 64, 90, 10, 0, 0.0, [], 60)
    assert predict([apart], 8, 64, Nodes(), "ring").step_ms == 100


def test_unknown_messages_are_not_guessed():
    whole = sized(2, links())
    partly = Sized(2, 64, 90, 10, 1, 2 * (whole.transfer_ms or 0), whole.messages, 60)
    with pytest.raises(Unpredictable, match="sizes of messages of 2"):
        predict([partly], 4, 64, Nodes(), "ring")


def runs_of(wires, *sizes, unit=100):
    """Runs whose exposed transfer is whole ms, of one message a step as the wires carry it."""
    found = [run_of(1)]
    for n in sizes:
        ms = wires.ms("all_reduce", unit * MB, n)
        assert ms == pytest.approx(round(ms))
        found.append(
            run_of(n, transfer=round(ms), messages=[Message("all_reduce", unit * MB, n, ms, 1, 1)])
        )
    return found


SLOW = Links("ring", 0.025, 0.0, 0.0, (), False)
"""100 MB take 4 s among two ranks, 6 s among four and 7 s among eight."""


def test_held_out_runs_are_predicted_by_what_made_them():
    found = scale(runs_of(SLOW, 2, 4, 8))
    made = [(h.prediction.world_size, h.prediction.sources) for h in found.held_out]
    assert made == [
        (2, [1]),
        (2, [1, 4, 8]),
        (4, [1, 2]),
        (4, [1, 2, 8]),
        (8, [1, 2, 4]),
    ]
    assert found.held_out[0].error is None
    assert "one rank alone" in found.held_out[0].prediction.reason
    assert [h.error for h in found.held_out[1:]] == pytest.approx([0] * 4, abs=1e-5)
    assert [h.transfer_error for h in found.held_out[1:]] == pytest.approx([0] * 4, abs=1e-5)


def test_links_and_sizes_ahead_are_in_the_record():
    found = scale(runs_of(SLOW, 2, 4))
    ring = next(f for f in found.fits if f.chosen)
    assert (ring.algorithm, ring.world_sizes, ring.latency_us) == ("ring", [2, 4], None)
    assert ring.gbps == pytest.approx(0.025)
    assert [p.world_size for p in found.predictions] == [8, 16, 32]
    assert found.predictions[0].step_ms == pytest.approx(100 + 7000, rel=1e-5)
    assert found.predictions[0].low_ms < found.predictions[0].high_ms
    assert found.predictions[0].per_second == pytest.approx(8 * 64e3 / 7100, rel=1e-5)
    assert "nodes-unknown" in [c.code for c in found.cautions]


def test_the_model_is_drawn_dashed():
    blocks = document(scale(runs_of(SLOW, 2, 4))).sections[0].blocks
    rates, efficiencies = (block for block in blocks if isinstance(block, Chart))
    for chart in (rates, efficiencies):
        kinds = dict(zip(*(chart.data["points"][key] for key in ("name", "kind")), strict=True))
        lines = points_of(chart)
        assert list(lines) == ["measured", "ideal", "predicted from smaller runs", "model"]
        assert [name for name, kind in kinds.items() if kind == "measured"] == ["measured"]
        assert [n for n, _ in lines["model"]] == [4, 8, 16, 32]
        assert lines["model"][0] == lines["measured"][-1]
        held_out = lines["predicted from smaller runs"]
        assert [n for n, _ in held_out] == [1, 4]
        assert held_out[1][1] == pytest.approx(lines["measured"][2][1], rel=1e-4)


def test_an_error_is_reported_not_hidden():
    wrong = runs_of(SLOW, 2)
    wrong.append(
        run_of(4, transfer=5000, messages=[Message("all_reduce", 100 * MB, 4, 5000, 1, 1)])
    )
    held = scale(wrong).held_out[-1]
    assert held.prediction.sources == [1, 2]
    assert held.prediction.step_ms == pytest.approx(6100, rel=1e-5)
    assert held.error == pytest.approx(6100 / 5100 - 1, abs=1e-4)
    assert any("19.6 % of the step" in text for text in scale(wrong).explanation)


def test_sizes_ahead_are_those_asked_for():
    found = scale(runs_of(SLOW, 2, 4), to=[12, 6, 12, 4], nodes=Nodes(8))
    assert [(p.world_size, p.reason is None) for p in found.predictions] == [(6, True), (12, False)]
    page = document(found)
    texts = " ".join(text for section in page.sections for text in section.text)
    assert "12 ranks cannot be predicted from 1, 2, 4" in texts


def test_only_the_last_pass_of_an_accumulating_step_hides_communication():
    """Two messages: half of a backward pass of 60 ms can hide them, or of a quarter of it."""
    messages = [Message("all_reduce", MB, 2, 4.0, 2, 0.0)]
    found = []
    for passes in (1, 4):
        two = run_of(2, hidden=8.0, messages=messages, settings={"accumulate": passes})
        found.append(scale([run_of(1), two], to=[64]).predictions[0])
    grown = 8 * 2 * 63 / 64
    assert [p.transfer_ms for p in found] == pytest.approx([grown, grown])
    # 7.5 ms would be room enough for less than what two ranks hid.
    assert [p.exposed_ms for p in found] == pytest.approx([0, grown - 8])
