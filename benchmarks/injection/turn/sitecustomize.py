"""Lets a program import PyTorch ahead of its turn on the machine, and then wait for that turn.

The turn lasts until the process ends. Other processes, and those that the program forks, wait for
nothing.
"""

import os
import sys

if sys.orig_argv[1:2] == [os.environ.get("INJECTION_PROGRAM")]:
    import fcntl

    import torch  # noqa: F401

    _turn = open(os.environ["INJECTION_TURN"], "w")  # noqa: PTH123, SIM115 - until the end
    fcntl.flock(_turn, fcntl.LOCK_EX)
