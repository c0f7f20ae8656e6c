"""From a recording to the report in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceprobe.capture.recording.recording_files import BENCH, REPORT
from traceprobe.options import Options
from traceprobe.pipeline.files import analyze_files
from traceprobe.records.ablation import Ablation
from traceprobe.records.report import Report
from traceprobe.render.save import save, save_text


def analyze_recording(
    traces: Sequence[Path],
    folder: Path,
    ablation: Ablation | None = None,
    *,
    replace: bool = False,
) -> Report:
    """Analyse a recording and leave its report in the folder.

    Args:
        traces: of the ranks.
        ablation: of the same program, which is left there too.
        replace: whether a report that is there by now is overwritten.

    Raises:
        TraceprobeError: no trace can be read, or a file cannot be written.
    """
    report = analyze_files(traces, Options(ablation=ablation))
    if ablation is not None:
        save_text(folder / BENCH, ablation.to_json(), replace=replace)
    save(report, [folder / name for name in REPORT], replace=replace)
    return report
