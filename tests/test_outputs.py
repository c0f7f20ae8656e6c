"""No output takes the place of an input, nor of a file that nobody allowed to overwrite."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import threading
from pathlib import Path

import pytest

from tests.analyses import report_of
from tests.cli_runner import LOOP, write_trace
from traceprobe import UnsupportedInput, UsageError, load
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.render.save import save
from traceprobe.slicing.slice_trace import slice_trace
from traceprobe.system import atomic_write as writing
from traceprobe.system import reading
from traceprobe.system.atomic_write import append, write_beside


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Runs in folders, saved and not."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "run").mkdir()
    (folder / "saved").mkdir()
    for number in range(2):
        loop = type(LOOP)(**{**vars(LOOP), "process": type(LOOP.process)(1 + number, rank=number)})
        write_trace(folder / "run" / f"rank{number}.json", loop)
    trace = write_trace(folder / "one.json")
    write_trace(folder / "one.sqlite")
    (folder / "saved" / "report.json").write_text(report_of(trace).to_json(), encoding="utf-8")
    return folder


@pytest.fixture
def files(cli, written):
    """The same in the folder of the commands, and links to them."""
    shutil.copytree(written, cli.folder, dirs_exist_ok=True)
    (cli.folder / "link").symlink_to("run")
    (cli.folder / "link.json").symlink_to("one.json")
    (cli.folder / "hard.json").hardlink_to(cli.folder / "one.json")
    return cli.folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


RUNS = [["whatif"], ["scaling", "one.json"], ["ladder", "one.json"], ["gpus", "one.json"]]
"""Commands that take a run as their last argument, with the others that they need."""
SAME = [
    ("run", "run/rank0.json"),
    ("run/rank*.json", "run/rank1.json"),
    ("label=run", "run/rank0.json"),
    ("link", "run/rank0.json"),
    ("run", "link/rank0.json"),
    ("link.json", "one.json"),
    ("one.json", "hard.json"),
    ("hard.json", "one.json"),
    ("saved", "saved/report.json"),
    ("label=saved/report.json", "saved/report.json"),
]
INPUTS = [
    *([*command, run, "-o", output] for command in RUNS for run, output in SAME),
    *(["roofline", run, "-o", output] for run, output in SAME if "=" not in run),
    *(["compare", run, "one.json", "-o", output] for run, output in SAME),
    *(["compare", "one.json", run, "-o", output] for run, output in SAME),
    *(["analyze", run, "-o", output] for run, output in SAME[:2] + SAME[3:8]),
    *(["doctor", run, "-o", output] for run, output in SAME[:2] + SAME[3:8]),
    ["analyze", "one.json", "--ablation", "saved/report.json", "-o", "saved/report.json"],
    ["analyze", "one.json", "--peaks", "saved/report.json", "-o", "saved/report.json"],
    ["roofline", "one.json", "--peaks", "saved/report.json", "-o", "saved/report.json"],
    ["render", "link.json", "-o", "one.json"],
    ["render", "saved/report.json", "-o", "saved/../saved/report.json"],
    *(
        [*command, source, "-o", output]
        for command in (["slice", "--steps", "1:3"], ["inspect", "--anonymise"])
        for source, output in (
            *(("one.json", "hard.json"), ("link.json", "one.json")),
            *(("one.sqlite", f"one.sqlite{suffix}") for suffix in ("-wal", "-shm", "-journal")),
        )
    ),
    ["bench", "-o", "one.json", "--", "python", "train.py", "link.json"],
    ["memory", "-o", "one.json", "--", "python", "one.json"],
    ["profile", "-o", "saved", "--", "python", "train.py", "saved/report.json"],
]


@pytest.mark.parametrize("arguments", INPUTS, ids=" ".join)
def test_an_output_that_is_an_input_is_refused(cli, files, arguments):
    before = contents(files)
    if "--" in arguments:
        place = arguments.index("--")
        arguments = [*arguments[:place], "-f", *arguments[place:]]
    else:
        arguments = [*arguments, "-f"]
    done = cli(*arguments).expect(2)
    assert "is an input" in done.err
    assert contents(files) == before


def test_the_summary_of_a_job_is_no_input_either(cli, files, monkeypatch):
    before = contents(files)
    for name in ("one.json", "hard.json"):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(files / name))
        for command in (["analyze"], ["whatif"], ["render"]):
            done = cli(*command, "link.json", "--github-summary", "-o", "new.json").expect(2)
            assert f"{name}: is an input" in done.err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(files / "new.md"))
    done = cli("analyze", "one.json", "--github-summary", "-o", "new.md").expect(2)
    assert "given twice" in done.err
    assert contents(files) == before


def test_what_lies_beside_the_inputs_may_be_overwritten(cli, files):
    (files / "run" / "report.html").write_text("old")
    (files / "run" / "notes.json").write_text("old")
    cli("analyze", "run", "-q", "-f", "-o", "run/report.html", "-o", "run/notes.json").expect(0)
    assert (files / "run" / "report.html").stat().st_size > 1000


APPEARS = {
    "analyze": ["analyze", "one.json", "-q", "-o", "new.html"],
    "whatif": ["whatif", "one.json", "-q", "-o", "new.json"],
    "doctor": ["doctor", "one.json", "-q", "-o", "new.json"],
    "annotate": ["annotate", "one.json", "-o", "new.json.gz"],
    "slice": ["slice", "one.json", "--steps", "1:3", "-o", "new.json.gz"],
    "anonymise": ["inspect", "--anonymise", "one.json", "-o", "new.json"],
}


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("name", APPEARS)
def test_a_file_that_appears_meanwhile_is_left_unless_forced(cli, files, monkeypatch, name, forced):
    """It is put there when the output is complete, and not yet in its place."""
    target = files / APPEARS[name][-1]
    before = {*cli.files(), target.name}
    chmod = Path.chmod

    def appearing(path, mode, **options):
        chmod(path, mode, **options)
        target.write_text("precious")

    monkeypatch.setattr(Path, "chmod", appearing)
    done = cli(*APPEARS[name], *(["-f"] if forced else []))
    assert cli.files() == before
    if forced:
        done.expect(0)
        assert target.read_bytes() != b"precious"
        return
    err = done.expect(2).err
    assert f"{target.name}: was written by something else meanwhile" in err
    assert err.count("\n") == 1
    assert target.read_text() == "precious"


def test_of_two_runs_with_one_output_one_fails(tmp_path):
    target = tmp_path / "out.json"
    ready, ends, refused = threading.Barrier(2), [], []

    def run(text):
        try:
            with write_beside(target, replace=False) as temporary:
                temporary.write_text(text)
                ready.wait()
            ends.append(text)
        except UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=(text,)) for text in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [target.read_text()] == ends
    assert len(refused) == 1
    assert "was written by something else meanwhile" in refused[0]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
def test_a_file_system_without_links(tmp_path, monkeypatch, there):
    def without(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    monkeypatch.setattr(writing.os, "link", without)
    target = tmp_path / "out.json"
    if there:
        target.write_text("precious")
        with (
            pytest.raises(UsageError, match="meanwhile"),
            write_beside(target, replace=False) as file,
        ):
            file.write_text("new")
    else:
        with write_beside(target, replace=False) as file:
            file.write_text("new")
    assert target.read_text() == ("precious" if there else "new")
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_the_summary_of_the_job_as_it_was(tmp_path, monkeypatch):
    target = tmp_path / "summary.md"
    append(target, "one\n")
    append(target, "two\n")
    assert target.read_text() == "one\ntwo\n"
    write = os.write

    def short(number, data):
        if len(data) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(number, data[:3])

    monkeypatch.setattr(writing.os, "write", short)
    with pytest.raises(UsageError, match="No space left on device; nothing was left behind"):
        append(target, "three\n\n")
    assert target.read_text() == "one\ntwo\n"


class Broken:
    """A result that has no text of one kind."""

    def to_json(self):
        return "{}"

    def to_html(self):
        raise RecursionError("too deep")


def test_of_several_outputs_none_is_there_where_one_cannot_be_rendered(tmp_path):
    with pytest.raises(RecursionError):
        save(Broken(), [tmp_path / "run.json", tmp_path / "run.html"], replace=False)
    assert list(tmp_path.iterdir()) == []
    save(Broken(), [tmp_path / "run.json"], replace=False)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_outputs_have_the_rights_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        with write_beside(tmp_path / "out.json", replace=False):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o640


def test_functions_that_write_overwrite_only_if_told_to(tmp_path):
    source = write_trace(tmp_path / "run.json")
    target = tmp_path / "out.json"
    target.write_text("precious")
    for write in (
        lambda **options: slice_trace(source, target, (1, 3), **options),
        lambda **options: anonymise_trace(source, target, **options),
    ):
        with pytest.raises(UsageError, match="meanwhile"):
            write()
        assert target.read_text() == "precious"
        write(replace=True)
        assert target.read_text() != "precious"
        target.write_text("precious")


def special(folder):
    """Things that are no regular files, under names that commands read and write."""
    os.mkfifo(folder / "pipe.json")
    (folder / "piped.json").symlink_to("pipe.json")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "ladder.toml").symlink_to("pipe.json")
    (folder / "piped").mkdir()
    (folder / "piped" / "report.json").symlink_to("../pipe.json")
    (folder / "piped" / "rank0.json").symlink_to("../pipe.json")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket.json"))


def waits(number, frame):
    raise AssertionError("it waits for ever")


READS = [
    *([*command, name] for command in RUNS for name in ("pipe.json", "pip*.json", "zero.json")),
    *([*command, "piped"] for command in RUNS),
    *(["analyze", name] for name in ("piped.json", "/dev/zero", "socket.json", "piped", "pip*n")),
    *(["doctor", name] for name in ("pipe.json", "zero.json", "/dev/stdin", "piped")),
    *(["inspect", name] for name in ("pipe.json", "zero.json", "socket.json")),
    ["inspect", "--anonymise", "pipe.json", "-o", "new.json"],
    *(["slice", name, "--steps", "1:3", "-o", "new.json"] for name in ("pipe.json", "zero.json")),
    *(["render", name] for name in ("pipe.json", "piped.json", "/dev/zero", "/dev/stdin")),
    *(["analyze", "one.json", "--ablation", name] for name in ("pipe.json", "zero.json")),
    *(["analyze", "one.json", "--peaks", name] for name in ("piped.json", "socket.json")),
    ["roofline", "one.json", "--peaks", "pipe.json"],
    ["roofline", "piped"],
    ["sweep", "ladder.toml", "-o", "swept"],
    ["compare", "one.json", "pipe.json"],
    ["analyze", "one.json", "--github-summary", "-o", "new.json"],
    ["whatif", "one.json", "--github-summary"],
]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_no_command_touches_what_is_no_file(cli, files, monkeypatch, arguments):
    special(files)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(files / "pipe.json"))
    read, write = os.pipe()
    stdin = os.dup(0)
    os.dup2(read, 0)
    before = {path.name for path in files.iterdir()}
    signal.signal(signal.SIGALRM, waits)
    signal.alarm(30)
    try:
        err = cli(*arguments).expect(2).err
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.dup2(stdin, 0)
        for number in (read, write, stdin):
            os.close(number)
    assert "is not a regular file" in err or "directory without a trace" in err
    assert {path.name for path in files.iterdir()} - {"swept"} == before


@pytest.mark.parametrize("arguments", [["render"], ["analyze", "one.json", "--ablation"]], ids=str)
def test_a_saved_file_may_not_be_endless(cli, files, arguments):
    with (files / "large.json").open("wb") as file:
        file.truncate(1 << 40)
    done = cli(*arguments, "large.json").expect(2)
    assert "large.json: has more than 64 MiB" in done.err


def test_a_file_that_says_it_is_empty_may_not_be_endless_either(cli, files, monkeypatch):
    assert reading.read_saved(files / "one.json")
    assert reading.read_saved(Path("/proc/version")).startswith(b"Linux")
    with pytest.raises(UsageError, match="has more than 0 MiB"):
        reading.read_saved(Path("/proc/version"), 3)


def test_the_library_reads_no_pipe(files):
    special(files)
    with pytest.raises(UnsupportedInput, match="is not a regular file"):
        load(files / "pipe.json")


def test_a_folder_that_became_a_link_meanwhile_costs_no_file_of_the_other(tmp_path):
    asked, other = tmp_path / "asked", tmp_path / "other"
    for folder in (asked, other):
        folder.mkdir()
    (other / "x.md").write_text("precious")
    with pytest.raises(UsageError), write_beside(asked / "x.md", replace=False) as temporary:  # noqa: PT012
        temporary.write_text("new")
        asked.rename(tmp_path / "old")
        asked.symlink_to(other)
    assert (other / "x.md").read_text() == "precious"
    assert [path.name for path in other.iterdir()] == ["x.md"]
