#!/usr/bin/env python3
"""Write traceprobe/vocabulary/public.txt: the words that public names are made of.

They come from the operators of the installed PyTorch, from the names in the sample traces, which
are public, from the report's own fields, from the names of GPUs, and from the expressions by which
traceprobe knows names.
Needs PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import traceprobe
from traceprobe.anonymise.names import EXPRESSIONS
from traceprobe.ingest.kineto.categories import CALLS, GPU, OPERATORS
from traceprobe.ingest.kineto.envelope import TOP_LEVEL
from traceprobe.slicing.kineto_fields import PUBLIC_ARGUMENTS
from traceprobe.slicing.public_values import RECORDED
from traceprobe.verdict.gpu_specs import table
from traceprobe.vocabulary import words

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "traceprobe" / "vocabulary" / "public.txt"
KEYS = (
    "rank world_size pg_count pg_config pg_name pg_desc backend_config pg_size ranks id name "
    "totalGlobalMem computeMajor computeMinor maxThreadsPerBlock numSms regsPerBlock",
)
SHORTEST = 2
"""Single letters need no list."""
MORE = (
    "NVIDIA AMD Instinct GeForce Quadro Tesla RTX GTX GH GB MI Intel Nsight Systems nsys CUPTI "
    "Host Device Pageable Pinned Managed Array Unified Peer Memcpy Memset DtoH HtoD DtoD PtoP "
    "ProfilerStep Optimizer DataLoader DataPipe DALI iter autograd engine profiler Iteration "
    "hip roc rccl xpu mtia python stream default cpu cuda runtime driver user annotation "
    "FullyShardedDataParallel DistributedDataParallel FSDP forward backward train training "
    "Torch Compiled Region TorchDynamo Dynamo Cache Lookup CompiledFunction CompiledFxGraph Fx "
    "dynamo timed compile_id triton poi per red cuMem Malloc Alloc Create Map Free Release Unmap"
)


def keys(value: Any) -> Iterator[str]:
    """Keys of objects inside objects."""
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def names() -> Iterator[str]:
    """Every name whose words are public."""
    yield MORE
    yield from (schema.name for schema in torch._C._jit_get_all_schemas())
    yield from (*RECORDED, *PUBLIC_ARGUMENTS, *TOP_LEVEL, *KEYS, *GPU, *CALLS, *OPERATORS)
    schema = ROOT / "traceprobe" / "records" / "report.schema.json"
    yield from keys(json.loads(schema.read_text(encoding="utf-8")))
    yield from (expression.pattern for expression in EXPRESSIONS)
    # A GPU whose name is not kept is unknown, and findings with it.
    yield from (name for gpu in table().gpus for name in (gpu.name, *gpu.aliases))
    for path in sorted((ROOT / "sample_traces").glob("*.gz")):
        trace = traceprobe.load(path)
        yield from trace.names
        yield from trace.thread_names.values()
        yield from keys(dict(trace.metadata))
        yield from (device.name or "" for device in trace.devices)


def main() -> None:
    """Write the list."""
    found = {word.lower() for name in names() for word in words(name)}
    kept = sorted(word for word in found if len(word) >= SHORTEST and word.isascii())
    TARGET.write_text("\n".join(kept) + "\n", encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(kept)} words of PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
