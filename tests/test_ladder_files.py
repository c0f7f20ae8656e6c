"""Ladders: the built-in ones make sense on a GPU machine, nonsense is named with file and key."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from msgspec.structs import astuple

from settings import Machine, parse
from tests.conftest import ROOT
from traceprobe.errors import UsageError
from traceprobe.sweep.ladder import find_ladder, read_ladder
from traceprobe.sweep.ladder_bounds import VARIABLES

BUILT_IN = sorted((ROOT / "workloads" / "ladders").glob("*.toml"))
GPU_BYTES = 141 << 30
GOOD = """
name = "mine"
workload = "tiny-mlp"
shared = ["batch-size"]

[settings]
batch-size = 16
fused = true

[[rungs]]
name = "one"
change = "nothing yet"

[[rungs]]
name = "two"
change = "a setting"
set = { precision = "bf16", pin = false }

[[rungs]]
name = "aside"
change = "another, for itself"
set = { precision = "fp32" }
environment = { OMP_NUM_THREADS = "1" }
side = true

[[rungs]]
name = "three"
change = "two ranks"
set = { bucket-cap-mb = 2.5 }
drop = ["fused"]
ranks = 4
environment = { NCCL_P2P_DISABLE = "2" }

[[rungs]]
name = "four"
change = "compiled"
set = { compile = "default" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_rungs_build_on_each_other_and_not_on_side_rungs(tmp_path):
    ladder = read_ladder(written(tmp_path, GOOD))
    assert {rung.name: " ".join(rung.arguments) for rung in ladder.rungs} == {
        "one": "--batch-size=16 --fused",
        "two": "--batch-size=16 --fused --precision=bf16 --no-pin",
        "aside": "--batch-size=16 --fused --precision=fp32 --no-pin",
        "three": "--batch-size=4 --precision=bf16 --no-pin --bucket-cap-mb=2.5",
        "four": "--batch-size=4 --precision=bf16 --no-pin --bucket-cap-mb=2.5 --compile=default",
    }
    assert [rung.base for rung in ladder.rungs] == ["", "one", "two", "two", "three"]
    assert [rung.ranks for rung in ladder.rungs] == [1, 1, 1, 4, 4]
    assert [rung.environment for rung in ladder.rungs] == [
        *({}, {}, {"OMP_NUM_THREADS": "1"}),
        *({"NCCL_P2P_DISABLE": "2"}, {"NCCL_P2P_DISABLE": "2"}),
    ]
    assert astuple(ladder.profile) == (5, 20, 8, "torch")


def test_the_ranks_of_rungs_that_have_several_can_be_chosen(tmp_path):
    ladder = read_ladder(written(tmp_path, GOOD), ranks=8)
    assert [rung.ranks for rung in ladder.rungs] == [1, 1, 1, 8, 8]
    assert ladder.rungs[3].settings["batch-size"] == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("change = ", "chnage = ", "unknown field `chnage` - at `$.rungs[0]`"),
        ('change = "nothing yet"\n', "", "missing required field `change` - at `$.rungs[0]`"),
        ("[settings]", "[setings]", "unknown field `setings`"),
        ('"tiny-mlp"', '"tiny"', "workload: there is none called 'tiny'; one of bert,"),
        ('"tiny-mlp"', "3", "Expected `str`, got `int` - at `$.workload`"),
        ('"two"', '"one"', "rung 'one': name: there is another of that name"),
        ('"two"', '"../two"', "at `$.rungs[1].name`"),
        ('set = { precision = "bf16", pin = false }', "", "rung 'two': changes nothing"),
        ("false", "[1]", "rung 'two': set: pin: must be true, false, a number or a text, not list"),
        ("batch-size = 16", "batch-size = {}", "settings: batch-size: must be"),
        ('["fused"]', '["compile"]', "rung 'three': drop: 'compile' is not set before"),
        ("bucket-cap-mb = 2.5", "fused = true", "rung 'three': drop: 'fused' is also set"),
        ("ranks = 4", "ranks = 0", ">= 1 - at `$.rungs[3].ranks`"),
        ("ranks = 4", "ranks = 3", "rung 'three': batch-size: 16 cannot be shared by 3 ranks"),
        ("16", "true", "rung 'one': batch-size: True cannot be shared by 1 ranks"),
        ('["batch-size"]', '["batch"]', "shared: 'batch' is set nowhere"),
        ('"nothing yet"', '"nothing yet"\nside = true', "rung 'one': side: the first rung"),
        ("[settings]", "[profile]\nactive = 2\n[settings]", "at `$.profile.active`"),
        ("[settings]", '[profile]\nbackend = "x"\n[settings]', "at `$.profile.backend`"),
        ("[[rungs]]", "[[rungs]", "is no ladder: "),
        ("ranks = 4", "ranks = 1025", "<= 1024 - at `$.rungs[3].ranks`"),
        ("[settings]", "[profile]\nwarmup = 1_000_001\n[settings]", "at `$.profile.warmup`"),
        ("[settings]", "[profile]\nactive = 10_001\n[settings]", "at `$.profile.active`"),
        ("16", "9" * 900, "settings: batch-size: must be a number of at most 2^53"),
        ("16", "0x" + "f" * 900, "settings: batch-size: must be a number of at most 2^53"),
        ("bucket-cap-mb = 2.5", "lr = nan", "rung 'three': set: lr: must be a number"),
        ("bucket-cap-mb = 2.5", "lr = -inf", "rung 'three': set: lr: must be a number"),
        ('"bf16"', '"a\\u0000b"', "rung 'two': set: precision: must be a number"),
        ("[settings]", '[settings]\ndata-folder = "/etc"', "give --data-folder after the ladder"),
        ("[settings]", "x = " + "[" * 900 + "\n" + "[" * 900, "is no ladder"),
        ("[settings]", "[" * 1001, "line 6: has more than 1000 bytes"),
        ("[settings]", ".".join(["a"] * 490) + " = 1", "is no ladder"),
        ('OMP_NUM_THREADS = "1"', 'OMP_NUM_THREADS = "a/b"', "OMP_NUM_THREADS: must have at most"),
        ('OMP_NUM_THREADS = "1"', 'OMP_NUM_THREADS = "a\\u0000"', "OMP_NUM_THREADS: must have"),
    ],
)
def test_nonsense_is_named_with_file_and_key(tmp_path, old, new, said):
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(UsageError) as refused:
        read_ladder(path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"),
        *("TRACEPROBE_PLAN", "CUDA_INJECTION64_PATH", "NCCL_DEBUG_FILE", "NCCL_NET_PLUGIN"),
        *(
            "OMP_TOOL_LIBRARIES",
            "TORCHINDUCTOR_CACHE_DIR",
            "TORCH_TRACE",
            "CXX",
            "",
            "A=B",
            "A\\u0000",
        ),
    ],
)
def test_a_ladder_sets_no_variable_that_could_execute_or_write_anything(tmp_path, name):
    path = written(tmp_path, GOOD.replace("OMP_NUM_THREADS", f'"{name}"'))
    with pytest.raises(UsageError, match=r"rung 'aside': environment: .* set it in your shell"):
        read_ladder(path)


def test_the_variables_that_a_ladder_may_set_are_listed():
    page = (ROOT / "workloads" / "ladders" / "README.md").read_text()
    listed = page.partition("## Variables")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([A-Z0-9_]+)`", listed)) == VARIABLES


def test_a_ladder_is_a_short_file(tmp_path):
    with pytest.raises(UsageError, match="has more than 64 KiB"):
        read_ladder(written(tmp_path, GOOD + "# more\n" * 10_000))
    rungs = "".join(f'[[rungs]]\nname="{n:x}"\nchange=""\n' for n in range(1001))
    with pytest.raises(UsageError, match=r"length <= 1000 - at `\$\.rungs`"):
        read_ladder(written(tmp_path, GOOD.partition("[[rungs]]")[0] + rungs))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\x00", b'name = "a"\nrungs = []'])
def test_what_is_no_ladder_is_refused(tmp_path, content):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no ladder"):
        read_ladder(path)


def test_ladders_are_found_by_name_or_path(tmp_path):
    assert [find_ladder(path.stem) for path in BUILT_IN] == BUILT_IN
    path = written(tmp_path, GOOD)
    assert find_ladder(str(path)) == path
    with pytest.raises(UsageError, match=r"no ladder of that name; name one of gpt2, sc22, tiny"):
        find_ladder("no-such")
    with pytest.raises(UsageError, match="there is no such file"):
        find_ladder(str(tmp_path / "absent.toml"))


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
@pytest.mark.parametrize("ranks", [None, 2, 8])
@pytest.mark.usefixtures("pytorch")
def test_built_in_ladders_suit_their_workload_and_a_machine_with_gpus(path, ranks):
    ladder = read_ladder(path, ranks)
    assert ladder.name == path.stem
    workload = importlib.import_module(ladder.workload.replace("-", "_")).WORKLOAD
    for rung in ladder.rungs:
        machine = Machine(
            cpus=128,
            gpus=8,
            gpu_bytes=GPU_BYTES,
            capability=(9, 0),
            ranks=rung.ranks,
            local_ranks=rung.ranks,
        )
        settings, _ = parse(workload, rung.arguments, machine)
        assert settings.batch_size * rung.ranks >= 8
    if ladder.name == "tiny":
        for rung in ladder.rungs:
            machine = Machine(cpus=2, ranks=rung.ranks, local_ranks=rung.ranks)
            parse(workload, rung.arguments, machine)


def test_the_sc22_ladder_is_the_chain_of_the_tutorial():
    rungs = read_ladder(find_ladder("sc22")).rungs
    assert [rung.settings["workers"] for rung in rungs[:5]] == [2, 4, 8, 16, 16]
    assert [rung.name for rung in rungs if rung.side] == ["fp32", "cuda-graphs"]
    assert [rung.settings["precision"] for rung in rungs[5:8]] == ["tf32", "fp32", "fp16"]
    assert [rung.ranks for rung in rungs] == [1] * (len(rungs) - 2) + [4, 4]
    assert [rung.settings["batch-size"] for rung in rungs[-3:]] == [64, 16, 16]


def test_the_gpt2_ladder_keeps_its_tokens_per_update():
    rungs = read_ladder(find_ladder("gpt2")).rungs
    last = rungs[-2:]
    assert [rung.ranks for rung in last] == [1, 4]
    for rung in last:
        micro = rung.settings["batch-size"] // rung.settings["accumulate"]
        assert micro == 16
        assert rung.settings["batch-size"] * rung.ranks * 1024 == 524_288
