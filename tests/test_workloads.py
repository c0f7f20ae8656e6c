"""The workloads: the models that they claim to be, honest data, and that each of them trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.lazy import Lazy

pytestmark = pytest.mark.usefixtures("pytorch")
bert = Lazy("bert")
data = Lazy("data")
gpt2 = Lazy("gpt2")
harness = Lazy("harness")
pointwise = Lazy("pointwise")
resnet50 = Lazy("resnet50")
settings = Lazy("settings")
tiny_mlp = Lazy("tiny_mlp")
torch = Lazy("torch")
unet = Lazy("unet")
volume = Lazy("volume")
wide_mlp = Lazy("wide_mlp")
SCRIPTS = (unet, gpt2, bert, resnet50, wide_mlp, tiny_mlp, pointwise)
SIDE, CUBE, BLOCK = 24, 8, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Generated data, shared by the runs of this module."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def raw(folder):
    """A small box on disk."""
    path = folder / "box.npy"
    data.write_once(path, lambda file: volume.write_raw(file, SIDE, 0))
    return path


@pytest.fixture(scope="module")
def cubes(raw):
    """Samples of that box."""
    return unet.Cubes(volume.RawBox(raw), unet.Size(8, 3, CUBE, SIDE), 1, 0)


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Call a workload's `main` on the CPU, whatever the machine has; exit code and output."""
    machine = settings.Machine(cpus=2)
    monkeypatch.setattr(settings.Machine, "here", classmethod(lambda cls: machine))

    def call(script, *arguments):
        monkeypatch.setattr("sys.argv", ["script", "--data-folder", str(folder), *arguments])
        try:
            script.main()
            code = 0
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def started(folder, script, *arguments, launcher=()):
    """A workload as a process of its own."""
    path = ROOT / "workloads" / f"{script}.py"
    return subprocess.run(
        [sys.executable, *launcher, str(path), "--data-folder", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )


def parameters(model):
    return sum(p.numel() for p in model.parameters())


# The models


def tokens(length):
    return torch.zeros(1, length, dtype=torch.int64)


MODELS = {
    "unet": (
        lambda: unet.UNet(unet.SIZES["full"]),
        lambda model: torch.nn.functional.l1_loss(
            model(torch.empty(1, 4, 64, 64, 64)), torch.empty(1, 5, 64, 64, 64)
        ),
        116_977_029,
        80.464,
    ),
    "gpt2": (
        lambda: gpt2.GPT2(gpt2.SIZES["full"]),
        lambda model: torch.nn.functional.cross_entropy(
            model(tokens(1024)).flatten(0, 1), tokens(1024)[0]
        ),
        124_439_808,
        874.9,
    ),
    "bert": (
        lambda: bert.BERT(bert.SIZES["full"]),
        lambda model: torch.nn.functional.cross_entropy(
            model(tokens(512)).flatten(0, 1), tokens(512)[0]
        ),
        335_174_458,
        1104.26,
    ),
    "resnet50": (
        lambda: resnet50.ResNet(resnet50.SIZES["full"]),
        lambda model: (
            torch.nn.functional.cross_entropy(model(torch.empty(2, 3, 224, 224)), tokens(2)[0]) / 2
        ),
        25_557_032,
        2 * 24.299,  # of the two images without which the last normalisation has no variance
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_full_model_has_the_parameters_and_the_flop_of_its_paper(name):
    from torch.utils.flop_counter import FlopCounterMode

    build, loss, count, gigaflop = MODELS[name]
    with torch.device("meta"):
        model = build()
        with FlopCounterMode(display=False) as counter:
            loss(model).backward()
    assert parameters(model) == count
    assert counter.get_total_flops() / 1e9 == pytest.approx(gigaflop, rel=1e-3)


def test_wide_mlp_has_a_billion_parameters():
    with torch.device("meta"):
        assert parameters(wide_mlp.build(wide_mlp.WIDTH["full"])) == 4 * (16384**2 + 16384)


# The data


def test_a_file_is_the_same_every_time(raw, tmp_path):
    again = tmp_path / "again.npy"
    data.write_once(again, lambda file: volume.write_raw(file, SIDE, 0))
    assert again.read_bytes() == raw.read_bytes()
    other = tmp_path / "other.npy"
    data.write_once(other, lambda file: volume.write_raw(file, SIDE, 1))
    assert other.read_bytes() != raw.read_bytes()


def test_a_file_is_made_once(raw):
    data.write_once(raw, lambda file: pytest.fail("made again"))


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    def fills_the_disk(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        data.write_once(tmp_path / "new" / "box.npy", fills_the_disk)
    assert list((tmp_path / "new").iterdir()) == []


def test_the_box_holds_inputs_and_targets_that_depend_on_them(raw):
    box = np.load(raw)
    assert box.shape == (9, SIDE, SIDE, SIDE)
    assert box.dtype == np.float32
    assert np.abs(box[4:]).max() <= 1
    linear = np.abs(box[4:]).max(axis=0) < 0.9  # where tanh can be undone
    inputs, mixed = box[:4, linear].T, np.arctanh(box[4:, linear]).T
    mixture = np.linalg.lstsq(inputs, mixed)[0]
    assert np.abs(inputs @ mixture - mixed).max() < 1e-4


def test_compressed_blocks_give_the_same_cubes(raw, tmp_path):
    path = tmp_path / "blocks"
    data.write_once(path, lambda file: volume.write_blocks(file, raw, BLOCK))
    plain, packed = volume.RawBox(raw), volume.CompressedBox(path, SIDE, BLOCK)
    for corner in ((0, 0, 0), (16, 16, 16), (3, 8, 13), (5, 16, 0)):
        assert np.array_equal(plain.cut(corner, CUBE), packed.cut(corner, CUBE))


def test_the_rotations_are_the_24_proper_ones():
    matrices = set()
    for order, directions in volume.ROTATIONS:
        matrix = np.diag(directions) @ np.eye(3, dtype=int)[list(order)]
        assert round(np.linalg.det(matrix)) == 1
        matrices.add(matrix.tobytes())
    assert len(matrices) == len(volume.ROTATIONS) == 24


def test_a_rotation_turns_all_channels_alike_and_copies():
    cube = np.arange(2 * 27, dtype=np.float32).reshape(2, 3, 3, 3)
    turned = [volume.rotate(cube, turn) for turn in range(24)]
    assert len({t.tobytes() for t in turned}) == 24
    for t in turned:
        assert t.flags.c_contiguous
        assert not np.shares_memory(t, cube)
        assert np.array_equal(t[1] - t[0], np.full((3, 3, 3), 27))
        assert t[0, 1, 1, 1] == cube[0, 1, 1, 1]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("storage", ["raw", "zlib"])
def test_turning_a_batch_on_the_device_gives_the_samples_of_the_loader(
    raw, tmp_path, passes, storage
):
    box = volume.RawBox(raw)
    if storage == "zlib":
        data.write_once(tmp_path / "box", lambda file: volume.write_blocks(file, raw, BLOCK))
        box = volume.CompressedBox(tmp_path / "box", SIDE, BLOCK)
    size = unet.Size(8, 3, CUBE, SIDE)

    def batch(**options):
        drawn = unet.Cubes(box, size, passes, 7, **options)
        return torch.utils.data.default_collate([drawn[number] for number in range(40)])

    turned = volume.Rotations(CUBE, torch.device("cpu"))(*batch(raw=True))
    assert torch.equal(turned, torch.cat(batch(), dim=1))
    assert not torch.equal(turned, batch(raw=True)[0])


def test_raw_cubes_are_not_copied_out_of_the_file_one_by_one(raw):
    drawn = unet.Cubes(volume.RawBox(raw), unet.Size(8, 3, CUBE, SIDE), 1, 0, raw=True)
    cube, turns = drawn[0]
    assert cube.stride() == (SIDE**3, SIDE**2, SIDE, 1)
    assert turns.tolist() == [int(turns)]


def test_what_is_written_to_a_mapped_file_stays_out_of_it(raw):
    before = raw.read_bytes()
    data.open_array(raw)[:] = 0
    assert raw.read_bytes() == before


def test_samples_are_drawn_from_the_seed_and_never_twice(raw, cubes):
    first = [cubes[number][0] for number in range(20)]
    again = [cubes[number][0] for number in range(20)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({t.numpy().tobytes() for t in first}) == 20
    other = unet.Cubes(volume.RawBox(raw), unet.Size(8, 3, CUBE, SIDE), 1, seed=1)
    assert not torch.equal(other[0][0], first[0])


def test_epochs_and_ranks_have_samples_of_their_own():
    ranks = [data.Numbers(rank, 2) for rank in range(2)]
    drawn = [next(iter(r)) for _epoch in range(3) for r in ranks]
    assert drawn == [0, 1, 2, 3, 4, 5]


def test_workers_draw_what_the_process_itself_draws(cubes):
    def batches(workers):
        numbers = data.Numbers(0, 1)
        loader = torch.utils.data.DataLoader(cubes, 2, sampler=numbers, num_workers=workers)
        return [batch[0] for batch, _ in zip(loader, range(4), strict=False)]

    alone, shared = batches(0), batches(2)
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))
    assert len({t.numpy().tobytes() for t in shared}) == 4


# The runs


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_it_trains(script, run):
    code, out, _ = run(script, "--size", "tiny", "--steps", "3")
    assert code == 0
    assert re.fullmatch(
        rf"{script.WORKLOAD.name}: 3 steps of \d+ samples, [\d.]+ ms each, [\d.,]+ samples/s, "
        r"loss \d+\.\d+ \(tiny, cpu, fp32, [\d,]+ parameters\)\n",
        out,
    )


def test_it_learns(run):
    first, last = (
        float(re.search(r"loss ([\d.]+)", run(gpt2, "--steps", steps)[1])[1])
        for steps in ("1", "20")
    )
    assert last < 0.95 * first


@pytest.mark.parametrize("script", [unet, resnet50], ids=lambda script: script.__name__)
def test_training_in_another_layout_is_the_same_training(script, run):
    losses = [
        float(re.search(r"loss ([\d.]+)", run(script, "--steps", "2", *more)[1])[1])
        for more in ((), ("--memory-format", "channels_last"))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_batches_and_weights_are_in_the_layout_that_is_asked_for():
    chosen, machine = settings.parse(
        unet.WORKLOAD, ["--memory-format", "channels_last"], settings.Machine(cpus=1)
    )
    run = harness.Run(chosen, machine)
    model = run.prepare(unet.UNet(unet.SIZES["tiny"]))
    (batch,) = run.to_device((torch.zeros(2, 4, 16, 16, 16),))
    layout = torch.channels_last_3d
    assert batch.is_contiguous(memory_format=layout)
    weights = [p for p in model.parameters() if p.dim() == 5]
    assert all(weight.is_contiguous(memory_format=layout) for weight in weights)


def test_training_on_cubes_turned_on_the_device_is_the_same_training(run, monkeypatch):
    monkeypatch.setattr("settings._problems_without_gpu", lambda s: ())  # the CPU can do it too
    losses = [
        re.search(r"loss ([\d.]+)", run(unet, "--steps", "3", *more)[1])[1]
        for more in (("--augment-on", "gpu"), (), ("--augment-passes", "0"))
    ]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.slow
def test_a_script_runs_by_its_path_with_many_settings(folder):
    data_settings = "--storage zlib --workers 1 --augment-passes 2 --inject 1"
    compute_settings = "--precision bf16 --accumulate 2 --item-every 1 --fused"
    done = started(folder, "unet", "--steps", "3", *f"{data_settings} {compute_settings}".split())
    assert done.returncode == 0, done.stderr
    assert "bf16" in done.stdout
    assert "artificial delay of 1 ms a sample" in done.stdout
    assert list(folder.glob("unet-box48-seed0-zlib*"))


@pytest.mark.slow
def test_two_ranks_train_together(folder):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    arguments = ("--steps", "3", "--accumulate", "2", "--no-broadcast-buffers")
    done = started(folder, "resnet50", *arguments, launcher=launcher)
    assert done.returncode == 0, done.stderr
    assert "3 steps of 8 samples on each of 2 ranks" in done.stdout
    assert "Warning" not in done.stderr


def test_a_bad_setting_ends_it_before_any_work(folder, run):
    before = sorted(folder.iterdir())
    assert run(unet, "--cuda-graphs") == (
        2,
        "",
        "unet: error: --cuda-graphs needs a CUDA GPU; none is visible\n",
    )
    assert sorted(folder.iterdir()) == before


def test_a_batch_that_fits_nowhere_is_explained(run):
    code, out, err = run(wide_mlp, "--batch-size", str(10**12))
    assert (code, out) == (2, "")
    assert re.fullmatch(r"wide-mlp: error: out of host memory with --batch-size.*\n", err)


def test_data_that_cannot_be_kept_are_explained(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run(tiny_mlp, "--data-folder", str(tmp_path / "file" / "data"))
    assert (code, out) == (2, "")
    assert err.startswith("tiny-mlp: error: ")
    assert err.count("\n") == 1
