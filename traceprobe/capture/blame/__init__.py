"""Names for a recording: modules, lines and shapes, from a second capture after the timed one.

The timed capture records as little as it can. What it took the time from is recorded in a few more
steps, which may be slow: their operators are found again in the timed steps, and their names are
carried over to where those were. In the program run `recorder`, `line_trace`, `own_code` and
`module_names`, on the standard library and torch alone; `embed` and what it uses run in the process
that started the program.
"""
