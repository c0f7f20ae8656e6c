"""A trace with what an analysis found in it, as tracks and counters for viewers."""
