"""What a recording asks of the profilers, so that it holds what streams wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceprobe.capture.process import nsys_tool

HELP = "        --cuda-event-trace=\n           Possible values are 'auto', 'true' or 'false'."


def tool(folder, script):
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "known"),
    [
        (f"cat <<'END'\n{HELP}\nEND", True),
        (f"cat >&2 <<'END'\n{HELP}\nEND\nexit 1", True),
        ("echo '        --cuda-graph-trace=granularity'", False),
        ("echo unknown switch >&2; exit 1", False),
        ("kill -9 $$", False),
    ],
)
def test_nsys_itself_says_whether_it_traces_events_on_demand(tmp_path, script, known):
    assert nsys_tool.knows_event_trace(tool(tmp_path, script)) is known


def test_an_nsys_that_does_not_start_knows_nothing(tmp_path):
    assert not nsys_tool.knows_event_trace(str(tmp_path / "nsys"))
    (tmp_path / "nsys").write_text("no program")
    assert not nsys_tool.knows_event_trace(str(tmp_path / "nsys"))


def test_its_help_is_asked_for_and_nothing_else(tmp_path):
    words = tmp_path / "words"
    nsys_tool.knows_event_trace(tool(tmp_path, f'echo "$@" >{words}'))
    assert words.read_text() == "profile --help\n"


def test_the_option_comes_before_the_program():
    program = ["python", "train.py", "--cuda-event-trace"]
    plain = nsys_tool.nsys_command("nsys", Path("out"), program)
    asked = nsys_tool.nsys_command("nsys", Path("out"), program, event_trace=True)
    assert [word for word in asked if word not in plain] == ["--cuda-event-trace=true"]
    assert asked[-3:] == plain[-3:] == program


@pytest.fixture
def backend(monkeypatch):
    """The backend of torch, as on a machine with a GPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    from traceprobe.capture.profiler import profiler_backend

    return profiler_backend


def test_torch_profiles_with_rows_of_synchronisations(backend):
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    arguments = backend.sync_events()
    assert list(arguments) == ["experimental_config"]
    assert isinstance(arguments["experimental_config"], _ExperimentalConfig)
    with profile(activities=[ProfilerActivity.CPU], **arguments) as recorded:
        pass
    assert recorded.events() is not None
    # What was asked for is part of the configuration's state.
    state = arguments["experimental_config"].__getstate__()
    assert state != _ExperimentalConfig().__getstate__()
    assert state == _ExperimentalConfig(enable_cuda_sync_events=True).__getstate__()


def test_a_torch_that_cannot_is_asked_for_nothing(backend, monkeypatch):
    import torch

    class Older:
        """Without the setting."""

        def __init__(self, profiler_metrics=(), verbose=False):
            """__init__(self, profiler_metrics: List[str] = [], verbose: bool = False) -> None"""

    with monkeypatch.context() as older:
        older.setattr(torch._C._profiler, "_ExperimentalConfig", Older)
        assert backend.sync_events() == {}
        older.delattr(torch._C._profiler, "_ExperimentalConfig")
        assert backend.sync_events() == {}
    monkeypatch.setattr(torch.version, "cuda", None)
    assert backend.sync_events() == {}


def test_without_a_gpu_there_is_nothing_to_ask_for(backend, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backend.sync_events() == {}
