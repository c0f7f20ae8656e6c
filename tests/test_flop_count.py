"""What a step computes and moves, counted: held against formulas that are derived by hand."""

from __future__ import annotations

import pytest

from tests.lazy import Lazy
from traceprobe.capture import flop_count, work
from traceprobe.capture.machine.tf32 import tf32_allowed

pytestmark = pytest.mark.usefixtures("pytorch")
bert = Lazy("bert")
gpt2 = Lazy("gpt2")
resnet50 = Lazy("resnet50")
torch = Lazy("torch")
nn = Lazy("torch.nn")
transformer = Lazy("transformer")
unet = Lazy("unet")


def tokens(*shape):
    return torch.empty(shape, dtype=torch.int64, device="meta")


def total(found, phase, key="flops"):
    return sum(found["work"][phase][key].values())


# Models, by hand


def unet_flops(size):
    """Of a sample: 2 · 4³ · in · out for each voxel that the kernel is laid on."""
    widths = [min(size.width << level, 8 * size.width) for level in range(size.levels)]
    down = [
        2 * 64 * i * o * (size.cube >> (level + 1)) ** 3
        for level, (i, o) in enumerate(zip([4, *widths], widths, strict=False))
    ]
    up = []
    for level in range(size.levels):
        i = widths[level] * (1 if level == size.levels - 1 else 2)
        o = widths[level - 1] if level else 5
        up.append(2 * 64 * i * o * (size.cube >> (level + 1)) ** 3)
    return 3 * sum(down + up) - down[0]  # nobody needs the gradient of the input


def resnet_flops(model, side):
    """Of an image: 2 · k² · in · out for each pixel of an output, and the last layer."""
    seen = []
    hooks = [
        m.register_forward_hook(lambda m, _, out: seen.append((m, out.shape)))
        for m in model.modules()
        if isinstance(m, (nn.Conv2d, nn.Linear))
    ]
    with torch.no_grad():
        model.to("meta")(torch.empty(2, 3, side, side, device="meta"))
    for hook in hooks:
        hook.remove()
    layers = [
        2 * layer.weight.numel() * (shape[2] * shape[3] if len(shape) == 4 else 1)
        for layer, shape in seen
    ]
    return 3 * sum(layers) - layers[0]


def transformer_flops(size, head):
    """Of a sample: twice each weight and token, and T² · d for either product of attention."""
    weights = size.layers * 12 * size.width**2 + head
    attention = size.layers * 2 * size.length * size.width
    return 3 * 2 * size.length * (weights + attention)


def small():
    return transformer.Size(512, 64, 2, 64, 2)


@pytest.mark.slow
def test_convolutions_of_the_unet_are_counted():
    size = unet.SIZES["full"]
    with torch.device("meta"):
        model = unet.UNet(size)
    shapes = [(channels, *[size.cube] * 3) for channels in (4, 5)]
    found = work(model, unet.loss_of, *(torch.empty(2, *s, device="meta") for s in shapes))
    assert found["flops_per_step"] == 2 * unet_flops(size)
    assert unet_flops(size) / 1e9 == pytest.approx(80.464, abs=5e-4)


def test_convolutions_of_resnet_50_are_counted():
    model = resnet50.ResNet(resnet50.SIZES["full"])
    by_hand = resnet_flops(model, 224)
    found = work(model, resnet50.loss_of, torch.empty(2, 3, 224, 224), tokens(2))
    assert found["flops_per_step"] == 2 * by_hand
    assert by_hand / 1e9 == pytest.approx(24.299, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_matrices_and_attention_of_transformers_are_counted(name):
    module = {"gpt2": gpt2, "bert": bert}[name]
    size = module.SIZES["full"]
    with torch.device("meta"):
        model = (gpt2.GPT2 if name == "gpt2" else bert.BERT)(size)
    ids = tokens(1, size.length)
    found = work(model, module.loss_of, ids, ids)["flops_per_step"]
    head = size.width * size.vocab + (size.width**2 if name == "bert" else 0)
    assert found == transformer_flops(size, head)
    assert found / 1e9 == pytest.approx({"gpt2": 874.945, "bert": 1104.257}[name], abs=5e-3)
    # The formula counts biases and norms too, which are not multiplied: less than 0.2 %.
    by_formula = transformer.flops_by_formula(size, model)
    assert found < by_formula < 1.002 * found


# Phases, precision, bytes


def two_layers(width=64):
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False))


def loss(model, rows):
    return model(rows).sum()


def test_operations_and_bytes_of_a_step_by_hand():
    found = work(two_layers(), loss, torch.empty(32, 64))["work"]
    product, matrix, rows = 2 * 32 * 64 * 64, 4 * 64 * 64, 4 * 32 * 64
    assert found["forward"]["flops"] == {"fp32": 2 * product}
    assert found["backward"]["flops"] == {"fp32": 3 * product}  # nobody needs that of the input
    assert found["forward"]["matrix_bytes"] == 2 * (matrix + 2 * rows)
    # The sum reads the rows and writes a number; its gradient of 1 is another.
    assert found["forward"]["bytes"] == found["forward"]["matrix_bytes"] + rows + 4 + 4
    # The gradient of the sum is one number, expanded: a product reads it as such.
    assert found["backward"]["matrix_bytes"] == (4 + rows + matrix) + (4 + matrix + rows) + (
        2 * rows + matrix
    )
    nothing = {"flops": {}, "model_flops": {}, "least_flops": {}}
    assert found["recompute"] == {**nothing, "bytes": 0, "matrix_bytes": 0}


def test_further_micro_batches_add_to_gradients_that_are_there():
    once = work(two_layers(), loss, torch.empty(32, 64))
    thrice = work(two_layers(), loss, torch.empty(32, 64), micro_batches=3)
    assert thrice["flops_per_step"] == 3 * once["flops_per_step"]
    both = 2 * 4 * 64 * 64
    more = thrice["work"]["backward"]["bytes"] - 3 * once["work"]["backward"]["bytes"]
    assert more == 2 * 3 * both  # two times: read two, write one


def test_recomputed_operations_are_the_hardwares_not_the_models():
    size = small()
    ids = tokens(2, size.length)
    plain = work(gpt2.GPT2(size), gpt2.loss_of, ids, ids)
    again = work(gpt2.GPT2(size, recompute=True), gpt2.loss_of, ids, ids)
    assert again["flops_per_step"] == plain["flops_per_step"]
    assert total(plain, "recompute") == 0
    head = 2 * 2 * size.length * size.width * size.vocab
    # All layers once more, but for what comes after the last value that the backward pass needs.
    assert 0.6 < total(again, "recompute") / (total(again, "forward") - head) <= 1
    assert total(again, "recompute", "model_flops") == 0
    assert total(again, "backward") == total(plain, "backward")


def test_fused_attention_computes_its_scores_once_more():
    size = small()
    ids = tokens(2, size.length)
    found = work(gpt2.GPT2(size), gpt2.loss_of, ids, ids)
    scores = size.layers * 2 * 2 * size.length**2 * size.width
    assert total(found, "backward") - total(found, "backward", "model_flops") == scores


def test_autocast_decides_the_precision_of_matrices_not_that_of_the_rest():
    def lower(model, rows):
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model[0](rows)
        return model[1](hidden.float()).sum()

    found = work(two_layers(), lower, torch.empty(32, 64))["work"]
    product = 2 * 32 * 64 * 64
    assert found["forward"]["flops"] == {"bf16": product, "fp32": product}
    assert found["backward"]["flops"] == {"bf16": product, "fp32": 2 * product}


@pytest.mark.parametrize("matmul", [False, True])
def test_tf32_is_a_matter_of_the_switches_for_matrices_and_convolutions(monkeypatch, matmul):
    monkeypatch.setattr(flop_count, "supports_tf32", lambda device: True)
    allowed = {"matmul": matmul, "convolution": not matmul}
    monkeypatch.setattr(flop_count, "tf32_allowed", lambda: allowed)
    model = nn.Sequential(nn.Conv1d(4, 4, 1), nn.Linear(8, 8))
    found = work(model, loss, torch.empty(2, 4, 8))["work"]["forward"]["flops"]
    convolution, product = 2 * 2 * 4 * 4 * 8, 2 * 2 * 4 * 8 * 8
    expected = {"tf32": product, "fp32": convolution} if matmul else None
    assert found == (expected or {"tf32": convolution, "fp32": product})


def test_the_switches_for_tf32_are_read_old_and_new():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # PyTorch's defaults; a workload that another test ran may have left others.
    torch.set_float32_matmul_precision("highest")
    cudnn.allow_tf32 = True
    assert tf32_allowed() == {"matmul": False, "convolution": True}
    try:
        torch.set_float32_matmul_precision("high")
        cudnn.allow_tf32 = False
        assert tf32_allowed() == {"matmul": True, "convolution": False}
        torch.set_float32_matmul_precision("highest")
        if hasattr(matmul, "fp32_precision"):
            matmul.fp32_precision, cudnn.conv.fp32_precision = "tf32", "tf32"
            assert tf32_allowed() == {"matmul": True, "convolution": True}
            matmul.fp32_precision = "ieee"
            assert tf32_allowed()["matmul"] is False
    finally:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32 = True
    assert tf32_allowed() == {"matmul": False, "convolution": True}


def test_lookups_read_what_they_write_not_the_whole_table():
    model = nn.Embedding(1000, 64)
    found = work(model, loss, tokens(8))["work"]["forward"]["bytes"]
    assert found == 2 * 8 * 64 * 4 + 8 * 8 + (8 * 64 * 4 + 4) + 4


# Wrappers and failures


def test_wrapped_models_are_counted_as_written():
    model = two_layers()
    plain = work(model, loss, torch.empty(32, 64))
    compiled = work(torch.compile(model, backend="eager"), loss, torch.empty(32, 64))
    assert not plain["work"].pop("compiled")
    assert compiled["work"].pop("compiled")
    assert compiled == plain
    model.forward = lambda rows: pytest.fail("a captured graph was replayed")
    assert work(model, loss, torch.empty(32, 64))["flops_per_step"] == plain["flops_per_step"]
    assert "forward" in vars(model)


def test_counting_leaves_no_trace_in_model_and_random_numbers():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    work(model, loss, torch.ones(4, 8))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())


def test_a_step_that_depends_on_values_is_not_counted_and_says_why():
    def branching(model, rows):
        return model(rows).sum() * (1 if rows.sum().item() > 0 else 2)

    found = work(two_layers(), branching, torch.empty(32, 64))
    assert list(found) == ["work_missing"]
    assert found["work_missing"].startswith("DataDependentOutputException")


@pytest.mark.parametrize(
    ("kind", "options", "accesses"),
    [
        ("Adam", {}, 7),
        ("AdamW", {"amsgrad": True}, 9),
        ("SGD", {}, 3),
        ("SGD", {"momentum": 0.9}, 5),
    ],
)
def test_an_update_reads_and_writes_weights_gradients_and_moments(kind, options, accesses):
    model = two_layers()
    model[1].weight.requires_grad_(False)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)
    assert flop_count.optimizer_bytes(optimizer) == accesses * 4 * 64 * 64


def test_the_traffic_of_other_optimizers_is_unknown():
    optimizer = torch.optim.Adagrad(two_layers().parameters())
    found = work(two_layers(), loss, torch.empty(2, 64), optimizer=optimizer)
    assert found["work"]["optimizer"] == {"bytes": None}


def test_a_plain_loss_is_enough():
    def distance(model, rows, targets):
        return nn.functional.mse_loss(model(rows), targets)

    batch = torch.zeros(4, 64)
    assert work(two_layers(), distance, batch, batch)["flops_per_step"] == 5 * 2 * 4 * 64 * 64
