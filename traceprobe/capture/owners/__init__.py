"""Who owns a kernel that nothing encloses when it is launched: noted where it is still known.

A replay of a CUDA graph is one call, and compiled code launches kernels that no operator encloses.
Modules, lines and operators are known when the graph is captured (`graph_capture`) and when the
code is compiled (`compiled_code`); `owner_table` makes a record of them, which ends in the sidecar.
"""
