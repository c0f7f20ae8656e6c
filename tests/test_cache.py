"""A cache gives back what was read, and costs nothing but time when it cannot."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import stat
import subprocess
import zipfile

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import traceprobe
from tests.analyses import REFUSED, SAMPLES, report_of, trace_of
from tests.cli_runner import (
    LOOP,
    MODULE,
    environment,
    needs_workers_of_dask,
    spawn,
    write_trace,
)
from tests.conftest import ROOT, trace_files
from traceprobe.pipeline import cache
from traceprobe.system import seal

FORMATS = ("trace.json.gz", "trace.sqlite")
PAIR = [ROOT / "sample_traces" / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)]
FRAMES = (
    *("gpu_ops", "host_calls", "host_ranges", "host_operators", "host_modules", "host_frames"),
    *("host_work", "host_waits", "stream_events", "gpu_samples", "kernel_counters"),
)


def entries(folder):
    return sorted(folder.iterdir())


def assert_same(found, expected):
    for name in FRAMES:
        assert_frame_equal(getattr(found, name), getattr(expected, name), check_exact=True)
    for name in set(expected.__struct_fields__) - set(FRAMES):
        assert getattr(found, name) == getattr(expected, name), name


def read_twice(path, folder):
    """The trace as it is kept and as it is found again."""
    first, kept = cache.load(path, folder)
    again, found = cache.load(path, folder)
    assert (kept.failed, found.failed) == (False, False)
    assert "kept in the cache" in kept.text
    assert "from the cache" in found.text
    return first, again


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_comes_back_as_it_was_read(path, tmp_path):
    first, again = read_twice(path, tmp_path)
    for trace in (first, again):
        assert_same(trace, trace_of(path))
    assert traceprobe.analyze(again).to_json() == report_of(path).to_json()
    (entry,) = entries(tmp_path)
    assert entry.stat().st_size < path.stat().st_size


def test_a_file_of_the_corpus_comes_back_as_it_was_read(corpus, corpus_row, tmp_path):
    path = trace_files(corpus_row)[0]
    try:
        first, again = read_twice(path, tmp_path)
    except REFUSED:
        assert not entries(tmp_path)
        return
    for trace in (first, again):
        assert_same(trace, trace_of(path))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_cached_is_not_parsed(name, tmp_path, monkeypatch):
    path = write_trace(tmp_path / name)
    folder = tmp_path / "cache"
    expected = traceprobe.load(path, cache=folder)
    monkeypatch.setattr("traceprobe.ingest.kineto.read.read_kineto", None)
    monkeypatch.setattr("traceprobe.ingest.nsight.read.read_nsight", None)
    seen = []
    found = traceprobe.load(path, lambda done, total: seen.append((done, total)), folder)
    assert_same(found, expected)
    assert seen == [(path.stat().st_size,) * 2]


def test_files_of_one_content_share_an_entry_and_keep_their_names(tmp_path):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "one.json")
    traceprobe.load(path, cache=folder)
    other = path.rename(tmp_path / "rank7.json")
    assert traceprobe.load(other, cache=folder).origin.name == "rank7.json"
    (entry,) = entries(folder)
    assert b"one.json" not in zipfile.ZipFile(entry).read("trace.json")


def test_another_content_finds_no_entry(tmp_path):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "trace.json")
    traceprobe.load(path, cache=folder)
    path.write_bytes(path.read_bytes().replace(b"conv", b"gemm") + b"\n")
    assert_same(traceprobe.load(path, cache=folder), traceprobe.load(path))
    assert len(entries(folder)) == 2


@pytest.fixture
def fresh_form():
    """The form is computed anew, before and after."""
    cache.form.cache_clear()
    yield
    cache.form.cache_clear()


def package(tmp_path):
    """A copy of the package whose code may be changed."""
    copy = tmp_path / "copy" / "traceprobe"
    shutil.copytree(ROOT / "traceprobe", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def form_of(package):
    done = subprocess.run(
        [*MODULE[:1], "-c", "from traceprobe.pipeline import cache; print(cache.form())"],
        cwd=package.parent,
        env=environment(PYTHONPATH=str(package.parent)),
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("ingest/event_kinds.py", False),
        ("ingest/nsight/nccl.py", False),
        ("model/events.py", False),
        ("pipeline/cache.py", False),
        ("timeline/idle.py", True),
        ("__init__.py", True),
    ],
)
def test_a_change_of_the_code_that_reads_finds_no_entry(changed, same, tmp_path):
    copy = package(tmp_path)
    assert form_of(copy) == cache.form()
    path = copy / changed
    path.write_text(path.read_text().replace("the", "teh", 1))
    assert (form_of(copy) == cache.form()) is same


def test_another_library_finds_no_entry(fresh_form, monkeypatch):
    before = cache.form()
    for name in ("msgspec", "numpy", "pandas", "polars"):
        cache.form.cache_clear()
        monkeypatch.setattr(cache, "version", lambda asked, name=name: f"{asked == name}")
        changed = cache.form()
        assert changed != before
        before = changed


def rebuilt(entry, **members):
    """A zip archive as that of an entry with other members; None leaves one out."""
    target = io.BytesIO()
    with zipfile.ZipFile(entry) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = members.get(name.partition(".")[0], source.read(name))
            if content is not None:
                archive.writestr(name, content)
    return target.getvalue()


def parquet(frame):
    target = io.BytesIO()
    frame.write_parquet(target)
    return target.getvalue()


def facts_with(entry, **changes):
    facts = json.loads(zipfile.ZipFile(entry).read("trace.json"))
    return json.dumps(facts | changes).encode()


def damaged(entry):
    """Contents that are no entry, or not this one."""
    whole = entry.read_bytes()
    archive = whole[seal.LENGTH :]
    ops = pl.read_parquet(io.BytesIO(zipfile.ZipFile(entry).read("gpu_ops.parquet")))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    changed = {
        "empty": b"",
        "text": b"Dear diary",
        "cut": whole[: len(whole) // 2],
        "cut at its end": whole[:-1],
        "flipped": bytes(flipped),
        "without a checksum": archive,
        "other columns, well made": whole[: seal.LENGTH]
        + rebuilt(entry, gpu_ops=parquet(ops.with_columns(pl.col("t1") + 1))),
        "another's checksum": bytes(seal.LENGTH) + archive,
    }
    return changed, {  # as it would be if the checksum were right
        "no zip": b"Dear diary",
        "another zip": rebuilt(entry, trace=None),
        "without a frame": rebuilt(entry, host_calls=None),
        "no parquet": rebuilt(entry, gpu_ops=b"PAR1" + bytes(64) + b"PAR1"),
        "fewer columns": rebuilt(entry, gpu_ops=parquet(ops.drop("bytes"))),
        "other types": rebuilt(entry, gpu_ops=parquet(ops.cast({"kind": pl.Int64}))),
        "nulls": rebuilt(
            entry, gpu_ops=parquet(ops.with_columns(pl.lit(None, pl.Int64).alias("bytes")))
        ),
        "names that are not there": rebuilt(entry, trace=facts_with(entry, names=["one"])),
        "another form": rebuilt(entry, trace=facts_with(entry, form="0" * 16)),
        "no facts": rebuilt(entry, trace=facts_with(entry, devices=[{"pid": "one"}])),
        "nested facts": rebuilt(entry, trace=b"[" * 100_000),
    }


def test_what_is_no_entry_is_replaced(tmp_path):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "trace.json")
    expected, _ = cache.load(path, folder)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    changed, wrong = damaged(entry)
    for what, content in [*changed.items(), *((k, seal.sealed(v)) for k, v in wrong.items())]:
        entry.write_bytes(content)
        found, use = cache.load(path, folder)
        assert use.text.startswith("replaced a damaged entry ("), what
        assert not use.failed
        assert "\n" not in use.text
        assert_same(found, expected)
        assert entry.read_bytes() == whole, what
        assert entries(folder) == [entry]


@pytest.mark.parametrize("what", ["a link", "a pipe", "a device", "an endless file"])
def test_what_lies_in_the_place_of_an_entry_is_not_followed(tmp_path, what):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "trace.json")
    expected, _ = cache.load(path, folder)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    other = entry.rename(tmp_path / "elsewhere.zip")
    if what == "a pipe":
        os.mkfifo(entry)
    elif what == "an endless file":
        with entry.open("wb") as file:
            file.truncate(1 << 40)
    else:
        entry.symlink_to("/dev/zero" if what == "a device" else other)
    found, use = cache.load(path, folder)
    assert use.text.startswith("replaced a damaged entry (")
    assert_same(found, expected)
    assert not entry.is_symlink()
    assert entry.read_bytes() == other.read_bytes() == whole


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """The secret of a user who has none yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "traceprobe" / "seal"


def test_the_secret_is_this_users_alone(tmp_path, secret):
    path = write_trace(tmp_path / "trace.json")
    read_twice(path, tmp_path / "cache")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    (entry,) = entries(tmp_path / "cache")
    assert secret.read_bytes() not in entry.read_bytes()
    assert secret.read_bytes().hex() not in entry.name


def test_users_do_not_believe_each_other_and_keep_their_own_entries(tmp_path, monkeypatch):
    path, folder = write_trace(tmp_path / "trace.json"), tmp_path / "cache"
    for user in ("one", "other", "one", "other"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / user))
        _, use = cache.load(path, folder)
        assert use.text.startswith("columns ")
    one, other = entries(folder)
    assert "from the cache" in use.text
    shutil.copy(one, other)
    for user in ("one", "other"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / user))
        texts = [cache.load(path, folder)[1].text for _ in range(2)]
        assert "columns from the cache" in texts[1]


@pytest.mark.parametrize("what", ["no folder", "readable", "short", "a link", "a pipe"])
def test_without_a_secret_nothing_is_kept_and_that_is_said(tmp_path, secret, what):
    secret.parent.parent.mkdir()
    if what == "no folder":
        secret.parent.touch()
    else:
        secret.parent.mkdir()
    if what == "readable":
        secret.write_bytes(bytes(seal.LENGTH))
        secret.chmod(0o640)
    elif what == "short":
        secret.touch(mode=0o600)
    elif what == "a link":
        secret.symlink_to("/dev/zero")
    elif what == "a pipe":
        os.mkfifo(secret, 0o600)
    path = write_trace(tmp_path / "trace.json")
    with pytest.warns(UserWarning, match=r"trace\.json: not kept in the cache: .*traceprobe"):
        found = traceprobe.load(path, cache=tmp_path / "cache")
    assert_same(found, traceprobe.load(path))
    assert not (tmp_path / "cache").exists()


def test_processes_that_make_the_secret_at_once_have_the_same(tmp_path, secret):
    command = [*MODULE[:1], "-c", "from traceprobe.system import seal; print(seal.owner())"]
    started = [
        subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    assert len({process.communicate(timeout=120)[0] for process in started}) == 1
    assert entries(secret.parent) == [secret]


def test_an_entry_of_another_file_under_this_name_is_replaced(tmp_path):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "trace.json")
    other = write_trace(tmp_path / "trace.sqlite")
    for each in (path, other):
        cache.load(each, folder)
    mine = next(entry for entry in entries(folder) if entry.name.startswith(sha256(path)))
    theirs = next(entry for entry in entries(folder) if entry != mine)
    shutil.copy(theirs, mine)
    found, use = cache.load(path, folder)
    assert "that of another file" in use.text
    assert found.origin.format == "kineto"


def sha256(path):
    return traceprobe.load(path).origin.sha256


@pytest.mark.slow
def test_random_damage_is_seen(tmp_path):
    folder = tmp_path / "cache"
    path = write_trace(tmp_path / "trace.sqlite")
    expected, _ = cache.load(path, folder)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    generator = random.Random(0)
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        if generator.random() < 0.2:
            del content[generator.randrange(len(content)) :]
        entry.write_bytes(content)
        found, use = cache.load(path, folder)
        assert not use.failed
        assert_same(found, expected)


def test_an_entry_is_only_data(tmp_path):
    folder = tmp_path / "cache"
    cache.load(write_trace(tmp_path / "trace.json"), folder)
    (entry,) = entries(folder)
    names = ["trace.json", *(f"{frame}.parquet" for frame in FRAMES)]
    assert zipfile.ZipFile(entry).namelist() == names
    assert entry.stat().st_mode & 0o111 == 0


def test_metadata_that_json_does_not_keep_is_not_kept(tmp_path, monkeypatch):
    path = write_trace(tmp_path / "trace.json")
    folder = tmp_path / "cache"
    for odd in ((1, 2), float("nan"), object()):
        monkeypatch.setattr(
            "traceprobe.ingest.kineto.link.trace_metadata",
            lambda metadata, odd=odd: {"world_size": odd},
        )
        with pytest.warns(UserWarning, match=r"trace\.json: not kept in the cache"):
            traceprobe.load(path, cache=folder)
    assert not folder.exists()


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path, monkeypatch):
    path = write_trace(tmp_path / "trace.json")
    other = write_trace(tmp_path / "trace.sqlite")
    changed = traceprobe.load(other)
    monkeypatch.setattr("traceprobe.pipeline.cache.read_trace", lambda *_: changed)
    _, use = cache.load(path, tmp_path / "cache")
    assert use.failed
    assert "changed while it was read" in use.text


@pytest.mark.parametrize("name", ["README.md", "sample_traces", "no such file"])
def test_what_is_no_trace_is_refused_as_without_a_cache(name, tmp_path):
    with pytest.raises((traceprobe.TraceprobeError, OSError)) as alone:
        traceprobe.load(ROOT / name)
    with pytest.raises(type(alone.value)) as cached:
        traceprobe.load(ROOT / name, cache=tmp_path / "cache")
    assert str(cached.value) == str(alone.value)
    assert not (tmp_path / "cache").exists()


def test_a_full_disk_costs_the_entry_only(cli, monkeypatch):
    write_trace(cli.folder / "trace.json")
    expected = cli("analyze", "trace.json", "-o", "-").expect(0)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    done = cli("analyze", "trace.json", "-o", "-", "--cache", "kept").expect(0)
    assert done.out == expected.out
    assert done.err == (
        f"warning: trace.json: not kept in the cache: {cli.folder / 'kept'}: "
        "No space left on device\n"
    )
    assert not entries(cli.folder / "kept")


def test_a_folder_that_cannot_be_made_costs_the_entry_only(cli):
    write_trace(cli.folder / "trace.json")
    (cli.folder / "file").touch()
    done = cli("analyze", "trace.json", "-q", "-o", "-", "--cache", "file/kept").expect(0)
    assert done.err == ""
    done = cli("analyze", "trace.json", "-o", "-", "--cache", "file/kept").expect(0)
    assert done.err.startswith("warning: trace.json: not kept in the cache: ")
    assert "Not a directory" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_costs_the_entry_only(cli):
    write_trace(cli.folder / "trace.json")
    (cli.folder / "kept").mkdir(mode=0o500)
    done = cli("analyze", "trace.json", "-o", "-", "--cache", "kept").expect(0)
    assert "Permission denied" in done.err


def test_a_cache_that_is_a_file_is_refused(cli):
    write_trace(cli.folder / "trace.json")
    (cli.folder / "kept").touch()
    done = cli("analyze", "trace.json", "--cache", "kept").expect(2)
    assert "kept" in done.err


def test_other_options_use_the_same_entry(cli):
    write_trace(cli.folder / "trace.json")
    plain = cli("analyze", "trace.json", "-o", "-", "--steps", "2:6").expect(0)
    first = cli("analyze", "trace.json", "-o", "-", "-v", "--cache", "kept").expect(0)
    assert "trace.json: columns kept in the cache, 0." in first.err
    again = cli("analyze", "trace.json", "-o", "-", "-v", "--cache", "kept", "--steps", "2:6")
    assert "trace.json: columns from the cache, 0." in again.expect(0).err
    assert again.out == plain.out
    assert len(entries(cli.folder / "kept")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--jobs", "2"], ["--dask", "local:2"]], ids=" ".join)
def test_workers_share_a_cache(how, tmp_path):
    if "--dask" in how:
        needs_workers_of_dask()
    expected = spawn("analyze", *PAIR, "-o", "-", "--jobs", 1, cwd=tmp_path).expect(0).out
    for state in ("kept in", "from"):
        done = spawn(
            *("analyze", *PAIR, "-o", "-", "-v", "--cache", "cache", *how), cwd=tmp_path
        ).expect(0)
        assert done.out == expected
        for path in PAIR:
            assert f"{path.name}: columns {state} the cache" in done.err
    assert len(entries(tmp_path / "cache")) == 2


@pytest.mark.slow
def test_two_commands_may_write_at_once(tmp_path):
    write_trace(tmp_path / "trace.json")
    command = [*MODULE, "analyze", "trace.json", "-q", "-o", "-", "--cache", "cache"]
    started = [
        subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    texts = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert texts[0] == texts[1]
    (entry,) = entries(tmp_path / "cache")
    assert entry.name.startswith(sha256(tmp_path / "trace.json"))


def test_many_files_that_are_not_kept_are_one_warning(cli):
    (cli.folder / "file").touch()
    for n in range(3):
        loop = type(LOOP)(**{**vars(LOOP), "steps": 10 + n})
        write_trace(cli.folder / f"rank{n}.json", loop)
    names = [f"rank{n}.json" for n in range(3)]
    done = cli("analyze", *names, "-o", "-", "--jobs", 1, "--cache", "file/kept").expect(0)
    assert done.err.count("\n") == 1
    assert "(and 2 more files)" in done.err
