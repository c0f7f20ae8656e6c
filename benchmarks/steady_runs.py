"""Is the step that a recording calls unprofiled the steady step of the loop?

    python benchmarks/steady_runs.py OUT      # on a machine with one GPU

Every run is a process of its own that records a training loop as `traceprobe profile` does, and
times the same loop plainly, before the recording ("before", where there is one), and after it. All
processes import PyTorch at the same time; then they take turns, and a process that waits for its
turn has no context on the GPU. In some runs a second process multiplies matrices on the same GPU,
for all or part of the run. Writes OUT/runs.json after each run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

PLAIN_S = 2.0
"""Shortest plain loop."""
TURN_S = 60
IMPORTED = {"gpt2": ("transformers.models.gpt2.modeling_gpt2",), "resnet50": ("timm",)}
"""What takes long to import, by loop."""
RUNS = {
    # name: (loop, period, whether the plain loop comes first too, neighbour)
    "gemm-cold": ("gemm", 1, False, None),
    "gemm": ("gemm", 1, True, None),
    "mlp-cold": ("mlp", 1, False, None),
    "mlp": ("mlp", 1, True, None),
    "many-small-cold": ("many_small", 1, False, None),
    "many-small": ("many_small", 1, True, None),
    "conv-cold": ("conv", 1, False, None),
    "conv": ("conv", 1, True, None),
    "encoder-cold": ("encoder", 1, False, None),
    "encoder": ("encoder", 1, True, None),
    "gpt2-cold": ("gpt2", 1, False, None),
    "gpt2": ("gpt2", 1, True, None),
    "resnet50-cold": ("resnet50", 1, False, None),
    "resnet50": ("resnet50", 1, True, None),
    "loader-cold": ("loader", 1, False, None),
    "loader": ("loader", 1, True, None),
    "syncing": ("syncing", 1, True, None),
    "evaluates-every-5": ("evaluates", 5, True, None),
    "two-optimizers": ("two_optimizers", 3, True, None),
    "evaluates-every-5-cold": ("evaluates", 5, False, None),
    "two-optimizers-cold": ("two_optimizers", 3, False, None),
    "encoder-shared": ("encoder", 1, False, "all"),
    "conv-shared-late": ("conv", 1, False, "from-profiled"),
    "mlp-shared-late": ("mlp", 1, False, "from-profiled"),
    "conv-shared-early": ("conv", 1, False, "until-profiled"),
    "gpt2-shared-early": ("gpt2", 1, False, "until-profiled"),
    "gemm-shared-late": ("gemm", 1, False, "from-profiled"),
}


def gemm() -> Callable[[], None]:
    """Products that fill the power budget."""
    import torch

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    w = torch.nn.Parameter(torch.randn_like(x))
    update = torch.optim.SGD([w], lr=1e-6)

    def step() -> None:
        (x @ w @ x @ w).float().mean().backward()
        update.step()
        update.zero_grad()

    return step


def _trained(
    model: Any, batch: Any, loss: Callable[[Any], Any] = lambda out: out.float().square().mean()
) -> Callable[[], None]:
    import torch

    model = model.cuda()
    update = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = loss(model(batch))
        out.backward()
        update.step()
        update.zero_grad()

    return step


def mlp() -> Callable[[], None]:
    """A few wide layers."""
    import torch
    from torch import nn

    layers = [m for _ in range(6) for m in (nn.Linear(4096, 4096), nn.GELU())]
    return _trained(nn.Sequential(*layers), torch.randn(4096, 4096, device="cuda"))


def many_small() -> Callable[[], None]:
    """The host is the limit."""
    import torch
    from torch import nn

    layers = [m for _ in range(60) for m in (nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64))]
    return _trained(nn.Sequential(*layers), torch.randn(8, 64, device="cuda"))


def conv() -> Callable[[], None]:
    """Convolutions whose algorithms cuDNN tries first."""
    import torch
    from torch import nn

    torch.backends.cudnn.benchmark = True
    layers: list[Any] = [nn.Conv2d(3, 128, 3, padding=1)]
    layers += [
        m
        for _ in range(6)
        for m in (nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU())
    ]
    return _trained(nn.Sequential(*layers), torch.randn(64, 3, 96, 96, device="cuda"))


def encoder() -> Callable[[], None]:
    """A transformer."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    return _trained(nn.TransformerEncoder(layer, 8), torch.randn(16, 512, 768, device="cuda"))


def gpt2() -> Callable[[], None]:
    """GPT-2 as transformers has it."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    batch = torch.randint(0, 50000, (8, 512), device="cuda")
    return _trained(model, batch, lambda out: out.logits.float().logsumexp(-1).mean())


def resnet50() -> Callable[[], None]:
    """ResNet-50 as timm has it."""
    import timm
    import torch

    return _trained(timm.create_model("resnet50"), torch.randn(128, 3, 160, 160, device="cuda"))


def loader() -> Callable[[], None]:
    """A loader with two workers is the limit."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(_Slow(), 32, num_workers=2))
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)).cuda()
    update = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        model(next(batches).cuda()).square().mean().backward()
        update.step()
        update.zero_grad()

    return step


class _Slow:
    """Samples that take a millisecond of computing."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        import torch

        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass
        return torch.full((1024,), float(index % 7))


def syncing() -> Callable[[], None]:
    """Waits for its loss in every step."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(24))).cuda()
    update = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(512, 1024, device="cuda")

    def step() -> None:
        loss = model(x).square().mean()
        loss.backward()
        loss.item()
        update.step()
        update.zero_grad()

    return step


def evaluates() -> Callable[[], None]:
    """Every fifth step is followed by an evaluation."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(12)))
    train, x = _trained(model, torch.randn(2048, 2048, device="cuda")), None
    x = torch.randn(8192, 2048, device="cuda")
    made = 0

    def step() -> None:
        nonlocal made
        train()
        made += 1
        if made % 5 == 0:
            with torch.no_grad():
                for _ in range(4):
                    model(x)
            torch.cuda.synchronize()

    return step


def two_optimizers() -> Callable[[], None]:
    """Two updates of one network and then one of another."""
    import torch
    from torch import nn

    x = torch.randn(2048, 2048, device="cuda")
    small = _trained(nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(6))), x)
    large = _trained(nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(30))), x)
    made = 0

    def step() -> None:
        nonlocal made
        made += 1
        (large if made % 3 == 0 else small)()

    return step


def plain(step: Callable[[], None], period: int) -> dict[str, float]:
    """The loop without any recording: mean step over whole periods."""
    import torch

    def timed(count: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    few = 2 * period + 4
    timed(few)
    count = max(int(PLAIN_S / 2 / (timed(few * period) / (few * period))) // period, 8) * period
    halves = [timed(count) / count * 1e3 for _ in range(2)]
    return {"step_ms": sum(halves) / 2, "first_half_ms": halves[0], "second_half_ms": halves[1]}


class Neighbour:
    """Another process that computes on the same GPU while it may."""

    def __init__(self, folder: Path) -> None:
        self._go = folder / "neighbour.go"

    def let(self, active: bool) -> None:
        """Whether it computes from now on."""
        if active == self._go.exists():
            return
        if active:
            self._go.touch()
        else:
            self._go.unlink()
        time.sleep(0.3)


def neighbour(folder: Path) -> None:
    """Multiply matrices while the file says so; ends with its parent."""
    import torch

    parent, go = os.getppid(), folder / "neighbour.go"
    x = None
    while os.getppid() == parent:
        if not go.exists():
            time.sleep(0.02)
            continue
        if x is None:
            x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        for _ in range(4):
            x @ x
        torch.cuda.synchronize()


def run(name: str, folder: Path) -> dict[str, Any]:
    """One run, in this process."""
    import torch

    from traceprobe.capture.recording.recording_plan import RecordingPlan
    from traceprobe.capture.recording.recording_session import RecordingSession

    loop, period, first, shared = RUNS[name]
    other = Neighbour(folder)
    other.let(shared in ("all", "until-profiled"))
    step = globals()[loop]()
    result: dict[str, Any] = {"name": name, "period": period, "neighbour": shared}
    if first:
        for _ in range(3 * period):
            step()
        result["before"] = plain(step, period)
    work = folder / "work"
    work.mkdir()
    plan = RecordingPlan(folder=str(work), workload={"name": name})
    session = RecordingSession(plan)
    number, began = 0, time.perf_counter()
    while session.before_step(number):
        made = len(session._blocks)
        if made == 1 and shared == "from-profiled":
            other.let(True)
        if made >= 1 and shared == "until-profiled":
            other.let(False)
        step()
        number += 1
    session.close()
    result |= {"session_s": time.perf_counter() - began, "session_steps": number}
    sidecar = json.loads((work / "rank0.traceprobe.json").read_text())
    for key in ("unprofiled_step_ms", "warmup", "blocks"):
        result[key] = sidecar[key]
    result["after"] = plain(step, period)
    result["gpu"], result["torch"] = torch.cuda.get_device_name(), torch.__version__
    other.let(False)
    return result


def _child(name: str, folder: Path) -> None:
    loop = RUNS[name][0]
    session = "traceprobe.capture.recording.recording_session"
    for module in ("torch", *IMPORTED.get(loop, ()), session):
        import_module(module)
    (folder / "ready").touch()
    while not (folder / "turn").exists():
        time.sleep(0.02)
    try:
        result = run(name, folder)
    except Exception:
        result = {"name": name, "error": traceback.format_exc()}
    (folder / "result.tmp").write_text(json.dumps(result))
    (folder / "result.tmp").replace(folder / "result.json")
    os._exit(0)


def _wait(path: Path, process: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    return path.exists()


def _started(names: list[str], root: Path) -> Iterator[tuple[str, Path, list[Any]]]:
    for name in names:
        folder = root / name
        folder.mkdir()
        kinds = ["--child", *(["--neighbour"] if RUNS[name][3] else [])]
        command = [sys.executable, __file__]
        yield (
            name,
            folder,
            [subprocess.Popen([*command, kind, name, str(folder)]) for kind in kinds],
        )


def main(out: Path, names: list[str]) -> None:
    """All runs, one after the other."""
    results = []
    with tempfile.TemporaryDirectory() as root:
        for name, folder, processes in list(_started(names or list(RUNS), Path(root))):
            ready = _wait(folder / "ready", processes[0], 2 * TURN_S)
            (folder / "turn").touch()
            began = time.monotonic()
            if ready and _wait(folder / "result.json", processes[0], TURN_S):
                result = json.loads((folder / "result.json").read_text())
            else:
                result = {"name": name, "error": "did not end in time"}
            for process in processes:
                process.kill()
                process.wait()
            results.append(result)
            (out / "runs.json").write_text(json.dumps(results, indent=1))
            _say(result, time.monotonic() - began)


def _say(result: dict[str, Any], seconds: float) -> None:
    if "error" in result:
        print(result["name"], result["error"], flush=True)
        return
    plains = [result[key]["step_ms"] for key in ("before", "after") if key in result]
    blocks = [f"{b['step_ms']:.2f}{'p' * b['profiled']}" for b in result["blocks"]]
    print(
        f"{result['name']:24} {result['unprofiled_step_ms']:8.3f} plain",
        [round(ms, 3) for ms in plains],
        f"off {100 * (result['unprofiled_step_ms'] / plains[-1] - 1):+.1f} % warm-up",
        result["warmup"]["steps"],
        result["warmup"]["period"],
        blocks,
        [round(b.get("clock", {}).get("sm_mhz") or 0) for b in result["blocks"]],
        f"{seconds:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        _child(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1] == "--neighbour":
        neighbour(Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
