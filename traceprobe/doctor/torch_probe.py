"""Run as a script, in a process of its own: what PyTorch here can do, one JSON object a line.

A broken PyTorch fails at import, kills the process or never answers. What was printed until then
still counts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Print what is known, stage by stage."""
    try:
        import torch
    except ModuleNotFoundError as error:
        _tell(stage="absent" if error.name == "torch" else "error", error=type(error).__name__)
        return
    except BaseException as error:
        _tell(stage="error", error=type(error).__name__)
        return
    built = torch.version.cuda or (
        f"ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else None
    )
    _tell(stage="import", version=str(torch.__version__), cuda=built, **_cupti(torch))
    available = bool(torch.cuda.is_available())
    count = torch.cuda.device_count() if available else 0
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    _tell(stage="cuda", cuda_available=available, devices=names)
    from torch import profiler

    _tell(
        stage="profiler",
        kineto=bool(torch.profiler.kineto_available()),
        activities=sorted(activity.name for activity in profiler.supported_activities()),
        distributed=torch.distributed.is_available(),
        nccl=_nccl(torch) if available else None,
    )


def _nccl(torch: Any) -> str | None:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    version = torch.cuda.nccl.version()
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _cupti(torch: Any) -> dict[str, Any]:
    """Which libcupti is loaded, and which one came with PyTorch; base names only."""
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    loaded = next((Path(name) for name in mapped if "/libcupti.so" in name), None)
    home = Path(torch.__file__).resolve().parent
    places = (home / "lib", *home.parent.glob("nvidia/*/lib"))
    bundled = next(
        (path.resolve() for place in places for path in sorted(place.glob("libcupti*.so*"))), None
    )
    searched = {
        Path(part).resolve() for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part
    }
    return {
        "cupti": loaded and loaded.name,
        "bundled_cupti": bundled and bundled.name,
        "cupti_from_path": loaded is not None and loaded.parent in searched,
    }


def _tell(**known: Any) -> None:
    sys.stdout.write(json.dumps(known) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
