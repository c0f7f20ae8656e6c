"""Writers of synthetic traces: one scenario, two formats, exact expected numbers."""
