"""Structure-aware damage to traces of both formats, and a loop that looks for what it breaks."""
