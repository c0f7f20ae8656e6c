"""Damage to Chrome traces: to their events, to their metadata, to their text."""

from __future__ import annotations

import copy
import gzip
import json
import re
from random import Random
from typing import Any

from tests.fuzzing.values import NAMES, nasty, scramble

Trace = dict[str, Any]

CATEGORIES = [
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op"),
    *("user_annotation", "gpu_user_annotation", "python_function", "ac2g", "fwdbwd", "overhead"),
    *("cpu_instant_event", "Trace", "Kernel", "Runtime", "cpu_to_cuda", "cuda_sync", "", None, 7),
]
PHASES = ["X", "B", "E", "i", "M", "s", "f", "C", "", None, 3]
TOKENS = ["NaN", "Infinity", "-Infinity", "inf", "N/A", "-nan", "1e999", "tru", "'x'", ""]
METADATA = [
    *("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion", "traceName"),
    *("displayTimeUnit", "with_stack", "record_shapes", "profile_memory", "traceprobe"),
]
RECORDED = ["unprofiled_step_ms", "unprofiled_data_wait_ms", "workload", "hardware", "memory"]
WORKLOAD = ["flops_per_step", "ranks", "samples_per_step", "settings", "work", "vocabulary"]
EVENTS = 300
"""At most so many of a base's events are kept: damage is found in small files, and faster."""


def mutate(data: bytes, random: Random) -> bytes:
    """Some damage to a trace, plain or gzipped; the same for the same state of `random`."""
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    try:
        trace = json.loads(plain)
    except ValueError:
        return scramble(plain, random)
    return damage(trace, random)


def damage(base: Any, random: Random) -> bytes:
    """Some damage to a decoded trace, which stays as it is."""
    trace = dict(base) if isinstance(base, dict) else {"traceEvents": base}
    events = trace.pop("traceEvents", [])
    trace = copy.deepcopy(trace)
    trace["traceEvents"] = _excerpt(events if isinstance(events, list) else [], random)
    for _ in range(random.choice([0, 1, 1, 2, 5, 20])):
        random.choice([_field, _field, _argument, _event, _event, _metadata])(trace, random)
    text = json.dumps(trace if random.random() < 0.95 else trace["traceEvents"])
    if random.random() < 0.3:
        text = _token(text, random)
    found = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.25:
        found = scramble(found, random)
    if random.random() < 0.2:
        found = gzip.compress(found, compresslevel=1, mtime=0)
        if random.random() < 0.5:
            found = scramble(found, random)
    return found


def thin(trace: Any) -> Any:
    """A trace of so few events that it can be kept at hand; those of one time stand together."""
    if not isinstance(trace, (dict, list)):
        return trace
    events = trace if isinstance(trace, list) else trace.get("traceEvents")
    if not isinstance(events, list):
        return trace
    timed = [e for e in events if isinstance(e, dict) and isinstance(e.get("ts"), (int, float))]
    timed.sort(key=lambda event: event["ts"])
    middle = max(len(timed) // 2 - 10 * EVENTS, 0)
    others = [e for e in events if not isinstance(e, dict) or e.get("ph") == "M"]
    kept = [*others[: EVENTS // 4], *timed[middle : middle + 20 * EVENTS]]
    return kept if isinstance(trace, list) else {**trace, "traceEvents": kept}


def _excerpt(events: list[Any], random: Random) -> list[Any]:
    """The first events, which say who is who, and a run of those of one time."""
    first = min(EVENTS // 4, len(events))
    size = min(EVENTS, len(events) - first)
    at = random.randrange(first, len(events) - size + 1)
    return copy.deepcopy([*events[:first], *events[at : at + size]])


def _one(trace: Trace, random: Random) -> dict[str, Any]:
    events = [e for e in trace["traceEvents"] if isinstance(e, dict)]
    return random.choice(events) if events else {}


def _field(trace: Trace, random: Random) -> None:
    event = _one(trace, random)
    key = random.choice(["ph", "cat", "name", "ts", "dur", "pid", "tid", "id", "args", "bp", "s"])
    if key == "cat":
        event[key] = random.choice(CATEGORIES)
    elif key == "ph":
        event[key] = random.choice(PHASES)
    elif random.random() < 0.2:
        event.pop(key, None)
    elif (
        key in ("ts", "dur") and isinstance(event.get(key), (int, float)) and random.random() < 0.5
    ):
        event[key] = event[key] * random.choice([-1, 0, 1000, 1e12, 0.001])
    else:
        event[key] = nasty(random)


def _argument(trace: Trace, random: Random) -> None:
    event = _one(trace, random)
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        event["args"] = arguments = {}
    key = random.choice(
        [
            *arguments,
            *("correlation", "External id", "stream", "device", "bytes", "Sequence number"),
            *("graph id", "Collective name", "Process Group Name", "In msg nelems", "labels"),
            *("Out msg nelems", "Group size", "dtype", "Rank", "blocks per SM", "Fwd thread id"),
        ]
    )
    arguments[key] = nasty(random)


def _event(trace: Trace, random: Random) -> None:
    events = trace["traceEvents"]
    how = random.randrange(6)
    if how == 0 and events:
        del events[random.randrange(len(events))]
    elif how == 1 and events:
        events.extend(copy.deepcopy(random.choice(events)) for _ in range(random.choice([1, 30])))
    elif how == 2:
        random.shuffle(events)
    elif how == 3:
        events.append(nasty(random))
    elif how == 4 and events:
        kept = _one(trace, random).get("cat")
        trace["traceEvents"] = [e for e in events if isinstance(e, dict) and e.get("cat") != kept]
    else:
        name = random.choice(NAMES)
        for event in events:
            if isinstance(event, dict) and random.random() < 0.3:
                event["name"] = name


def _metadata(trace: Trace, random: Random) -> None:
    key = random.choice(METADATA)
    if key == "traceprobe" and random.random() < 0.8:
        _recorded(trace, random)
        return
    value = trace.get(key)
    if isinstance(value, dict) and value and random.random() < 0.6:
        value[random.choice(list(value))] = nasty(random)
    elif random.random() < 0.3:
        trace.pop(key, None)
    else:
        trace[key] = nasty(random)


def _recorded(trace: Trace, random: Random) -> None:
    """A field of what a capture recorded, also in traces that none recorded."""
    record = trace.get("traceprobe")
    trace["traceprobe"] = record = record if isinstance(record, dict) else {}
    if random.random() < 0.5:
        record[random.choice([*record, *RECORDED])] = nasty(random)
        return
    workload = record.get("workload")
    record["workload"] = workload = workload if isinstance(workload, dict) else {}
    workload[random.choice([*workload, *WORKLOAD])] = nasty(random)


def _token(text: str, random: Random) -> str:
    """Something that is no JSON in place of some number."""
    numbers = list(re.finditer(r": -?[\d.]+", text))
    if not numbers:
        return text
    chosen = random.choice(numbers)
    return f"{text[: chosen.start()]}: {random.choice(TOKENS)}{text[chosen.end() :]}"
