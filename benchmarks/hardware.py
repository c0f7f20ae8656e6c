"""Hold MFU, measured peaks and predicted memory against a GPU, by means of their own.

    python benchmarks/hardware.py loops LOOPS.json            # plain training loops
    python benchmarks/hardware.py direct DIRECT.json          # plain products and copies
    python benchmarks/hardware.py collect DIR                 # to docs/validation/hardware.json
    python benchmarks/hardware.py page                        # hardware.md beside it

`loops` trains without traceprobe, and counts operations by the shapes of layers; `direct` times
`a @ b` and `copy_`. DIR holds what they and traceprobe left: loops.json, direct.json, peaks.json
(`traceprobe roofline --measure`), a folder of each of `CASES` and of `MEMORY` with the calibration
of its recording, and report.json of the former.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "validation" / "hardware.json"
CASES = {
    "gpt2-bf16": "gpt2 --precision bf16 --data cached-device",
    "unet-tf32": "unet --precision tf32 --data cached-device",
    "unet-fp16": "unet --precision fp16 --data cached-device",
}
PEAKS = {"tf32": 494.7, "bf16": 989.4, "fp16": 989.4}
"""Of an H200, dense, TFLOP/s, typed from its data sheet and not from the table under test."""
BERT = "bert --precision tf32 --data cached-device --batch-size 4"
MEMORY = {
    "a": "--accumulate 1",
    "e": "--accumulate 1 --fused",
    "b": "--accumulate 4",
    "c": "--accumulate 4 --fused",
    "d": "--accumulate 4 --no-foreach",
    "m": "--accumulate 4 --sdpa math",
}
CONTEXT_GUESSED = 500e6
"""What a prediction counts for the CUDA context."""
WORDS = {
    "weights": "weights",
    "optimizer_state": "state",
    "gradients": "gradients",
    "activations": "activations",
    "temporary": "temporary",
    "held": "held",
}


def operations(case: str) -> int:
    """Of a step, from the shapes of its layers: two for each multiply-add, thrice the forward pass.

    A first layer of convolutions makes no gradient of its input.
    """
    if case.startswith("gpt2"):
        batch, length, layers, width, vocabulary = 16, 1024, 12, 768, 50257
        tokens = batch * length
        matrices = 12 * layers * width**2 + vocabulary * width
        return 3 * 2 * tokens * (matrices + 2 * layers * length * width)
    widths, total, first = [4, 64, 128, 256, 512, 512, 512], 0, 0
    for level in range(6):
        values = (64 >> (level + 1)) ** 3
        down = 2 * 64 * widths[level] * widths[level + 1] * values
        first = first or down
        joined = widths[level + 1] * (1 if level == 5 else 2)
        up = 2 * 64 * joined * (widths[level] if level else 5) * values
        total += down + up
    return 64 * (3 * total - first)


def timed(run: Callable[[], object], count: int, warmup: int = 10) -> float:
    """Seconds of a run, mean of `count`."""
    import torch

    for _ in range(warmup):
        run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def loops() -> dict[str, float]:
    """Ms of a step of each case."""
    sys.path[:0] = [str(ROOT), str(ROOT / "workloads")]
    import torch

    import gpt2
    import unet

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 4
    found = {}
    for case in CASES:
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case.split("-")[1])
        optimizer: torch.optim.Optimizer
        if case.startswith("gpt2"):
            model, loss_of = gpt2.GPT2(gpt2.SIZES["full"]).cuda(), gpt2.loss_of
            batch = [torch.randint(50257, (16, 1024), device="cuda") for _ in range(2)]
            optimizer = torch.optim.AdamW(model.parameters(), 6e-4)
        else:
            model, loss_of = unet.UNet(unet.SIZES["full"]).cuda(), unet.loss_of
            batch = [torch.randn(64, c, 64, 64, 64, device="cuda") for c in (4, 5)]
            optimizer = torch.optim.Adam(model.parameters(), 2e-4)
        found[case] = 1e3 * timed(stepping(model, loss_of, batch, optimizer, dtype), 25)
        del model, batch, optimizer
        torch.cuda.empty_cache()
    return found


def stepping(
    model: nn.Module,
    loss_of: Callable[..., torch.Tensor],
    batch: list[torch.Tensor],
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype | None,
) -> Callable[[], None]:
    """A step of a plain training loop."""
    import torch

    scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)

    def step() -> None:
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            loss = loss_of(model, *batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def direct(side: int = 8192) -> dict[str, float]:
    """TFLOP/s of a product by precision, and GB/s of a copy (read and write)."""
    import torch

    found = {}
    types = {"fp32": torch.float32, "tf32": torch.float32}
    for name, dtype in {**types, "bf16": torch.bfloat16, "fp16": torch.float16}.items():
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
        seconds = timed(lambda a=a, b=b: a @ b, 20 if name == "fp32" else 100)
        found[name] = 2 * side**3 / seconds / 1e12
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    found["copy"] = 2 * source.nbytes / timed(lambda: target.copy_(source), 100) / 1e9
    return found


def collect(folder: Path) -> dict[str, Any]:
    """What was measured, in one record."""

    def read(*names: str) -> Any:
        return json.loads(folder.joinpath(*names).read_text(encoding="utf-8"))

    plain, by_hand, measured = read("loops.json"), read("direct.json"), read("peaks.json")
    mfu = {}
    for case, arguments in CASES.items():
        roof = read(case, "report.json")["roofline"]
        mfu[case] = {
            "arguments": arguments,
            "flops_by_hand": operations(case),
            "flops": roof["flops_per_step"],
            "loop_ms": round(plain[case], 4),
            "step_ms": roof["step_ms"],
            "mfu": roof["mfu"],
        }
    peaks = {
        name: {"direct": round(value, 3), "measured": measured["tflops"].get(name)}
        for name, value in by_hand.items()
    }
    peaks["copy"]["measured"] = measured["copy_gbps"]
    memory, outside = {}, None
    for run, arguments in MEMORY.items():
        told = read(run, "rank0.traceprobe.json")["memory"]
        outside = told["outside_bytes"] or outside
        memory[run] = {
            "arguments": arguments,
            **{
                side: {
                    "parts": told[side]["parts"],
                    "peak_bytes": told[side]["peak_bytes"],
                    "phase": told[side]["peak_phase"],
                    "reserved_bytes": told[side]["reserved_bytes"],
                }
                for side in ("predicted", "measured")
            },
            "allocated_bytes": told["measured"]["allocated_bytes"],
        }
    side = read("gpt2-bf16", "rank0.traceprobe.json")
    return {
        "hardware": {"gpu": side["hardware"]["gpus"][0]["name"], **side["libraries"]},
        "mfu": mfu,
        "peaks": peaks,
        "memory": memory,
        "context_bytes": outside,
    }


def page(results: dict[str, Any]) -> str:
    """hardware.md."""
    versions = ", ".join(f"{k} {v}" for k, v in sorted(results["hardware"].items()) if k != "gpu")
    lines = [
        "# MFU, roofline and memory, measured",
        "",
        f"One {results['hardware']['gpu']}; {versions}. Made by `python benchmarks/hardware.py "
        "page` from [`hardware.json`](hardware.json).",
        "",
        "## MFU",
        "",
        "By hand: operations from the shapes of layers, the step from a plain training loop",
        "without traceprobe, the dense peak from the data sheet.",
        "",
        "| run | FLOP by hand | counted | loop, ms | unprofiled step, ms | MFU by hand | reported "
        "| points |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, found in results["mfu"].items():
        peak = PEAKS[case.split("-")[1]]
        hand = found["flops_by_hand"] / (found["loop_ms"] * peak * 1e9)
        lines.append(
            f"| `{found['arguments']}` | {found['flops_by_hand']:,} | {found['flops']:,.0f} "
            f"| {found['loop_ms']:.2f} | {found['step_ms']:.2f} | {hand:.2%} | {found['mfu']:.2%} "
            f"| {100 * (found['mfu'] - hand):+.2f} |"
        )
    lines += [
        "",
        "## Measured peaks",
        "",
        "`traceprobe roofline --measure` beside plain loops of `a @ b` (8192 × 8192) and `copy_`.",
        "",
        "| | measured | direct | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, found in results["peaks"].items():
        unit = "GB/s, read and write" if name == "copy" else "TFLOP/s"
        lines.append(
            f"| {name}, {unit} | {found['measured']:,.1f} | {found['direct']:,.1f} "
            f"| {found['measured'] / found['direct']:.3f} |"
        )
    return "\n".join([*lines, "", *_memory(results)]) + "\n"


def _memory(results: dict[str, Any]) -> list[str]:
    context = results["context_bytes"]
    lines = [
        "## Memory of BERT-large",
        "",
        f"`{BERT}`: four sequences of 512",
        "tokens. GB are 10⁹ bytes. Predicted on tensors without data, measured by the allocator's",
        f"own history. The CUDA context of the process was {context / 1e9:.2f} GB; a prediction "
        f"counts {CONTEXT_GUESSED / 1e9:.1f} GB.",
        "*All* is reserved and context.",
        "",
        "| run | | " + " | ".join(WORDS.values()) + " | peak | in | reserved | all |",
        "| --- | --- |" + " ---: |" * len(WORDS) + " ---: | --- | ---: | ---: |",
    ]
    for found in results["memory"].values():
        for side in ("predicted", "measured"):
            told = found[side]
            peak = told["peak_bytes"] if side == "predicted" else found["allocated_bytes"]
            whole = told["reserved_bytes"] + (CONTEXT_GUESSED if side == "predicted" else context)
            parts = " | ".join(f"{told['parts'][name] / 1e9:.3f}" for name in WORDS)
            name = f"`{found['arguments']}`" if side == "predicted" else ""
            lines.append(
                f"| {name} | {side} | {parts} | {peak / 1e9:.3f} | {told['phase']} "
                f"| {told['reserved_bytes'] / 1e9:.3f} | {whole / 1e9:.2f} |"
            )
        gaps = gap(found, context)
        lines.append("| | off by |" + " |" * len(WORDS) + f" {gaps[0]:+.2%} | | {gaps[1]:+.2%} "
                     f"| {gaps[2]:+.1%} |")  # fmt: skip
    return lines


def gap(found: dict[str, Any], context: float) -> tuple[float, float, float]:
    """Relative error of peak, reserved, and reserved with context."""
    predicted, measured = found["predicted"], found["measured"]
    return (
        predicted["peak_bytes"] / found["allocated_bytes"] - 1,
        predicted["reserved_bytes"] / measured["reserved_bytes"] - 1,
        (predicted["reserved_bytes"] + CONTEXT_GUESSED) / (measured["reserved_bytes"] + context)
        - 1,
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("loops", "direct", "collect", "page"))
    parser.add_argument("path", type=Path, nargs="?", default=RESULTS)
    given = parser.parse_args()
    if given.command == "page":
        text = page(json.loads(RESULTS.read_text(encoding="utf-8")))
        RESULTS.with_suffix(".md").write_text(text, encoding="utf-8")
        return
    target = RESULTS if given.command == "collect" else given.path
    found = {"loops": loops, "direct": direct, "collect": lambda: collect(given.path)}
    target.write_text(json.dumps(found[given.command](), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
