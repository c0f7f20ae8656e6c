"""Does the optimizer update whole tables of embeddings for the few rows that were looked up?"""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence, factor_without
from traceprobe.findings.optimizer_forms import optimizers
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, percent
from traceprobe.records.embedding_table import EmbeddingTable
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

SPARSE = "Make the gradient hold the rows that were looked up: `nn.Embedding(..., sparse=True)`"
_TAKES_SPARSE = ("Adagrad", "SGD")
FUSED = (
    "`torch.optim` merges the rows of each table on its own, so for many tables take kernels that "
    "update the rows of all of them at once (FBGEMM's table-batched embeddings, TorchRec), or put "
    "them into one table with offsets."
)


@rule(
    "dense-embedding",
    title="Whole tables of embeddings are updated for a few rows",
    definition="Exclusive time of the optimizer's kernels, times the part of all gradients that is "
    "of tables of which a step looks up a tenth of the rows or less, less those rows. A table that "
    "a product reads, too, does not count. The saving is all of it. Only recorded shapes show it.",
    verify="`partition_ns.optimizer` falls. `aten::embedding_dense_backward` is gone.",
    of_gpu=True,
)
def dense_embedding(evidence: Evidence) -> Answer:
    """Updates of rows that no lookup used."""
    rank = max(evidence.ranks, key=_part, default=None)
    tables = [] if rank is None else _few_used(rank)
    if not tables:
        return not_applicable(
            "no table of embeddings is known to get a dense gradient for few rows"
        )
    optimizer = evidence.exclusive_ms("optimizer")
    needless = sum(table.part * (1 - _used(table)) for table in tables)
    ms = optimizer * needless
    count = sum(table.tables for table in tables)
    usual = ms - count * FIXED.merged_rows_ms
    few = 2 * usual > ms  # merging takes less than it leaves
    largest = max(tables, key=lambda table: table.rows)
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} of the optimizer's {evidence.amount(optimizer)} go to rows "
            f"that no lookup used, {percent(needless)} of all gradients",
            f"{counted(count, 'table')} with dense gradients, the largest of {largest.rows:,} "
            f"rows, of which a step looks up {round(largest.looked_up):,} at most",
        ],
        evidence.saving(ms, "optimizer"),
        _advice(evidence, few=few),
        changes=Changes(
            speedup={"optimizer": factor_without(usual, optimizer)}, margin=FIXED.usual_margin
        )
        if few
        else None,
    )


def _few_used(rank: Rank) -> list[EmbeddingTable]:
    tables = rank.summary.embedding_tables
    return [] if tables is UNSET else [t for t in tables if _used(t) <= FIXED.few_rows]


def _part(rank: Rank) -> float:
    return sum(table.part for table in _few_used(rank))


def _used(table: EmbeddingTable) -> float:
    """Part of the rows that a step looks up, at most."""
    return min(table.looked_up / table.rows, 1.0)


def _advice(evidence: Evidence, *, few: bool) -> str:
    """What to do, by how many tables there are, and what the optimizer takes."""
    if not few:
        return FUSED
    names = optimizers(evidence.ranks)
    takes = any(name in _TAKES_SPARSE for name in names)
    other = "" if takes else ", and an optimizer for it (`torch.optim.SparseAdam`, SGD, Adagrad)"
    shared = " Where ranks share out a batch, shard the table instead (TorchRec): DDP sums dense "
    return f"{SPARSE}{other}.{shared + 'gradients.' if evidence.run is not None else ''}"
