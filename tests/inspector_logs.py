"""Logs as NCCL Inspector writes them.

Of v4.0 strictly after plugins/profiler/inspector/inspector_json.cc of NCCL, of v4.3 after the pull
request that brings it (https://github.com/NVIDIA/nccl/pull/2359).
"""

from __future__ import annotations

import gzip
import json

HOST = "gpu-node-01"
HASH = 0x7F8C496AE9F66123
"""Of 64 bits, of which a log has room for the first 56."""
SMALLEST = 8_192
"""Bytes below which the plugin notes nothing, unless told otherwise."""


class Log:
    """The log of one process; operations are given in the order in which they ended.

    Args:
        rank, ranks: in the communicator. timed: NCCL_INSPECTOR_DUMP_VERBOSE=1.
    """

    def __init__(self, rank=0, ranks=2, *, version="v4.0", timed=True, communicator=HASH, pid=7):
        self.rank, self.ranks, self.version, self.timed = rank, ranks, version, timed
        self.communicator, self.pid = communicator, pid
        self.marked = None
        self.lines = []
        self.numbers = {}

    def note(self, operation, size, began_us, *, lasts_us=5, of=None):
        """One operation; size in bytes as the call was given it.

        Args:
            of: (communicator, rank, ranks) where it is another one than that of the log.
        """
        communicator, rank, ranks = of or (self.communicator, self.rank, self.ranks)
        number = self.numbers[communicator, operation] = (
            self.numbers.get((communicator, operation), -1) + 1
        )
        message = operation in ("Send", "Recv")
        kind = "p2p" if message else "coll"
        body = {
            kind: operation,
            f"{kind}_sn": number + message,
            **({"p2p_peer": 1 - rank} if message else {}),
            f"{kind}_msg_size_bytes": size,
            f"{kind}_exec_time_us": 950,
            f"{kind}_timing_source": "kernel_gpu",
            f"{kind}_algobw_gbs": 12.5,
            f"{kind}_busbw_gbs": 12.5,
        }
        if self.timed:
            channel = {"channel_id": 0}
            body["event_trace_sn"] = {
                f"{kind}_start_sn": 1,
                f"{kind}_stop_sn": 2,
                "kernel_events": [
                    {**channel, "kernel_start_sn": 3, "kernel_stop_sn": 5, "kernel_record_sn": 4}
                ],
            }
            body["event_trace_ts"] = {
                f"{kind}_start_ts": began_us,
                f"{kind}_stop_ts": began_us + lasts_us,
                "kernel_events": [
                    {
                        **channel,
                        "kernel_start_ts": began_us + 12,
                        "kernel_stop_ts": began_us + 990,
                        "kernel_record_ts": began_us + 989,
                    }
                ],
            }
        whose = {
            "header": {
                "id": f"0x{communicator:x}"[:16],
                "comm_name": "default_pg",
                "rank": rank,
                "n_ranks": ranks,
                "nnodes": 1,
            },
            "metadata": {
                "inspector_output_format_version": self.version,
                "git_rev": "",
                "rec_mechanism": "nccl_profiler_interface",
                "dump_timestamp_us": began_us + 1_500,
                "hostname": HOST,
                "pid": self.pid,
            },
        }
        body = {f"{kind}_perf": body}
        if self.version < "v4.3":
            self._write({**whose, **body})
            return
        if self.marked != communicator:
            self._write({**whose, "dump_stats": {"coll_records": 1, "coll_dropped_total": 0}})
            self.marked = communicator
        self._write(body)

    def _write(self, value):
        # The plugin's writer escapes slashes, too.
        self.lines.append(json.dumps(value, separators=(",", ":")).replace("/", "\\/"))

    def data(self):
        return "".join(f"{line}\n" for line in self.lines).encode()

    def write(self, folder, *, packed=False, name=None):
        folder.mkdir(exist_ok=True)
        path = folder / (name or f"{HOST}-pid{self.pid}.log{'.gz' * packed}")
        path.write_bytes(gzip.compress(self.data()) if packed else self.data())
        return path
