"""Lines that slow any program down, whatever it trains."""

from __future__ import annotations

from benchmarks.slowbench.ways import Range, Way

PERIOD = 3
"""Steps between two of what is done now and then."""
BACKWARD, UPDATE = "loss.backward()", "optimizer.step()"
PARAMETERS = 'optimizer.param_groups[0]["params"]'
COUNTED = ("import itertools", "made = itertools.count(1)")
ANYWHERE = (
    Way("item-each-step", lines=((BACKWARD, "seen = loss.item()"),)),
    Way(
        "item-each-step",
        lines=((UPDATE, f"norms = [p.grad.norm().item() for p in {PARAMETERS}[:{{level}}]]"),),
        level=Range(16, 64),
    ),
    Way(
        "print-each-step",
        lines=((UPDATE, f"print([p.grad.norm() for p in {PARAMETERS}[:{{level}}]])"),),
        level=Range(4, 24),
        small_level=Range(8, 24),
        on_cpu=True,
    ),
    Way(
        "python-between-launches",
        lines=((BACKWARD, "weighed = sum(i * i for i in range({level}))"),),
        level=Range(200_000, 500_000),
        small_level=Range(100_000, 400_000),
        on_cpu=True,
    ),
    Way(
        "many-tiny-kernels",
        lines=(
            (
                UPDATE,
                f"[p.grad.mul_(0.5).mul_(2.0) for _ in range({{level}}) for p in {PARAMETERS}]",
            ),
        ),
        level=Range(5, 12),
    ),
    Way(
        "gc-pauses",
        lines=((UPDATE, "gc.collect()"),),
        helpers=("import gc", "heap = [[n] for n in range({level})]"),
        level=Range(150_000, 600_000),
        small_level=Range(200_000, 600_000),
        on_cpu=True,
    ),
    Way("empty-cache-each-step", lines=((UPDATE, "torch.cuda.empty_cache()"),)),
    Way(
        "blocking-sync",
        lines=((BACKWARD, "torch.cuda.synchronize()"), (UPDATE, "torch.cuda.synchronize()")),
    ),
    Way(
        "periodic-checkpoint",
        lines=(
            (
                UPDATE,
                f"_ = next(made) % {PERIOD} or torch.save({PARAMETERS}[-{{level}}:], saved)",
            ),
        ),
        helpers=(*COUNTED, "import tempfile", "saved = tempfile.mkdtemp() + '/saved'"),
        level=Range(4, 20),
        small_level=Range(8, 40),
        period=PERIOD,
        on_cpu=True,
    ),
    Way(
        "periodic-evaluation",
        lines=(
            ("{forward}", f"_ = next(made) % {PERIOD} or evaluate({{level}}, lambda: {{pass}})"),
        ),
        helpers=(
            *COUNTED,
            "evaluate = torch.no_grad()(lambda n, call: [call() for _ in range(n)])",
        ),
        level=Range(1, 4),
        small_level=Range(1, 4),
        period=PERIOD,
        on_cpu=True,
    ),
    Way(
        "needless-work",
        lines=(("{forward}", "unused = {pass}"),),
        level=Range(0.3, 1.0),
        small_level=Range(0.5, 1.0),
        on_cpu=True,
    ),
    Way("clock-drop", level=Range(0.2, 0.8), neighbour=True),
)
