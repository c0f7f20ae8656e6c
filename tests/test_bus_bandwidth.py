"""Large collectives beside the speed of NVLink."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import traceprobe
from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Message, Process, Script

MB = 10**6
H200 = 450  # GB/s in one direction


def ranks(
    busbw_gbps, *, size=32 * MB, gpu="NVIDIA H200", devices=(0, 1), wait_ns=0, times=4, channels=0
):
    """Two ranks whose all-reduces have this bus bandwidth; the first waits for the second."""
    lasts = round(size / busbw_gbps)  # for two ranks, the bus bandwidth is bytes over time
    pitch = times * (lasts + wait_ns) + 200_000
    for n, device in enumerate(devices):
        script = Script(Process(1_000 + n, rank=n, devices=(gpu,) * 2), world_size=2)
        for k in range(6):
            at = k * pitch
            script.range(f"step {k}", at, at + pitch - 1_000)
            script.op("kernel", at + 100, at + 100_000, (at + 10, at + 20), device=device)
            for i in range(times):
                end = at + 100_000 + (i + 1) * (lasts + wait_ns)
                begin = end - lasts - (wait_ns if n == 0 else 0)
                script.op(
                    *("comm", begin, end, (at + 30 + 10 * i, at + 35 + 10 * i)),
                    device=device,
                    stream=COMM_STREAM,
                    bytes=size,
                    blocks=channels,
                    message=Message(elements_in=size // 4, elements_out=size // 4),
                )
        yield script.build()


def analyze(scenarios, *, sms=None, **capture):
    traces = [memory.trace(s, **capture) for s in scenarios]
    traces = [
        replace(t, devices=tuple(replace(d, multiprocessors=sms) for d in t.devices))
        for t in traces
    ]
    return traceprobe.analyze(traces)


def finding(report):
    return next(f for f in report.findings if f.id == "bus-bandwidth")


def test_all_reduces_through_sockets_are_found():
    found = finding(analyze(ranks(3)))
    assert found.status == "fail"
    assert found.evidence[0] == "all-reduce at 0.7 % of NVLink: 3.0 of 450 GB/s of bus bandwidth"
    assert found.evidence[1] == "most of it in messages of 32.0 MB"
    assert "NCCL_DEBUG=INFO" in found.advice
    transfer = 4 * 32 / 3
    assert found.saving_ms_per_step == pytest.approx(transfer * (1 - 3 / H200), rel=1e-3)
    # Nothing reaches the speed of the links; half of it is usual.
    played = found.evidence[-1].partition("; that leaves ")[0]
    assert played.endswith(f"communication {H200 / 2 / 3:.0f}× as fast")


def test_one_channel_is_named_before_the_transport():
    found = finding(analyze(ranks(15, channels=1), sms=132))
    assert "NCCL drives them with 1 channel" in found.evidence
    assert found.advice.startswith("NCCL may drive the links with one channel alone")
    more = finding(analyze(ranks(15, channels=8), sms=132))
    assert "NCCL drives them with 8 channels" in more.evidence
    assert more.advice.startswith("NCCL is not using NVLink")
    unknown = finding(analyze(ranks(15, channels=8)))  # so many for each multiprocessor
    assert "channel" not in " ".join(unknown.evidence)


@pytest.mark.parametrize(("busbw", "status"), [(60, "fail"), (75, "pass"), (350, "pass")])
def test_what_no_other_link_reaches_goes_over_nvlink(busbw, status):
    found = finding(analyze(ranks(busbw)))
    assert found.status == status
    assert (found.saving_ms_per_step is not None) == (status == "fail")


def test_waiting_for_a_late_rank_is_no_low_bandwidth():
    assert finding(analyze(ranks(350, wait_ns=2_000_000))).status == "pass"


def test_small_messages_say_nothing_of_the_links():
    found = finding(analyze(ranks(3, size=4 * MB)))
    assert found.status == "not-applicable"


def test_one_rank_alone_says_nothing_of_them_either():
    one, _ = ranks(3)
    assert finding(analyze([one])).status == "not-applicable"


@pytest.mark.parametrize("gpu", ["NVIDIA L4", "NVIDIA GeForce RTX 4090", "some GPU"])
def test_devices_without_nvlink_have_nothing_to_reach(gpu):
    assert finding(analyze(ranks(3, gpu=gpu))).status == "not-applicable"


def test_ranks_that_may_be_on_several_machines_are_not_judged():
    found = finding(analyze(ranks(3, devices=(0, 0))))
    assert found.status == "not-applicable"
    assert "several machines" in found.evidence[0]


@pytest.mark.parametrize(("joined", "status"), [(["NV18"], "fail"), (["PHB"], "not-applicable")])
def test_a_recording_knows_how_its_gpus_are_joined(joined, status):
    recorded = {"hardware": {"links": joined}}
    assert finding(analyze(ranks(3), traceprobe=recorded)).status == status
    # Where nvidia-smi does not tell, which is so on some virtual machines, nothing is known.
    unknown = {"hardware": {"links": [None]}}
    assert finding(analyze(ranks(3), traceprobe=unknown)).status == "fail"
