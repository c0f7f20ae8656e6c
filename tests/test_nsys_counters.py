"""`traceprobe profile --gpu-metrics`: which option nsys has, and what is said where it may not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traceprobe.capture.process import nsys_tool
from traceprobe.errors import UsageError

HELP = "--gpu-metrics-devices=<cuda-visible|all|none>"
LISTED = "Possible values are:\n\t0: NVIDIA H200 PCI[0000:07:00.0]\n\tall: every supported GPU"
ON_H200 = (
    "Possible --gpu-metrics-devices values are:\n"
    "\t0: Hopper GH100 | NVIDIA H200 PCI[0000:00:06.0]\n"
    "\tall: Select all supported GPUs\n"
    "\tcuda-visible: Select GPUs that match CUDA_VISIBLE_DEVICES\n"
    "\tnone: Disable GPU Metrics [Default]\n"
)
"""What nsys 2025.3 answered."""
REFUSED = (
    "None of the installed GPUs are supported:\n\tNVIDIA H200 - Insufficient privilege, see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


def nsys(folder, help_text=HELP, answer=LISTED):
    """A tool that answers for help as nsys does, and notes what else it is asked for."""
    (folder / "help").write_text(help_text)
    (folder / "answer").write_text(answer)
    tool = folder / "nsys"
    tool.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *--help) cat {folder}/help;; *=help) cat {folder}/answer >&2; exit 1;; '
        f'*) echo "$*" >> {folder}/asked; exit 1;; esac\n'
    )
    tool.chmod(0o755)
    return str(tool)


@pytest.mark.parametrize(
    ("help_text", "answer", "option"),
    [
        (HELP, LISTED, "--gpu-metrics-devices=cuda-visible"),
        (HELP, ON_H200, "--gpu-metrics-devices=cuda-visible"),
        ("--gpu-metrics-device=<all>", LISTED, "--gpu-metrics-device=all"),
        (HELP, f"{LISTED}\nSome GPUs are not: Insufficient privilege", "cuda-visible"),
        (HELP, "", "--gpu-metrics-devices=cuda-visible"),  # it will say itself what is wrong
    ],
)
def test_nsys_is_asked_in_the_words_of_its_version(tmp_path, help_text, answer, option):
    found = nsys_tool.gpu_metrics_option(nsys(tmp_path, help_text, answer))
    assert found.endswith(option)
    command = nsys_tool.nsys_command("nsys", Path("x"), ["python", "t.py"], gpu_metrics=found)
    assert command[-3:] == [found, "python", "t.py"]


@pytest.mark.parametrize(
    ("help_text", "answer", "said"),
    [
        (HELP, REFUSED, "keeps them for administrators.*NVreg_Restrict.*--cap-add SYS_ADMIN.*http"),
        (
            HELP,
            "None of the installed GPUs are supported: GTX 970 - too old",
            "GTX 970 - too old",
        ),
        ("--trace", "", "install a newer one"),
    ],
)
def test_where_nsys_may_not_it_is_said_why(tmp_path, help_text, answer, said):
    with pytest.raises(UsageError, match=said):
        nsys_tool.gpu_metrics_option(nsys(tmp_path, help_text, answer))


def test_a_recording_that_is_not_permitted_runs_nothing_and_leaves_nothing(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRACEPROBE_NSYS", nsys(tmp_path, answer=REFUSED))
    wanted = ("profile", "--backend", "nsys", "--gpu-metrics", "-o", "out", "--", "python", "t.py")
    (line,) = cli(*wanted).expect(2).err.splitlines()
    assert "developer.nvidia.com/ERR_NVGPUCTRPERM" in line
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "asked").exists()


def test_torch_samples_no_counters(cli):
    done = cli("profile", "--gpu-metrics", "--", "python", "t.py").expect(2)
    assert "add --backend nsys" in done.err


def test_the_export_keeps_the_tables_of_counters():
    patterns = nsys_tool.TABLES.split(",")
    for table in ("GPU_METRICS", "TARGET_INFO_GPU_METRICS"):
        assert any(re.fullmatch(pattern, table) for pattern in patterns)
