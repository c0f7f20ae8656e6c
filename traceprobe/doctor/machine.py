"""Checks of a machine: can it analyse traces, and can it record them? Pure functions of `Facts`."""

from __future__ import annotations

import re

from traceprobe.doctor import gpu_state
from traceprobe.doctor.check import Checks, Judgement, absent
from traceprobe.doctor.facts import Facts, Version
from traceprobe.formatting import size

GIB = 1 << 30
LEAST_PYTHON: Version = (3, 10)
LEAST_TEMPORARY = GIB // 4
ENOUGH_TEMPORARY = 2 * GIB
ENOUGH_MEMORY = 2 * GIB
OLD_NSYS: Version = (2023, 4)
"""Before it `nsys export` cannot leave tables out, and graph replays have no rows at all."""
NSYS_FOR_DRIVER: tuple[tuple[int, Version], ...] = ((580, (2025, 3)), (525, (2022, 4)))
"""Driver branch to the nsys of the first CUDA toolkit of that major version: 13.0 and 12.0.

Older ones do not know the driver and record no CUDA events, or only some.
"""
LEAST_PARANOID = 2
"""Up to this the kernel lets a user sample his own processes."""
_BOUND = re.compile(r"(>=|<=|==|<|>)([\d.]+)")
_TOLD = {"": "the import", "import": "CUDA", "cuda": "the profiler"}
"""What PyTorch was asked when it stopped answering, by the last stage that it answered."""


CHECKS = Checks[Facts]()


def _numbers(version: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


@CHECKS.add(
    "python",
    tests="The Python that runs traceprobe. Fails below 3.10.",
    meaning="traceprobe is not tested with it, and parts of it do not load.",
    fix="Install Python 3.10 or later, and traceprobe with its pip.",
)
def _python(facts: Facts) -> Judgement:
    text = ".".join(map(str, facts.python))
    return ("ok" if facts.python >= LEAST_PYTHON else "fail"), f"Python {text}"


def _satisfies(version: str, specifiers: str) -> bool:
    have = _numbers(version)
    holds = {
        ">=": lambda bound: have >= bound,
        "<=": lambda bound: have <= bound,
        "==": lambda bound: have == bound,
        "<": lambda bound: have < bound,
        ">": lambda bound: have > bound,
    }
    return all(holds[sign](_numbers(bound)) for sign, bound in _BOUND.findall(specifiers))


@CHECKS.add(
    "dependencies",
    tests="Each library that traceprobe needs, against the bounds of its package. Fails where "
    "one is missing or out of bounds.",
    meaning="`traceprobe analyze` may stop with an error, or never start.",
    fix="`pip install --upgrade traceprobe` in this environment.",
)
def _dependencies(facts: Facts) -> Judgement:
    missing = sorted(name for name, version in facts.packages.items() if version is None)
    wrong = [
        f"{name} {version} (needs {facts.required[name]})"
        for name, version in sorted(facts.packages.items())
        if version is not None and not _satisfies(version, facts.required.get(name, ""))
    ]
    if missing or wrong:
        return "fail", "; ".join([*(f"{name} is missing" for name in missing), *wrong])
    return "ok", ", ".join(f"{name} {version}" for name, version in facts.packages.items())


@CHECKS.add(
    "torch",
    tests="Imports PyTorch in a process of its own, with two minutes of patience. Warns where "
    "it is not installed, fails where it breaks or hangs.",
    meaning="`traceprobe profile` and `traceprobe bench` cannot run a built-in workload. "
    "`traceprobe analyze` does not need PyTorch.",
    fix="`pip install torch`. Where `python -c 'import torch'` fails or hangs "
    "too, install PyTorch again, for the CUDA version that the driver supports.",
)
def _torch(facts: Facts) -> Judgement:
    torch = facts.torch
    built = f"for CUDA {torch.cuda}" if torch.cuda else "for the CPU"
    if torch.cuda and torch.cuda.startswith("ROCm"):
        built = f"for {torch.cuda}"
    name = f"PyTorch {torch.version} {built}" if torch.version else "PyTorch"
    if torch.state == "absent":
        return "warn", "PyTorch is not installed beside traceprobe"
    if torch.state == "hangs":
        return "fail", f"{name} does not answer: {_TOLD.get(torch.stage, 'it')} hangs"
    if torch.state == "broken":
        return "fail", f"{name} is broken: {_TOLD.get(torch.stage, 'it')} ended with {torch.error}"
    return "ok", name


def _silent(facts: Facts) -> Judgement | None:
    """The judgement of what only PyTorch can tell, where it tells nothing."""
    if facts.torch.state == "absent":
        return absent("PyTorch is not installed")
    return None if facts.torch.state == "ok" else ("unknown", "PyTorch does not say")


@CHECKS.add(
    "cuda",
    tests="Whether PyTorch finds GPUs. Warns where there is nothing to find, where PyTorch is "
    "built for the CPU, and where CUDA_VISIBLE_DEVICES is empty; fails where a driver is "
    "loaded and PyTorch finds no GPU.",
    meaning="What is recorded here is a CPU run: its report describes the CPU, not the GPU. "
    "Traces from other machines can still be analysed.",
    fix="Record on a machine with a GPU; install PyTorch for CUDA, not newer than the driver "
    "supports (`nvidia-smi` names the version); give containers the GPU (`docker run --gpus "
    "all`).",
)
def _cuda(facts: Facts) -> Judgement:
    torch = facts.torch
    if silent := _silent(facts):
        return silent
    if torch.cuda_available:
        count = {name: torch.devices.count(name) for name in dict.fromkeys(torch.devices)}
        return "ok", ", ".join(f"{n} x {name}" for name, n in count.items()) or "available"
    if facts.driver is None:
        return "warn", "there is no GPU driver, and PyTorch finds no GPU"
    if torch.cuda is None:
        return "warn", f"there is a GPU driver ({facts.driver}), and PyTorch is built for the CPU"
    if facts.hidden_gpus:
        return "warn", "CUDA_VISIBLE_DEVICES hides every GPU"
    return "fail", f"PyTorch for CUDA {torch.cuda} finds no GPU with driver {facts.driver}"


@CHECKS.add(
    "gpu-clock",
    tests="The clock of each GPU now, and why it is lower than it could be. Warns of the limit of "
    "power, of heat, and of a brake.",
    meaning="Kernels take longer than they could, and how long changes with heat and load: steps "
    "recorded now are not those of another time.",
    fix="Record when the GPU is cool and alone. `nvidia-smi -q -d PERFORMANCE` shows the reasons, "
    "`nvidia-smi -lgc` keeps a clock.",
)
def _gpu_clock(facts: Facts) -> Judgement:
    return gpu_state.throttling(facts.gpus)


@CHECKS.add(
    "gpu-alone",
    tests="The processes that compute on each GPU, and how busy it is. Warns where there are any, "
    "and from 5 % of the time on. In a container processes of others may be hidden.",
    meaning="Kernels of others take the GPU's time and its power: steps are longer, and not "
    "equally long. Memory that they hold is not there for the training.",
    fix="Wait for the others, end them, or choose another GPU (CUDA_VISIBLE_DEVICES).",
)
def _gpu_alone(facts: Facts) -> Judgement:
    return gpu_state.company(facts.gpus)


@CHECKS.add(
    "kineto",
    tests="Whether torch.profiler has its tracer and, with a GPU, can record CUDA. Fails "
    "where not.",
    meaning="`traceprobe profile --backend torch` gets no GPU rows: no verdict on the GPU.",
    fix="Install an official build of PyTorch, or record with `--backend nsys`.",
)
def _kineto(facts: Facts) -> Judgement:
    torch = facts.torch
    if silent := _silent(facts):
        return silent
    activities = ", ".join(torch.activities) or "nothing"
    if not torch.kineto:
        return "fail", "PyTorch is built without Kineto"
    if torch.cuda_available and "CUDA" not in torch.activities:
        return "fail", f"torch.profiler records {activities}, but no CUDA"
    return "ok", f"torch.profiler records {activities}"


@CHECKS.add(
    "cupti",
    tests="Which libcupti PyTorch has loaded. Warns where LD_LIBRARY_PATH put another one "
    "before the one that came with PyTorch.",
    meaning="Another version of CUPTI than PyTorch was built with: traces may lack all GPU "
    "rows, or some.",
    fix="Take the CUDA folders out of LD_LIBRARY_PATH for the program that is recorded.",
)
def _cupti(facts: Facts) -> Judgement:
    torch = facts.torch
    if torch.cupti is None:
        return absent("PyTorch has loaded no libcupti")
    if not torch.cupti_from_path:
        return "ok", f"{torch.cupti}, not from LD_LIBRARY_PATH"
    if torch.bundled_cupti in (None, torch.cupti):
        return "ok", f"{torch.cupti} from LD_LIBRARY_PATH; PyTorch brings no other"
    return "warn", (
        f"LD_LIBRARY_PATH puts {torch.cupti} before {torch.bundled_cupti}, which came with PyTorch"
    )


@CHECKS.add(
    "nsys",
    tests="The version of Nsight Systems, also against the NVIDIA driver. Warns where it is "
    "missing or older than 2023.4, fails where it is older than the driver's CUDA.",
    meaning="Without it `--backend nsys` cannot record and a `.nsys-rep` cannot be read. One "
    "that is older than the driver records no CUDA events, or only some; before 2023.4 the "
    "replays of CUDA graphs leave no rows, and the GPU looks idle.",
    fix="Install a current Nsight Systems (`apt install nsight-systems-cli`), or name it in "
    "TRACEPROBE_NSYS.",
)
def _nsys(facts: Facts) -> Judgement:
    if facts.nsys is None:
        return "warn", f"nsys does not run ({facts.nsys_error})" if facts.nsys_error else (
            "nsys is not installed"
        )
    version = _numbers(facts.nsys)
    if facts.driver is not None:
        branch = _numbers(facts.driver)[0]
        least = next((v for driver, v in NSYS_FOR_DRIVER if branch >= driver), OLD_NSYS)
        if version < least:
            needed = ".".join(map(str, least))
            return "fail", f"nsys {facts.nsys}, but driver {facts.driver} needs {needed} or later"
    if version < OLD_NSYS:
        return "warn", f"nsys {facts.nsys} is older than 2023.4"
    return "ok", f"nsys {facts.nsys}"


@CHECKS.add(
    "counters",
    tests="Whether the NVIDIA driver keeps performance counters for administrators "
    "(RmProfilingAdminOnly) and this process has no such right. Warns then.",
    meaning="GPU metrics of nsys and counters of CUPTI end with ERR_NVGPUCTRPERM. With some "
    "drivers torch.profiler then records no GPU rows at all "
    "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES). Tracing with nsys works.",
    fix="Load the driver with `NVreg_RestrictProfilingToAdminUsers=0`, or start the container "
    "with `--cap-add SYS_ADMIN`.",
)
def _counters(facts: Facts) -> Judgement:
    if facts.driver is None:
        return absent("there is no NVIDIA driver")
    if facts.admin_only is None:
        return "unknown", "the driver does not say who may read performance counters"
    if not facts.admin_only:
        return "ok", "the driver lets every user read performance counters"
    if facts.sys_admin:
        return "ok", "the driver wants CAP_SYS_ADMIN, and this process has it"
    return "warn", "the driver keeps performance counters for administrators (ERR_NVGPUCTRPERM)"


@CHECKS.add(
    "perf-events",
    tests="The kernel's perf_event_paranoid, where nsys is installed. Warns above 2.",
    meaning="nsys cannot sample the CPU. `traceprobe profile` does not ask it to, so no "
    "verdict suffers; your own captures lack call stacks.",
    fix="`sysctl kernel.perf_event_paranoid=2`, or `nsys profile --sample=none`.",
)
def _perf_events(facts: Facts) -> Judgement:
    if facts.nsys is None:
        return absent("only nsys samples the CPU")
    if facts.paranoid is None:
        return "unknown", "the kernel has no perf_event_paranoid"
    if facts.paranoid <= LEAST_PARANOID or facts.sys_admin:
        return "ok", f"perf_event_paranoid is {facts.paranoid}"
    return "warn", f"perf_event_paranoid is {facts.paranoid}, more than {LEAST_PARANOID}"


@CHECKS.add(
    "subscriber",
    tests="Signs of another profiler: variables that nsys and other injected tools set around "
    "this process, which fails, and services that watch the GPUs, which warns.",
    meaning="CUPTI serves one profiler at a time. torch.profiler inside nsys records no GPU "
    "rows; a service that holds the counters makes GPU metrics fail.",
    fix="Leave the other profiler out, or unset what it set; pause the service "
    "(`dcgmi profile --pause`) where GPU metrics are wanted.",
)
def _subscriber(facts: Facts) -> Judgement:
    if facts.around:
        return "fail", f"a profiler is around this process, which set {', '.join(facts.around)}"
    if facts.monitors:
        return "warn", f"services watch the GPUs: {', '.join(facts.monitors)}"
    return "ok", "no other profiler is seen"


@CHECKS.add(
    "nccl",
    tests="The version of NCCL, where there are several GPUs. Warns where PyTorch has none.",
    meaning="Several ranks would communicate through the CPU (gloo), and the report would "
    "describe that instead.",
    fix="Install a build of PyTorch with NCCL.",
)
def _nccl(facts: Facts) -> Judgement:
    torch = facts.torch
    if silent := _silent(facts):
        return silent
    if len(torch.devices) < 2:
        return absent("fewer than two GPUs")
    if torch.nccl is None:
        return "warn", "several GPUs, and PyTorch has no NCCL"
    return "ok", f"NCCL {torch.nccl}"


@CHECKS.add(
    "dali",
    tests="Whether NVIDIA DALI is installed. Never warns.",
    meaning="A loop that loads through DALI has no loader that torch.profiler sees: waiting "
    "for data counts as host overhead, `io` is too low and `overhead` too high.",
    fix='Wrap the iterator: `record.phase("data")` of `traceprobe.capture.recorder`, or '
    '`torch.profiler.record_function("data_load")`.',
)
def _dali(facts: Facts) -> Judgement:
    if facts.dali is None:
        return absent("DALI is not installed")
    return "ok", f"DALI {facts.dali}; wrap its iterator, torch.profiler does not see it load"


@CHECKS.add(
    "temporary-space",
    tests="The free space for temporary files. Warns below 2 GiB, fails below 256 MiB and "
    "where nothing can be written.",
    meaning="`.sqlite.gz` inputs are unpacked and `.nsys-rep` inputs exported there: a big "
    "one stops with an error.",
    fix="Set TMPDIR to a folder with room, or unpack the input yourself.",
)
def _temporary(facts: Facts) -> Judgement:
    if not facts.temporary_writable:
        return "fail", "no temporary file can be written"
    if facts.temporary_free is None:
        return "unknown", "the free space is not known"
    free = f"{size(facts.temporary_free)} free for temporary files"
    if facts.temporary_free < LEAST_TEMPORARY:
        return "fail", free
    return ("ok" if facts.temporary_free >= ENOUGH_TEMPORARY else "warn"), free


@CHECKS.add(
    "memory",
    tests="The memory that this process may use: the control group's limit, else the "
    "machine's. Warns below 2 GiB.",
    meaning="A big trace ends the process for lack of memory; one of several costs its rank.",
    fix="Raise the limit, give `--jobs 1`, or cut the trace with `traceprobe slice`.",
)
def _memory(facts: Facts) -> Judgement:
    if facts.memory is None:
        return "unknown", "the amount of memory is not known"
    limit = " by the limit of the control group" if facts.memory_limited else ""
    enough = facts.memory >= ENOUGH_MEMORY
    return ("ok" if enough else "warn"), f"{size(facts.memory)} of memory{limit}"


@CHECKS.add(
    "cores",
    tests="The cores of this process against the time that its control group grants. Warns "
    "where more cores are there than time.",
    meaning="`traceprobe analyze` starts a process for each core and each of them is slowed. "
    "In a recording, loader workers and the training loop take time from each other: `io` "
    "and `overhead` are higher than on a free machine.",
    fix="Give `--jobs` the granted number, or raise the limit.",
)
def _cores(facts: Facts) -> Judgement:
    count = f"{facts.cores} core{'s' if facts.cores > 1 else ''}"
    if facts.quota is not None and facts.quota < facts.cores:
        return "warn", f"{count}, but a control group grants the time of {facts.quota:.1f}"
    return "ok", count
