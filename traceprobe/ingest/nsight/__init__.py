"""Nsight Systems SQLite exports: tables to columns."""
