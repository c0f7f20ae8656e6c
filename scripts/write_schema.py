"""Write the JSON Schema of report.json: structure from the types, meanings from the documentation.

    python scripts/write_schema.py           # writes traceprobe/records/report.schema.json
    python scripts/write_schema.py --check   # exit 1 if that file is not what would be written

The tables of docs/report-json.md must name every field of every record with its type: where they
do not, nothing is written.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.model import taxonomy  # noqa: E402
from traceprobe.records.report import Report  # noqa: E402
from traceprobe.render.pages import ablation as ablation_text  # noqa: E402
from traceprobe.verdict.thresholds import Thresholds  # noqa: E402

PAGE = ROOT / "docs" / "report-json.md"
TARGET = ROOT / "traceprobe" / "records" / "report.schema.json"
Schema = dict[str, Any]

KEBAB = r"^[a-z0-9]+(-[a-z0-9]+)*$"
NANOSECONDS: Schema = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
# What the types leave open: dictionaries with fixed keys, and strings and numbers with a form.
FIXED = {
    "PartitionNs": (taxonomy.PARTITION, NANOSECONDS),
    "BusyNs": (taxonomy.BUSY, NANOSECONDS),
    "KernelNs": (taxonomy.KERNEL_CLASSES, {"type": "integer", "minimum": 0}),
    "Shares": (taxonomy.SHARES, {"type": "number", "minimum": 0, "maximum": 1}),
    "SkewCauses": (taxonomy.SKEW_CAUSES, {"type": "number", "minimum": 0, "maximum": 1}),
    "AblationShares": (
        ablation_text.PARTS,
        {"anyOf": [{"$ref": "#/$defs/Share"}, {"type": "null"}]},
    ),
    "Thresholds": (tuple(Thresholds().as_dict()), {"type": "number", "minimum": 0}),
}
NAMED = {
    "partition_ns": "PartitionNs",
    "busy_ns": "BusyNs",
    "kernel_ns": "KernelNs",
    "share": "Shares",
    "shares": "Shares",
    "skew_causes": "SkewCauses",
    "thresholds": "Thresholds",
    "cause": "IdleCause",
}
NAMED_IN = {("AblationVerdict", "shares"): "AblationShares"}
"""Names of one record that mean something else than elsewhere."""
OPTIONAL = {
    ("Quality", "nccl_records"),
    ("Quality", "recording"),
    ("Recording", "reason"),
    ("Finding", "predicted"),
    ("Finding", "saving_of"),
    ("Finding", "sites"),
    ("Suggestion", "predicted"),
    ("Communication", "stage_wait_ns"),
    ("HostActivity", "awaited_copies"),
    ("HostActivity", "awaits_device_ns"),
    ("HostActivity", "blocking_calls"),
    ("HostActivity", "blocks_per_step"),
    ("HostActivity", "phase_kernels"),
    ("HostActivity", "phase_launch_ns"),
    ("HostActivity", "set_up"),
    ("HostActivity", "head_idle_ns"),
    ("HostActivity", "device_allocations"),
    ("HostActivity", "compilations"),
    ("HostActivity", "garbage_collections"),
    ("HostActivity", "compiled_regions"),
    ("KernelShare", "beside_communication_ns"),
    ("Summary", "attention"),
    ("Summary", "double_precision"),
    ("Summary", "embedding_tables"),
    ("Summary", "forward_only"),
    ("HostActivity", "loader_in_workers"),
    ("HostActivity", "updates"),
    ("Summary", "logits"),
    ("Summary", "masked_attention"),
    ("Summary", "repeated_collectives"),
    ("Summary", "unused_gradients"),
    ("Summary", "micro_batches"),
    ("Summary", "repeated_backward"),
    ("HostToDevice", "returned_bytes"),
    ("Summary", "launches"),
    ("Summary", "operators"),
    ("Summary", "sequences"),
    ("Summary", "tiny_kernels"),
    ("Summary", "gpu_metrics"),
    ("Summary", "kernel_counters"),
    ("Quality", "damage"),
    ("Quality", "lost"),
    ("Rank", "long"),
    ("Rank", "picture"),
    ("Rank", "replay"),
    ("Rank", "slices"),
    ("Rank", "speed"),
    ("Rank", "tree"),
    ("Replay", "end_ns"),
    ("Replay", "group"),
    ("Replay", "inferred_needs"),
    ("Replay", "line"),
    ("Replay", "more_needs"),
    ("Replay", "more_rows"),
    ("Replay", "name"),
    ("Replay", "names"),
    ("Replay", "ops"),
    ("Replay", "packing_host_ns"),
    ("Replay", "pause_ns"),
    ("HostActivity", "pause_ns"),
    ("Replay", "packing_ns"),
    ("Replay", "recorded_needs"),
    ("Replay", "slowed_ns"),
    ("Replay", "start_ns"),
    ("Replay", "unresolved_needs"),
    ("Report", "causal"),
    ("Report", "critical_path"),
    ("Report", "headroom"),
    ("Report", "joint"),
    ("Report", "loader"),
    ("Report", "memory"),
    ("Report", "roofline"),
    ("Roofline", "operators"),
    ("Roofline", "sampled"),
    ("LongIterations", "period"),
    ("LongIterations", "timed_long"),
    ("LongIterations", "timed_steps"),
    ("LongIterations", "mean_step_ms"),
    ("Run", "late_ranks"),
    ("Run", "straggler_wait_ns"),
    ("Run", "links"),
    ("CollectiveGroup", "channels"),
    ("CollectiveGroup", "forward"),
    ("Rank", "timed_wait_ms"),
    ("Run", "overview"),
    ("Run", "unseen_skew_ms"),
    ("Verdict", "limit"),
    ("Verdict", "skew"),
}
"""Fields that are left out where they have nothing to say."""
LEAST = {
    ("Blocking", "bytes"): -1,
    ("Blocking", "group"): -2,
    ("Replay", "bytes"): -1,
    ("Replay", "group"): -2,
}
"""Numbers that say that something is not known."""
SIGNED = ("Picture", "clock_ns")
FORMS: dict[tuple[str, str], Schema] = {
    ("Report", "schema_version"): {"pattern": r"^1\.\d+$"},
    ("Ablation", "schema_version"): {"pattern": r"^1\.\d+$"},
    ("Ablation", "ranks"): {"minimum": 1},
    ("Causal", "schema_version"): {"pattern": r"^1\.\d+$"},
    ("Causal", "ranks"): {"minimum": 1},
    ("Variant", "steps_per_trial"): {"minimum": 1},
    ("Share", "value"): {"minimum": 0, "maximum": 1},
    ("Share", "low"): {"minimum": 0, "maximum": 1},
    ("Share", "high"): {"minimum": 0, "maximum": 1},
    ("Input", "sha256"): {"pattern": r"^[0-9a-f]{64}$"},
    ("Input", "origin_ns"): {"pattern": r"^-?\d+$"},
    ("Message", "code"): {"pattern": KEBAB},
    ("Term", "name"): {"pattern": KEBAB},
    ("Finding", "id"): {"pattern": KEBAB},
    ("Verdict", "confidence"): {"minimum": 0, "maximum": 1},
    ("StepMarker", "confidence"): {"minimum": 0, "maximum": 1},
}


def structure() -> Schema:
    """The schema without descriptions."""
    schema = msgspec.json.schema(Report)
    definitions: Schema = schema.pop("$defs")
    for record, definition in definitions.items():
        definition.pop("description", None)
        # A report has every field but these, whatever a reader of it may assume.
        definition["required"] = sorted(
            field for field in definition["properties"] if (record, field) not in OPTIONAL
        )
        for field, kind in definition["properties"].items():
            kind.pop("default", None)
            name = NAMED_IN.get((record, field), NAMED.get(field))
            if name is not None:
                _refer(definition["properties"], field, name)
            kind.update(FORMS.get((record, field), {}))
            if (record, field) != SIGNED and (field.endswith("_ns") or field == "bytes"):
                _at_least(kind, LEAST.get((record, field), 0))
    for name, (keys, kind) in FIXED.items():
        definitions[name] = {
            "title": name,
            "type": "object",
            "properties": {key: json.loads(json.dumps(kind)) for key in keys},
            "required": sorted(keys),
        }
        for value in definitions[name]["properties"].values():
            _at_least(value, 0)
    definitions["IdleCause"] = {"title": "IdleCause", "enum": sorted(taxonomy.IDLE_CAUSES)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:traceprobe:report:{Report.SCHEMA_VERSION}",
        "title": f"traceprobe report, schema version {Report.SCHEMA_VERSION}",
        **schema,
        "$defs": definitions,
    }


def _refer(properties: Schema, field: str, name: str) -> None:
    """Put a reference where the type only says dictionary or string."""
    reference = {"$ref": f"#/$defs/{name}"}
    null = {"type": "null"}
    nullable = null in properties[field].get("anyOf", [])
    properties[field] = {"anyOf": [reference, null]} if nullable else reference


def _at_least(kind: Schema, least: int) -> None:
    for one in (kind, kind.get("items", {}), *kind.get("anyOf", [])):
        if one.get("type") == "integer":
            one["minimum"] = least


def words(kind: Schema) -> str:
    """A type as the documentation writes it."""
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " or ".join(words(one) for one in kind["anyOf"])
    if "enum" in kind:
        return " or ".join(f'"{value}"' for value in kind["enum"])
    if kind["type"] == "array":
        return f"[{words(kind['items'])}]"
    return str(kind["type"])


def documented(page: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Record to field to (type, meaning), from the tables of the page."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        text = re.split(r"^#", text, flags=re.MULTILINE)[0]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
        found[name] = {field: (kind, meaning) for field, kind, meaning in rows}
    return found


def disagreements(schema: Schema, pages: dict[str, dict[str, tuple[str, str]]]) -> list[str]:
    """Where the tables and the types differ, as sentences."""
    found = []
    for record, definition in sorted(schema["$defs"].items()):
        rows = pages.get(record, {})
        types = {f: words(kind) for f, kind in definition.get("properties", {}).items()}
        for field in sorted(types.keys() | rows.keys()):
            if field not in rows:
                found.append(f"{record}.{field} is not documented")
            elif field not in types:
                found.append(f"{record}.{field} is documented and does not exist")
            elif rows[field][0] != types[field]:
                found.append(f"{record}.{field} is {types[field]}, documented as {rows[field][0]}")
    return found


def render() -> str:
    """The text of the schema file.

    Raises:
        SystemExit: the documentation and the types differ.
    """
    schema, pages = structure(), documented(PAGE.read_text(encoding="utf-8"))
    differences = disagreements(schema, pages)
    if differences:
        raise SystemExit(f"{PAGE.name} and the types differ:\n  " + "\n  ".join(differences))
    for record, definition in schema["$defs"].items():
        for field, kind in definition.get("properties", {}).items():
            kind["description"] = pages[record][field][1]
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file, or compare it."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{TARGET.name} is out of date; run scripts/write_schema.py")
        return
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
