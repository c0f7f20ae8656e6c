"""Options that several commands have, with one meaning."""

from __future__ import annotations

from typing import Annotated

import typer

Ranks = Annotated[
    int | None,
    typer.Option(min=1, help="Ranks to start on this machine.", show_default=False),
]
Warmup = Annotated[int, typer.Option(min=1, help="Steps before anything is measured.")]
Redact = Annotated[
    bool,
    typer.Option("--redact", help="Replace names of kernels, ranges and files by digests."),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Allow a file more than any run has, repeatable: unpacked (bytes), names, devices, "
        "streams, threads, iterations.",
        show_default=False,
    ),
]
GithubSummary = Annotated[
    bool,
    typer.Option("--github-summary", help="Append the Markdown to $GITHUB_STEP_SUMMARY."),
]
