"""DDP's all-reduces per step: predicted from the parameters, counted in a real two-rank trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import traceprobe
from tests.lazy import Lazy

pytestmark = pytest.mark.usefixtures("pytorch")
harness = Lazy("harness")
torch = Lazy("torch")
unet = Lazy("unet")


def wrapped(cap_mb, by_default):
    """A model with the two attributes of DDP that decide its buckets."""
    with torch.device("meta"):
        model = unet.UNet(unet.SIZES["full"])
    model.bucket_bytes_cap = cap_mb << 20
    model.bucket_bytes_cap_default = by_default
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cap_mb", "by_default", "expected"),
    [(25, True, 8), (100, True, 5), (1000, False, 1)],
)
def test_the_full_unet_is_reduced_in_as_many_calls_as_were_measured(cap_mb, by_default, expected):
    assert harness.all_reduces(wrapped(cap_mb, by_default)) == expected


@pytest.mark.slow
def test_a_two_rank_trace_shows_the_predicted_number(tmp_path):
    arguments = ["--warmup", "2", "--calibrate", "2", "--active", "4", "--nproc-per-node", "2"]
    subprocess.run(
        [
            *(sys.executable, "-m", "traceprobe", "profile", "--workload", "wide-mlp"),
            *("--size", "tiny", "-q", "-o", str(tmp_path / "out"), *arguments),
        ],
        check=True,
        timeout=240,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    sidecar = json.loads((tmp_path / "out" / "rank0.traceprobe.json").read_text())
    predicted = sidecar["workload"]["predicted_all_reduces_per_step"]
    report = traceprobe.analyze(traceprobe.load(tmp_path / "out" / "rank0.json.gz"))
    counted = {i.collectives for i in report.ranks[0].iterations if i.used}
    assert counted == {predicted}
