"""Scenarios that were written to files and are read again, as traces and as reports."""

from __future__ import annotations

from tests.builders import kineto, nsight
from traceprobe import analyze
from traceprobe.ingest.read_trace import read_trace

WRITERS = [(kineto.write, "json"), (nsight.write, "sqlite")]
"""Of each format: what writes it, and the suffix of its files."""


def read_kineto(scenario, tmp_path, dialect="E", **options):
    """The trace that is read from a scenario written as a PyTorch profiler trace."""
    return read_trace(kineto.write(scenario, tmp_path / "trace.json", dialect, **options))


def read_nsight(scenario, tmp_path, schema="3.24.0", **options):
    """The trace that is read from a scenario written as an Nsight Systems export."""
    return read_trace(nsight.write(scenario, tmp_path / "run.sqlite", schema, **options))


def read_bytes(data, tmp_path, name="trace.json"):
    """The trace that is read from a file of these bytes."""
    path = tmp_path / name
    path.write_bytes(data)
    return read_trace(path)


def report_of_scenario(scenario, tmp_path, write=kineto.write, suffix="json", **options):
    """The report of a scenario that was written to a file and read again."""
    return analyze(read_trace(write(scenario, tmp_path / f"trace.{suffix}", **options)))
