"""Does the optimizer update whole tables of embeddings for the few rows that were looked up?"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.findings.evidence import Evidence, factor_without
from traceprobe.findings.optimizer_forms import optimizers
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, percent
from traceprobe.records.embedding_table import EmbeddingTable
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

SPARSE = "Make the gradient hold the rows that were looked up: `nn.Embedding(..., sparse=True)`"
_SHARDED = (
    " Where ranks share out a batch, shard the table instead (TorchRec): DDP sums dense gradients."
)
_WITHOUT = " Sparse gradients take no `weight_decay`, no `fused=True` and no `clip_grad_norm_`."
FILL = "aten::fill_"
_AND_OPTIMIZER = (
    ", and an optimizer for it (SGD, Adagrad, or `torch.optim.SparseAdam`, which leaves moments of "
    "other rows as they are)"
)
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
    "of tables of which a step looks up a tenth of the rows or less, less those rows; the same of "
    "the time that filling tensors takes. A table that a product reads, too, does not count. The "
    "saving is all of it. Only recorded shapes show it.",
    verify="`partition_ns.optimizer` falls. `aten::embedding_dense_backward` is gone.",
    of_gpu=True,
)
def dense_embedding(evidence: Evidence) -> Answer:
    """Updates of rows that no lookup used."""
    shared = 1 if evidence.run is None else evidence.run.world_size
    found = [_few_used(rank, shared) for rank in evidence.ranks]
    tables = max(found, key=_needless, default=[])
    if not tables:
        return not_applicable(
            "no table of embeddings is known to get a dense gradient for few rows"
        )
    optimizer, filling = evidence.exclusive_ms("optimizer"), _filling_ms(evidence)
    needless = _needless(tables)
    updating, filled = optimizer * needless, filling * needless
    ms = updating + filled
    count = sum(table.tables for table in tables)
    usual = updating - count * FIXED.merged_rows_ms
    few = 2 * usual > updating  # merging takes less than it leaves
    largest = max(tables, key=lambda table: table.rows)
    return Answer(
        evidence.flag(ms if few or count > 1 else 0.0),  # one is merged, whatever updates it
        [
            f"{evidence.amount(updating)} of the optimizer's {evidence.amount(optimizer)} go to "
            f"rows that no lookup used, {percent(needless)} of all gradients",
            f"{evidence.amount(filled)} to filling their gradients with zeros" if filled else "",
            f"{counted(count, 'table')} with dense gradients, the largest of {largest.rows:,} "
            f"rows, of which a step looks up {round(largest.looked_up):,} at most",
        ],
        evidence.saving(ms, "optimizer", "backward"),
        _advice(evidence, few=few),
        changes=_changes(evidence, usual, filled) if few else None,
    )


def _filling_ms(evidence: Evidence) -> float:
    """What it takes to fill tensors with zeros: those of dense gradients, above all."""
    return evidence.operators[FILL].device_ms if FILL in evidence.operators else 0.0


def _changes(evidence: Evidence, updating: float, filling: float) -> Changes:
    """Optimizer and backward pass faster by so much."""
    faster = {"optimizer": factor_without(updating, evidence.exclusive_ms("optimizer"))}
    backward = evidence.busy_ms("backward")
    if 0 < filling < backward:
        faster["backward"] = factor_without(filling, backward)
    return Changes(speedup=faster, margin=FIXED.usual_margin)


def _few_used(rank: Rank, world_size: int) -> list[EmbeddingTable]:
    """Tables of which a step looks up few rows, with all micro-batches on all ranks."""
    tables, passes = rank.summary.embedding_tables, rank.summary.micro_batches or 1
    of_steps = [] if tables is UNSET else tables
    times = passes * world_size
    found = [replace(table, looked_up=times * table.looked_up) for table in of_steps]
    return [table for table in found if _used(table) <= FIXED.few_rows]


def _needless(tables: Sequence[EmbeddingTable]) -> float:
    """Part of all gradients that is of rows that no lookup used."""
    return sum(table.part * (1 - _used(table)) for table in tables)


def _used(table: EmbeddingTable) -> float:
    """Part of the rows that a step looks up, at most."""
    return min(table.looked_up / table.rows, 1.0)


def _advice(evidence: Evidence, *, few: bool) -> str:
    """What to do, by how many tables there are, and what the optimizer takes."""
    if not few:
        return FUSED
    names = optimizers(evidence.ranks)
    takes = any(name in _TAKES_SPARSE for name in names)
    other = "" if takes else _AND_OPTIMIZER
    return f"{SPARSE}{other}.{_WITHOUT}{_SHARDED if evidence.run is not None else ''}"
