"""One trace to its part of a report, all parts to the report."""
