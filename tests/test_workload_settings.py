"""The settings of the workloads: defaults by hardware, what makes no sense. Needs no PyTorch."""

from __future__ import annotations

import pytest

from settings import SPECIAL, Machine, Workload, parse

ALL = Workload("all", {"tiny": 4, "small": 8, "full": 64}, accepts=frozenset(SPECIAL), buffers=True)
PLAIN = Workload("plain", {"tiny": 4, "small": 8, "full": 64})
CPU = Machine(cpus=2)
H200 = Machine(cpus=16, gpus=1, gpu_bytes=150 << 30, capability=(9, 0))
V100 = Machine(cpus=8, gpus=1, gpu_bytes=16 << 30, capability=(7, 0))
TWO_GPUS = Machine(cpus=32, gpus=2, gpu_bytes=150 << 30, capability=(9, 0), ranks=2, local_ranks=2)


@pytest.mark.parametrize(
    ("machine", "size", "batch", "workers", "pin", "precision"),
    [
        (CPU, "tiny", 4, 0, False, "fp32"),
        (V100, "small", 8, 7, True, "fp32"),
        (H200, "full", 64, 8, True, "tf32"),
    ],
)
def test_defaults_follow_the_hardware(machine, size, batch, workers, pin, precision):
    s, _ = parse(ALL, [], machine)
    assert (s.size, s.batch_size, s.workers, s.pin) == (size, batch, workers, pin)
    assert s.precision == precision


def test_data_lie_in_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert parse(ALL, [], CPU)[0].data_folder == tmp_path / "traceprobe"


def test_a_recording_keeps_every_setting_but_the_folder(tmp_path):
    facts = parse(ALL, ["--data-folder", str(tmp_path), "--inject", "2"], CPU)[0].facts()
    assert facts["inject"] == 2
    assert str(tmp_path) not in str(facts)


@pytest.mark.parametrize(
    ("workload", "machine", "arguments", "reason"),
    [
        (ALL, CPU, "--cuda-graphs", "needs a CUDA GPU"),
        (ALL, CPU, "--pin", "needs a CUDA GPU"),
        (ALL, CPU, "--precision fp16", "needs a CUDA GPU"),
        (ALL, CPU, "--precision tf32", "needs a CUDA GPU"),
        (ALL, CPU, "--augment-on gpu", "needs a CUDA GPU"),
        (ALL, H200, "--augment-on gpu --augment-passes 0", "--augment-passes 0"),
        (PLAIN, H200, "--augment-on gpu", "means nothing for plain"),
        (ALL, V100, "--precision bf16", "8.0"),
        (ALL, H200, "--sdpa flash", "bf16 or fp16"),
        (ALL, H200, "--cuda-graphs --accumulate 2", "--accumulate"),
        (ALL, H200, "--cuda-graphs --compile default", "--compile"),
        (PLAIN, H200, "--cuda-graphs", "means nothing for plain"),
        (PLAIN, CPU, "--vocab 10", "means nothing for plain"),
        (PLAIN, CPU, "--sdpa math", "means nothing for plain"),
        (PLAIN, CPU, "--memory-format channels_last", "means nothing for plain"),
        (PLAIN, CPU, "--storage zlib", "means nothing for plain"),
        (PLAIN, CPU, "--augment-passes 0", "means nothing for plain"),
        (PLAIN, TWO_GPUS, "--broadcast-buffers", "has no buffers"),
        (ALL, CPU, "--no-ddp", "several ranks"),
        (ALL, CPU, "--bucket-cap-mb 25", "several ranks"),
        (ALL, CPU, "--no-broadcast-buffers", "several ranks"),
        (ALL, TWO_GPUS, "--no-ddp --bucket-cap-mb 25", "contradicts"),
        (ALL, Machine(gpus=1, ranks=2, local_rank=1, local_ranks=2), "", "visible GPU"),
        (ALL, CPU, "--batch-size 3 --accumulate 2", "cannot be split"),
        (ALL, CPU, "--batch-size 0", "--batch-size"),
        (ALL, CPU, "--bucket-cap-mb nan", "--bucket-cap-mb"),
        (ALL, CPU, "--inject -1", "--inject"),
        (ALL, CPU, "--workers 0 --prefetch-factor 2", "--prefetch-factor"),
        (ALL, CPU, "--data cached-host --workers 2 --prefetch-factor 2", "--prefetch-factor"),
        (ALL, CPU, "--fused --foreach", "not allowed"),
        (ALL, CPU, "--batch 4", "unrecognized"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(
    workload, machine, arguments, reason, capsys
):
    with pytest.raises(SystemExit) as ended:
        parse(workload, arguments.split(), machine)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{workload.name}: error: ")
    assert said.count("\n") == 1
    assert reason in said


@pytest.mark.parametrize(
    ("machine", "arguments"),
    [
        (CPU, "--precision bf16 --sdpa flash --fused --inject 0 --no-pin"),
        (CPU, "--data cached-device --accumulate 4 --augment-passes 0"),
        (CPU, "--memory-format channels_last"),
        (H200, "--cuda-graphs --precision fp16 --no-foreach --workers 0"),
        (H200, "--precision bf16 --sdpa flash --vocab 50304 --compile max-autotune"),
        (H200, "--augment-on gpu --augment-passes 2 --data cached-device"),
        (TWO_GPUS, "--bucket-cap-mb 100 --no-broadcast-buffers --precision tf32"),
    ],
)
def test_what_makes_sense_is_taken(machine, arguments):
    parse(ALL, arguments.split(), machine)
