"""Runs programs: records each as it is, and times it beside its variants; one at a time.

All processes are started at once, so that importing PyTorch and compiling are over before anything
is timed; then each has the machine for itself, one after another. What they leave is put together
as it comes: PROGRAM.json with the times, and traces in `part*.tar`.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.program_recordings import bundle
from benchmarks.saving.catalog import BY_NAME, Program

HERE = Path(__file__).resolve().parent
INJECTION = HERE.parent / "injection"
TIMING = "timing"


class Session:
    """All programs of one call.

    Args:
        out: folder of results. work: folder of theirs. seconds: after which all is ended.
    """

    def __init__(self, out: Path, work: Path, seconds: float) -> None:
        self.out, self.work = out, work
        self.began = time.monotonic()
        self.ends = self.began + seconds
        self.turn = work / "turn"

    def log(self, text: str) -> None:
        """A line for people."""
        line = f"{time.monotonic() - self.began:6.1f} s  {text}"
        print(line, flush=True)
        with (self.out / "log").open("a") as file:
            file.write(line + "\n")

    def start(self, program: Program, kind: str) -> subprocess.Popen[bytes]:
        """Start a process that times, or one that records; its output goes to a file."""
        folder = self.work / f"{program.name}-{kind}"
        folder.mkdir()
        script = str(program.script)
        path = filter(None, [os.environ.get("PYTHONPATH")])
        if kind == TIMING:
            command = [sys.executable, str(HERE / "timing.py"), str(folder), program.name]
            own = {"SAVING_TURN": str(self.turn)}
        else:
            command = [sys.executable, str(INJECTION / "record_one.py"), str(folder / "recording")]
            command += [sys.executable, script]
            (folder / "recording").mkdir()
            own = {
                "INJECTION_PROGRAM": script,
                "INJECTION_TURN": str(self.turn),
                "PYTHONPATH": os.pathsep.join((str(INJECTION / "turn"), *path)),
            }
        with (folder / "output").open("wb") as output:
            return subprocess.Popen(
                command,
                env={**os.environ, **own, "TORCHINDUCTOR_COMPILE_THREADS": "4"},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def measure_peaks(self) -> None:
        """Leave what the device does at most, as `traceprobe roofline --measure` has it."""
        code = (
            "import json, sys\n"
            "from traceprobe.capture.machine.device_peaks import measure_device_peaks\n"
            "print(json.dumps(measure_device_peaks()._asdict()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=HERE.parents[1], capture_output=True, text=True
        )
        (self.out / "peaks.json").write_text(done.stdout)
        self.log(f"peaks: {done.stdout}{done.stderr[-500:]}")

    def collect(self, program: Program, kind: str, status: int | None) -> None:
        """Keep what a process left."""
        folder = self.work / f"{program.name}-{kind}"
        said = (folder / "output").read_text(errors="replace")
        (self.out / f"{program.name}.{kind}.txt").write_text(said[-4000:])
        if kind == TIMING:
            times = folder / f"{program.name}.json"
            if times.exists():
                found = json.loads(times.read_text())
                (self.out / times.name).write_text(json.dumps(found))
                blocks = found["blocks"]
                told = ", ".join(f"{k} {min(b['ms'] for b in v):.1f}" for k, v in blocks.items())
                self.log(f"{program.name}: {told}; failed: {sorted(found['failed'])}")
            traces = sorted(folder.glob("*.json.gz"))
        else:
            traces = sorted((folder / "recording").glob("rank*.json.gz"))
        kept = all(bundle([t], f"{program.name}/{kind}", self.out) for t in traces)
        self.log(f"{program.name} {kind}: status {status}, {len(traces)} traces, {kept=}")


def record(
    out: Path, names: tuple[str, ...], untimed: tuple[str, ...], seconds: float, set_up: float
) -> None:
    """Record and time programs, which are set up for at most `set_up` seconds.

    Args:
        untimed: programs that are only recorded.
    """
    out.mkdir(parents=True, exist_ok=True)
    programs = [BY_NAME[name] for name in names or BY_NAME]
    with tempfile.TemporaryDirectory(prefix="savings-", ignore_cleanup_errors=True) as work:
        session = Session(out, Path(work).resolve(), seconds)
        with session.turn.open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            kinds = (TIMING, "recording")
            running = {(p.name, k): session.start(p, k) for k in kinds for p in programs}
            for name in untimed:
                running[name, "recording"] = session.start(BY_NAME[name], "recording")
            while time.monotonic() - session.began < set_up and not all(
                (session.work / f"{p.name}-{TIMING}" / f"{p.name}.json").exists()
                or running[p.name, TIMING].poll() is not None
                for p in programs
            ):
                time.sleep(0.5)
            session.log("set up")
        while running:
            for key, process in list(running.items()):
                status = process.poll()
                late = time.monotonic() > session.ends
                if status is None and not late:
                    continue
                if status is None:
                    os.killpg(process.pid, 9)
                del running[key]
                session.collect(BY_NAME[key[0]], key[1], status)
            time.sleep(0.3)
        session.measure_peaks()
        session.log("done")
