"""Traces and results without private names."""
