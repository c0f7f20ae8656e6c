"""How much a recording may hold of the owners of kernels, for those who write and who read it.

On the standard library alone: the writer runs in the recorded program.
"""

MOST_OWNERS = 5_000
"""Owners, and texts that they are made of; GPT-2 with 48 layers has 600."""
LONGEST_OWNER = 200
"""Characters of a text; of a longer one there is a digest."""
MOST_NODES = 12_000
"""Nodes of all graphs; a training step of GPT-2 has 2,000."""
MOST_CALLS = 12_000
"""Calls of kernels and operators in all compiled code."""
MOST_REPLAYS = 4_000
"""Replays of graphs of which the order is known, the last ones."""
MOST_BREAKS = 100
"""Places where graphs break."""
MOST_DOUBLE = 100
"""Compiled kernels that compute with 64 bits."""
MOST_GRAPHS = 1_000
"""Graphs, and pieces of compiled code."""
