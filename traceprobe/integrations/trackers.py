"""Handing a report to experiment trackers beyond numbers: the verdict as text, the files to keep.

A tracker is used where the training uses it already; none is imported or started here.
"""

from __future__ import annotations

import sys
from typing import Any

from traceprobe.integrations.analysis import Outcome

VERDICT = "traceprobe/verdict"
ARTIFACTS = "traceprobe/{}"
"""Place of a recording's report among the artifacts of an MLflow run."""
_WANDB_NAME = "traceprobe-{}"
_WANDB_TYPE = "traceprobe-report"


def active_wandb_run() -> Any:
    """The run of Weights & Biases that this process has open; None without one."""
    return getattr(sys.modules.get("wandb"), "run", None)


def active_mlflow_run() -> str | None:
    """The id of MLflow's active run; None without one."""
    mlflow = sys.modules.get("mlflow")
    run = None if mlflow is None else mlflow.active_run()
    return None if run is None else str(run.info.run_id)


def to_wandb(run: Any, outcome: Outcome) -> None:
    """The verdict into the summary of a run, the report into an artifact of it."""
    import wandb

    run.summary[VERDICT] = outcome.headline
    artifact = wandb.Artifact(
        _WANDB_NAME.format(run.id),
        _WANDB_TYPE,
        metadata={"step": outcome.step, "bound": outcome.bound, **outcome.numbers()},
    )
    for path in outcome.files:
        artifact.add_file(str(path))
    run.log_artifact(artifact, aliases=[f"step-{outcome.step}"])


def to_mlflow(run_id: str, outcome: Outcome, client: Any = None) -> None:
    """The verdict into a tag of a run, the report into its artifacts.

    Args:
        client: an `MlflowClient`; without one that of the process.
    """
    if client is None:
        from mlflow import MlflowClient

        client = MlflowClient()
    client.set_tag(run_id, VERDICT, outcome.headline)
    for path in outcome.files:
        client.log_artifact(run_id, str(path), ARTIFACTS.format(outcome.folder.name))


def to_tensorboard(writer: Any, outcome: Outcome) -> None:
    """The verdict as text of a `SummaryWriter`, which takes no files."""
    writer.add_text(VERDICT, f"{outcome.headline}\n\n{outcome.report}", outcome.step)
    writer.flush()
