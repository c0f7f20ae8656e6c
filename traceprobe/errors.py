"""Errors that every room may raise; `traceprobe.model` has those of the inputs."""

from __future__ import annotations


class TraceprobeError(Exception):
    """Base of every error raised on purpose; the message says what, where and how to fix it."""


class DamagedRecord(TraceprobeError):
    """A saved result contradicts itself: it was changed, or is none of traceprobe."""
