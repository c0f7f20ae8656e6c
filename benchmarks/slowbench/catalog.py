"""All programs with nothing left to mend, and the ways in which causes get into them.

A program of `benchmarks/training_programs` is healthy with the options here. The line that costs
the time has the comment `# slow: CAUSE` in the program; what is put in gets it.
"""

from __future__ import annotations

from benchmarks.slowbench.loading_programs import LOADING
from benchmarks.slowbench.ranks_programs import RANKS
from benchmarks.slowbench.resident_programs import RESIDENT
from benchmarks.slowbench.text_programs import TEXT

CATALOG = (*LOADING, *TEXT, *RESIDENT, *RANKS)
BY_NAME = {program.name: program for program in CATALOG}
