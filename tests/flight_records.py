"""Flight-recorder dumps as NCCL's process group writes them, of runs whose hang is known."""

from __future__ import annotations

import json
import pickle

VERSION = "2.10"
LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
PROGRAM = "/home/someone/secret-project/train.py"

USUAL = {
    "group": "0",
    "size": [1024],
    "output": None,
    "dtype": "Float",
    "state": "completed",
    "line": 57,
    "function": "train_step",
    "same_launch": False,
    "at": None,
}


def frames(line, function):
    return [
        {"name": "all_reduce", "filename": LIBRARY, "line": 3245},
        {"name": function, "filename": PROGRAM, "line": line},
        {"name": "<module>", "filename": PROGRAM, "line": 100},
    ]


class Run:
    """Ranks that issue collectives in turn; `dumps` has what each would write.

    Args:
        groups: ranks by name of the group; "0" is that of all ranks.
    """

    def __init__(self, ranks, groups=None):
        self.groups = {"0": list(range(ranks)), **(groups or {})}
        self.entries = {rank: [] for rank in range(ranks)}
        self.sequence = {}
        self.clock = 1_700_000_000_000_000_000

    def issue(self, rank, operation="all_reduce", **about):
        """One operation of one rank; `USUAL` has what can be told of it."""
        about = {**USUAL, **about}
        group, point_to_point = about["group"], operation.startswith(("send", "recv"))
        key = (rank, group, point_to_point)
        if not about["same_launch"]:
            self.sequence[key] = self.sequence.get(key, 0) + 1
        collectives = self.sequence.get((rank, group, False), 0)
        messages = self.sequence.get((rank, group, True), 0)
        self.clock = self.clock + 1000 if about["at"] is None else about["at"]
        done = about["state"] == "completed"
        self.entries[rank].append(
            {
                "frames": frames(about["line"], about["function"]),
                "record_id": len(self.entries[rank]),
                "pg_id": list(self.groups).index(group),
                "process_group": (group, describe(group)),
                "thread_name": "pt_main",
                "thread_id": "1",
                "collective_seq_id": collectives,
                "p2p_seq_id": messages,
                "op_id": collectives + messages,
                "profiling_name": f"nccl:{operation}",
                "time_created_ns": self.clock,
                "input_sizes": [about["size"]],
                "input_dtypes": [about["dtype"]],
                "output_sizes": [about["output"] or about["size"]],
                "output_dtypes": [about["dtype"]],
                "state": about["state"],
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": self.clock + 500 if done else None,
                "retired": done,
                "timeout_ms": 600000,
                "is_p2p": point_to_point,
            }
        )

    def launch(self, rank):
        """The last operations of a rank as one, which is done: the entry of the whole."""
        last = self.entries[rank][-1]
        nothing = {name: [] for name in last if name.endswith(("_sizes", "_dtypes"))}
        whole = {"profiling_name": "nccl:coalesced", "is_p2p": False, "state": "completed"}
        number = len(self.entries[rank])
        self.entries[rank].append({**last, **nothing, **whole, "record_id": number})

    def all(self, operation="all_reduce", *, but=(), group="0", **about):
        """One operation of all ranks of a group."""
        for rank in self.groups[group]:
            if rank not in but:
                self.issue(rank, operation, group=group, **about)

    def dump(self, rank):
        mine = {name: ranks for name, ranks in self.groups.items() if rank in ranks}
        return {
            "version": VERSION,
            "comm_lib_version": "2.27.5",
            "pg_config": {
                name: {"name": name, "desc": describe(name), "ranks": str(ranks)}
                for name, ranks in mine.items()
            },
            "pg_status": {
                str(list(self.groups).index(name)): {
                    "last_enqueued_collective": self.sequence.get((rank, name, False), 0),
                    "last_started_collective": -1,
                    "last_completed_collective": self._completed(rank, name),
                }
                for name in mine
            },
            "entries": self.entries[rank],
        }

    def _completed(self, rank, group):
        return max(
            (
                e["collective_seq_id"]
                for e in self.entries[rank]
                if e["process_group"][0] == group and not e["is_p2p"] and e["state"] == "completed"
            ),
            default=-1,
        )

    def write(self, folder, *, but=(), form="pickle"):
        """Dumps of all ranks but those; the paths."""
        paths = []
        for rank in self.entries:
            if rank in but:
                continue
            dump = self.dump(rank)
            if form == "pickle":
                path = folder / f"nccl_trace_rank_{rank}"
                path.write_bytes(pickle.dumps(dump, protocol=2))
            else:
                for entry in dump["entries"]:
                    del entry["frames"]
                path = folder / f"nccl_trace_rank_{rank}.json"
                path.write_text(json.dumps(dump))
            paths.append(path)
        return paths


def describe(group):
    return "default_pg" if group == "0" else f"mesh_{group}"


def healthy():
    run = Run(4)
    for _ in range(5):
        run.all()
    return run


def absent():
    """Rank 2 does not come to the fourth."""
    run = Run(4)
    for _ in range(3):
        run.all()
    run.all(but=[2], state="scheduled", line=61)
    return run


def operation():
    """Rank 1 broadcasts where the others reduce."""
    run = Run(4)
    run.all()
    run.all(but=[1], state="scheduled")
    run.issue(1, "broadcast", state="scheduled", line=80, function="evaluate")
    return run


def left_out():
    """Rank 1 leaves out a call, and issues the next one."""
    run = Run(4)
    run.all()
    run.all(but=[1], state="scheduled", size=[1024])
    run.all(state="scheduled", size=[333], line=70)
    return run


def sizes():
    """Rank 3 has half of a batch."""
    run = Run(4)
    run.all()
    run.all(but=[3], state="started", size=[32, 8])
    run.issue(3, state="started", size=[16, 8])
    return run


def dtypes():
    run = Run(2)
    run.issue(0, state="started")
    run.issue(1, state="started", dtype="BFloat16")
    return run


def circle():
    """Two groups of the same ranks, in another order on each."""
    run = Run(2, {"1": [0, 1], "2": [0, 1]})
    run.all()
    for rank, order in ((0, "12"), (1, "21")):
        for group in order:
            run.issue(rank, group=group, state="scheduled", line=30 + int(group))
    return run


def two_groups():
    """Rank 3 is absent in its group; the group of all waits for those who wait for it."""
    run = Run(4, {"1": [0, 1], "2": [2, 3]})
    run.all()
    run.all(group="1")
    run.issue(2, group="2", state="scheduled", line=44, function="tensor_parallel")
    for rank in (0, 1):
        run.issue(rank, state="scheduled", line=90)
    return run


def unmatched():
    """Rank 1 waits for a message that rank 0 did not send."""
    run = Run(2)
    run.all()
    for _ in range(2):
        run.issue(1, "recv 1<-0", state="scheduled", line=22, function="recv_forward")
    run.issue(0, "send 0->1", state="scheduled", line=20, function="send_forward")
    run.issue(0, state="scheduled", line=90)
    return run


def unfinished():
    run = Run(4)
    run.all()
    run.all(state="started")
    return run


def coalesced():
    """Sends and receives launched as one, of which only the whole is seen to end."""
    run = Run(2)
    run.all("reduce_scatter_base")
    for rank in (0, 1):
        run.issue(rank, f"send {rank}->{1 - rank}", state="scheduled")
        run.issue(rank, f"recv {rank}<-{1 - rank}", state="scheduled", same_launch=True)
        run.launch(rank)
    run.all()
    return run


SCENARIOS = {
    "healthy": (healthy, "none"),
    "absent": (absent, "absent"),
    "operation": (operation, "mismatch"),
    "left_out": (left_out, "mismatch"),
    "sizes": (sizes, "mismatch"),
    "dtypes": (dtypes, "mismatch"),
    "circle": (circle, "circle"),
    "two_groups": (two_groups, "absent"),
    "unmatched": (unmatched, "unmatched"),
    "unfinished": (unfinished, "unfinished"),
    "coalesced": (coalesced, "none"),
}
"""By name: what makes the run, and why it hangs."""
