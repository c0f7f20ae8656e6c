"""Recording with Nsight Systems: the capture range inside the program."""

from __future__ import annotations

from typing import Any


class NsysBackend:
    """The profiled process's part: cudaProfilerStart and Stop around the active steps."""

    def start(self) -> None:
        """Open the capture range that nsys waits for."""
        import torch

        torch.cuda.profiler.start()

    def step(self) -> None:
        """Nothing: the step ranges mark the steps."""

    def abandon(self) -> None:
        """Close the capture range."""
        self.stop({})

    def stop(self, metadata: dict[str, Any]) -> None:
        """Close the capture range; the sidecar goes into the export later."""
        import torch

        torch.cuda.profiler.stop()
