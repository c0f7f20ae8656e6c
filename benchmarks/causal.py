"""Delays in programs whose critical regions are known by construction: what probes say of them.

    python benchmarks/causal.py measure DIR [--scenarios NAME …]   # on a machine with a GPU
    torchrun --nproc-per-node 2 benchmarks/causal.py measure DIR --scenarios ddp-late ddp-early
    nvidia-smi --query-gpu=driver_version --format=csv,noheader > DIR/driver.txt
    python benchmarks/causal.py summarize DIR                      # causal.json
    python benchmarks/causal.py page                               # causal.md beside it

`measure` leads loops through the session that `traceprobe bench --causal` starts in a program, many
in one process; a program alone takes twelve seconds to start. PyTorch is all that it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.capture.oracle.probe_plan import ProbePlan, RankProbes  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
TOLERANCE = 0.1
CYCLES_PER_MS = 1.98e6
"""Of an H200 at its highest clock; any number does."""
HOST = ("between/host", "forward/host", "backward/host", "optimizer/host")
DEVICE = ("forward/device", "backward/device", "optimizer/device")
WORKERS, IN_PROCESS, NETWORK = "loader/workers", "loader/host", "collectives/network"


def expect(**known: tuple[str, ...]) -> dict[str, int]:
    """Regions to the criticality they must have: `critical` ones 1, `hidden` ones 0."""
    return dict.fromkeys(known["critical"], 1) | dict.fromkeys(known["hidden"], 0)


@dataclass(frozen=True)
class Scenario:
    """A loop.

    Args:
        why: what makes the criticalities what they are.
        known: them, by region and resource.
        start: makes the loop, one iteration a step.
    """

    why: str
    known: dict[str, int]
    start: Callable[[], Iterator[None]]


def spin(ms: float) -> None:
    """Keep the host busy."""
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def device() -> str:
    """Where loops train."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def batches(workers: int, item_ms: float) -> Iterator[Any]:
    """Batches of a DataLoader, for ever; making one takes a worker that long."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset[Any]):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> Any:
            if workers:
                time.sleep(item_ms / 1e3)
            else:
                spin(item_ms)
            return torch.ones(64)

    yield from DataLoader(Data(), batch_size=1, num_workers=workers)


def network(width: int, layers: int) -> tuple[Any, Any]:
    """Linear layers of 16 bits, and what updates them.

    All numbers are zeros, whose products take little power. At its power limit a GPU makes up for
    a delay with a higher clock, and no criticality is known by construction.
    """
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    model = model.to(device(), torch.bfloat16)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return model, torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)


def loop(
    *,
    width: int = 64,
    layers: int = 4,
    rows: int = 8,
    workers: int = 2,
    item_ms: float = 0.0,
    host_ms: float = 0.0,
    waits: bool = False,
) -> Iterator[None]:
    """A plain training.

    Args:
        host_ms: work of the host in forward. waits: for the device, after each update.
    """
    import torch

    model, optimizer = network(width, layers)
    x = torch.zeros(rows, width, device=device(), dtype=torch.bfloat16)
    for _ in batches(workers, item_ms):
        output = model(x)
        spin(host_ms)
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        yield
        optimizer.zero_grad()
        if waits:
            loss.item()


def beside(*, side_ms: float, main_ms: float) -> Iterator[None]:
    """Two streams; the update waits for both.

    Their work spins: what computes on one stream would be slowed by what computes on the other,
    and a delay of one would speed up the other.
    """
    import torch

    model, optimizer = network(64, 4)
    x = torch.randn(8, 64, device=device(), dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    while True:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(round(side_ms * CYCLES_PER_MS))
        output = model(x)
        torch.cuda._sleep(round(main_ms * CYCLES_PER_MS))
        output.square().mean().backward()
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.step()
        yield
        optimizer.zero_grad()


def helped(ms: float) -> Iterator[None]:
    """Another thread of the host works beside forward and backward; the update waits for it."""
    import torch

    model, optimizer = network(64, 4)
    x = torch.randn(8, 64, device=device(), dtype=torch.bfloat16)
    while True:
        thread = threading.Thread(target=time.sleep, args=(ms / 1e3,))
        thread.start()
        loss = model(x).square().mean()
        loss.backward()
        thread.join()
        optimizer.step()
        yield
        optimizer.zero_grad()


def parallel(*, width: int, layers: int, rows: int) -> Iterator[None]:
    """Two ranks under DDP."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model, _ = network(width, layers)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(rows, width, device=device(), dtype=torch.bfloat16)
    while True:
        model(x).square().mean().backward()
        optimizer.step()
        yield
        optimizer.zero_grad()


LARGE = {"width": 4096, "layers": 6, "rows": 8192}
SCENARIOS = {
    "device": Scenario(
        "large matrices, nothing waits for the device",
        expect(critical=DEVICE, hidden=(*HOST, WORKERS)),
        lambda: loop(**LARGE),
    ),
    "host": Scenario(
        "small matrices, and 10 ms of Python in forward",
        expect(critical=HOST, hidden=(*DEVICE, WORKERS)),
        lambda: loop(host_ms=10.0),
    ),
    "loader": Scenario(
        "two workers that take 16 ms for a batch",
        expect(critical=(WORKERS,), hidden=(*HOST, *DEVICE)),
        lambda: loop(item_ms=16.0),
    ),
    "loader-in-process": Scenario(
        "10 ms for a batch, on the thread that trains",
        expect(critical=(IN_PROCESS, *HOST), hidden=DEVICE),
        lambda: loop(workers=0, item_ms=10.0),
    ),
    "wait": Scenario(
        "large matrices, and the host waits for them after each update",
        expect(
            # Forward finds the device idle; what follows is launched while it is busy.
            critical=("forward/host", IN_PROCESS, *DEVICE),
            hidden=("between/host", "backward/host", "optimizer/host"),
        ),
        lambda: loop(**LARGE, workers=0, waits=True),
    ),
    "side-long": Scenario(
        "a side stream spins for longer than forward and backward; the update waits for it",
        expect(critical=("optimizer/device",), hidden=(*HOST, "forward/device", "backward/device")),
        lambda: beside(side_ms=8.0, main_ms=1.0),
    ),
    "side-short": Scenario(
        "forward spins for longer than the side stream",
        expect(critical=DEVICE, hidden=HOST),
        lambda: beside(side_ms=1.0, main_ms=8.0),
    ),
    "thread": Scenario(
        "another thread of the host sleeps 8 ms beside forward and backward",
        expect(
            critical=("between/host", "optimizer/host"),
            hidden=("forward/host", "backward/host", *DEVICE),
        ),
        lambda: helped(8.0),
    ),
    "ddp-late": Scenario(
        "two ranks, few rows: the collectives outlast backward",
        expect(critical=(NETWORK,), hidden=()),
        lambda: parallel(width=8192, layers=6, rows=64),
    ),
    "ddp-early": Scenario(
        "two ranks, many rows: the collectives wait for backward",
        expect(critical=(), hidden=(NETWORK,)),
        lambda: parallel(**LARGE),
    ),
}
ALONE = tuple(name for name in SCENARIOS if not name.startswith("ddp"))


def measure(folder: Path, names: list[str], rounds: int, seconds: float) -> None:
    """Probe each scenario and leave what its rank measured in the folder."""
    import torch
    from torch.utils.data import dataloader

    from traceprobe.capture.loader.loader_hook import install_loader_hook
    from traceprobe.capture.oracle.program_probes import ProgramProbes

    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    plan = ProbePlan(folder=str(work), warmup=20, rounds=rounds, seconds=seconds)
    os.environ[plan.VARIABLE] = str(plan.save())
    install_loader_hook(dataloader)
    for name in names:
        began = time.perf_counter()
        session = ProgramProbes(plan)
        for number, _ in enumerate(SCENARIOS[name].start()):
            if not session.before_step(number):
                break
        result = work / f"rank{rank}.probes.json"
        result.replace(folder / f"{name}.rank{rank}.json")
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()


def summarize(folder: Path) -> dict[str, Any]:
    """What each region was found to be, beside what it is."""
    from traceprobe.capture.oracle.probe_record import summarize_probes

    found: dict[str, Any] = {"scenarios": []}
    for name, scenario in SCENARIOS.items():
        ranks = _ranks(folder, name)
        if not ranks:
            continue
        made = summarize_probes(ranks)
        gpus = made.hardware.get("gpus") or [{}]
        found |= {
            "gpu": gpus[0].get("name"),
            "torch": made.libraries.get("torch"),
            "driver": (folder / "driver.txt").read_text().strip(),
        }
        slopes = {f"{r.region}/{r.resource}": r for r in made.regions}
        regions = [
            {
                "region": region,
                "known": known,
                "slope": round(slopes[region].slope.value, 3),
                "low": round(slopes[region].slope.low, 3),
                "high": round(slopes[region].slope.high, 3),
                "judgement": slopes[region].judgement,
            }
            for region, known in scenario.known.items()
            if region in slopes
        ]
        hooks = made.hooks_ms
        found["scenarios"].append(
            {
                "name": name,
                "why": scenario.why,
                "step_ms": round(made.step_ms, 4),
                "steps_per_block": made.steps_per_block,
                "rounds": made.rounds,
                "hooks_us": [round(1e3 * v, 1) for v in (hooks.value, hooks.low, hooks.high)],
                "regions": regions,
                "absent": sorted(set(scenario.known) - set(slopes)),
            }
        )
    return found


def _ranks(folder: Path, name: str) -> dict[int, Any]:
    """What the ranks of a scenario left, by rank."""
    return {
        rank: RankProbes(**json.loads(path.read_text()))
        for rank, path in enumerate(sorted(folder.glob(f"{name}.rank*.json")))
    }


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = [(s, r) for s in found["scenarios"] for r in s["regions"]]
    within = [r for _, r in rows if abs(r["slope"] - r["known"]) <= TOLERANCE]
    right = [r for _, r in rows if r["judgement"] == ("hidden", "critical")[r["known"]]]
    far = max((abs(r["slope"] - r["known"]) for _, r in rows), default=0.0)
    lines = [
        "# Causal probes of known programs",
        "",
        f"Loops that are built so that each region is critical or hidden, probed as "
        f"`traceprobe bench --causal` does ([method](../causal.md)), on {found['gpu']}, PyTorch "
        f"{found['torch']}, driver {found['driver']}. Written by "
        "`benchmarks/causal.py` from `causal.json`.",
        "",
        f"**{len(within)} of {len(rows)} slopes are within {TOLERANCE} of what they must be; "
        f"{len(right)} are judged so. The largest error is {far:.2f}.**",
        "",
        "| loop | | region | must be | found | 95 % interval | judged |",
        "| --- | --- | --- | --: | --: | --: | --- |",
    ]
    for scenario in found["scenarios"]:
        for number, region in enumerate(scenario["regions"]):
            name, why = (scenario["name"], scenario["why"]) if not number else ("", "")
            missed = " ✗" if abs(region["slope"] - region["known"]) > TOLERANCE else ""
            lines.append(
                f"| {name} | {why} | {region['region'].replace('/', ', ')} | {region['known']} | "
                f"{_number(region['slope'])}{missed} | {_number(region['low'])} to "
                f"{_number(region['high'])} | {region['judgement']} |"
            )
    lines += [
        "",
        "Of `wait`, a part of a delay of forward on the device is hidden: the spin is launched "
        "before the first kernel, whose launch it covers. The host's time in `host` scatters, as "
        "its intervals say.",
        "",
        "## What the hooks cost",
        "",
        "Steps with the hooks and no delay against steps without, interleaved.",
        "",
        "| loop | step, ms | hooks, µs a step | 95 % interval | steps a block | rounds |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for scenario in found["scenarios"]:
        value, low, high = (_number(v, 1) for v in scenario["hooks_us"])
        lines.append(
            f"| {scenario['name']} | {scenario['step_ms']:.3f} | {value} | {low} to {high} | "
            f"{scenario['steps_per_block']} | {scenario['rounds']} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: float, digits: int = 2) -> str:
    return f"{value + 0.0:.{digits}f}".replace("-", "−")


def main() -> None:
    """Measure, summarize or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["measure", "summarize", "page"])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--scenarios", nargs="+", default=list(ALONE), choices=SCENARIOS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    arguments = parser.parse_args()
    if arguments.action == "measure":
        measure(arguments.folder, arguments.scenarios, arguments.rounds, arguments.seconds)
        return
    record = FOLDER / "causal.json"
    if arguments.action == "summarize":
        text = json.dumps(summarize(arguments.folder), indent=1, ensure_ascii=False)
        record.write_text(text + "\n", encoding="utf-8")
    (FOLDER / "causal.md").write_text(page(json.loads(record.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
