"""The table of GPUs: its peaks follow from the chips, and names mean one GPU or none."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3

import pytest

from traceprobe.verdict import gpu_specs as gpus

GIB = 1 << 30
ENTRIES = gpus.table().gpus
PEAKS = [(entry, precision) for entry in ENTRIES for precision in entry.peaks]


def named(item):
    return item.name.replace(" ", "-") if isinstance(item, gpus.Entry) else item


def test_the_table_reaches_from_kepler_to_blackwell_and_cdna():
    names = {entry.name for entry in ENTRIES}
    assert {"K80", "A100 SXM4 40GB", "H200 SXM", "B200", "MI250X", "MI300X", "MI355X"} <= names
    assert len(names) == len(ENTRIES)


@pytest.mark.parametrize(("entry", "precision"), PEAKS, ids=named)
def test_every_peak_is_multiprocessors_times_fma_times_clock_or_says_why_not(entry, precision):
    deviation = abs(gpus.formula(entry, precision) / entry.peaks[precision] - 1)
    if precision in entry.unproven:
        assert deviation > 0.02
        assert len(entry.unproven[precision]) > 5
    else:
        assert deviation <= 0.02


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_every_entry_has_the_peaks_that_its_architecture_has(entry):
    fma = gpus.table().architectures[entry.architecture].fma
    assert set(entry.peaks) <= set(fma)
    assert set(fma) - set(entry.peaks) <= {"fp64", "fp64_tensor"}
    assert set(entry.unproven) <= set(entry.peaks)
    assert set(fma) <= set(gpus.PRECISIONS)


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_every_entry_can_be_found_and_says_where_it_is_from(entry):
    assert entry.aliases or entry.patterns
    assert 2014 <= entry.year <= 2026
    assert len(entry.source) > 10
    for alias in entry.aliases:
        for spelling in (alias, f"NVIDIA {alias}", alias.upper()):
            assert gpus.find_gpu(spelling).name == entry.name


def test_no_name_means_two_gpus():
    aliases = [alias.lower() for entry in ENTRIES for alias in entry.aliases]
    assert len(set(aliases)) == len(aliases)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.mig], ids=named)
def test_slices_are_no_larger_than_the_gpu(entry):
    for name, (multiprocessors, eighths) in entry.mig.items():
        assert multiprocessors <= entry.multiprocessors
        size = float(name.partition(".")[2].removesuffix("gb"))
        assert size == pytest.approx(entry.memory_gb[0] * eighths / 8, rel=0.03)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("AMD Instinct MI300X VF", "MI300X"),
    ],
)
def test_names_mean_their_gpu(name, expected):
    assert gpus.find_gpu(name).name == expected


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA H100",
        "NVIDIA H200 NVL",
        "NVIDIA H20",
        "NVIDIA H800 PCIe",
        "NVIDIA L40S-48Q",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A100",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 3080 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Quadro RTX 6000",
        "NVIDIA RTX 6000",
        "AMD Instinct MI308X",
        "AMD Radeon Graphics",
        "Tesla V100-SXM2-32GB-LS",
        "NVIDIA A100-SXM4-40GB MIG 9g.99gb",
        "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb",
        "NVIDIA GeForce RTX 3090 MIG 3g.20gb",
        "CPU",
        "A" * 100_000,
    ],
)
def test_near_misses_stay_unknown(name):
    assert gpus.find_gpu(name) is None


def test_a_slice_has_its_part_of_the_gpu():
    whole = gpus.find_gpu("NVIDIA A100-SXM4-40GB")
    part = gpus.find_gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    assert (part.name, part.slice, part.multiprocessors) == (whole.name, "3g.20gb", 42)
    assert part.part == pytest.approx(42 / 108)
    assert part.peaks["fp16"] == pytest.approx(312 * 42 / 108)
    assert part.bandwidth_gbps == pytest.approx(1555 / 2)
    assert part.l2_mb == pytest.approx(20)
    assert (whole.nvlink_gbps, part.nvlink_gbps) == (300, None)
    assert (whole.part, whole.slice) == (1, None)


def test_the_device_knows_the_size_of_its_slice_better():
    part = gpus.find_gpu("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "8.0", 14, int(19.5 * GIB))
    assert (part.slice, part.multiprocessors) == ("1c.3g.20gb", 14)
    assert part.bandwidth_gbps == pytest.approx(1555 / 2)
    unlisted = gpus.find_gpu("NVIDIA A100-SXM4-40GB MIG 5g.25gb", "8.0", 70, int(24.4 * GIB))
    assert unlisted.bandwidth_gbps == pytest.approx(1555 * 5 / 8)
    beyond = gpus.find_gpu("NVIDIA A100-SXM4-40GB MIG 5g.25gb", "8.0", 70, 1 << 45)
    assert beyond.bandwidth_gbps is None


def test_a_slice_with_its_facts_and_extensions():
    facts = ("8.0", 42, int(19.5 * GIB), 32)
    assert gpus.find_gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", *facts) == gpus.find_gpu(
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    )
    media = gpus.find_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me")
    assert (media.name, media.slice, media.multiprocessors) == ("H100 SXM5", "1g.10gb", 16)


def test_a_slice_without_its_name_is_known_by_what_it_has():
    part = gpus.find_gpu("NVIDIA A100-SXM4-40GB", "8.0", 28, int(9.75 * GIB))
    assert part.part == pytest.approx(28 / 108)
    assert part.bandwidth_gbps == pytest.approx(1555 / 4)
    assert gpus.find_gpu("NVIDIA A100-SXM4-40GB", "8.0", 28).bandwidth_gbps is None
    assert gpus.find_gpu("NVIDIA A100-SXM4-40GB", "8.0", 28, 42_350_739_456).bandwidth_gbps is None


def test_a_program_sees_one_die_of_a_package():
    die = gpus.find_gpu("AMD Instinct MI250X")
    assert (die.multiprocessors, die.part) == (110, 0.5)
    assert die.peaks["bf16"] == pytest.approx(191.5)
    assert die.bandwidth_gbps == pytest.approx(1638.5)
    assert gpus.find_gpu("AMD Instinct MI250X", "9.0", 110, 64 * GIB, 64) == die
    assert gpus.find_gpu("Tesla K80").peaks["fp32"] == pytest.approx(4.37)


def test_without_a_name_the_facts_tell():
    found = gpus.find_gpu(None, "9.4", 304, 206_141_652_992, 64)
    assert (found.name, found.matched) == ("MI300X", "fingerprint")
    assert gpus.find_gpu("AMD Radeon Graphics", "9.0", 104, 68_702_699_520, 64).name == "MI210"
    assert gpus.find_gpu("", "9.4", 304, 256 * GIB, 64).name == "MI325X"
    assert gpus.find_gpu("", "9.5", 256, 288 * GIB, 64) is None  # MI350X or MI355X
    assert gpus.find_gpu("", "10.0", 148, 191_503_138_816, 32).name == "B200"


@pytest.mark.parametrize(
    "facts",
    [
        (None, 304, 206_141_652_992, 64),  # not all of them
        ("9.4", 304, 206_141_652_992, 32),  # AMD's numbers with NVIDIA's warps
        ("9.0", 132, 206_141_652_992, 32),  # no Hopper has that memory
        ("8.0", 108, 42_297_524_224, 32),  # PCIe or SXM4
        ("9.0", 132, 150_109_880_320, 32),  # H200 or GH200
        ("9.0", 132, 85_018_279_936, 32),  # H100 SXM5 or H800
        ("9.0", 132, 85_018_279_936, 64),
    ],
)
def test_facts_that_fit_none_or_several_tell_nothing(facts):
    assert gpus.find_gpu("", *facts) is None


def test_facts_tell_nothing_of_a_name_that_means_another_gpu():
    facts = ("10.0", 148, 191_503_138_816, 32)
    assert gpus.find_gpu("", *facts).name == "B200"
    assert gpus.find_gpu("NVIDIA B100", *facts) is None


def test_facts_tell_no_slices(monkeypatch):
    """Even where one GPU alone could have such a slice."""
    (a100,) = [entry for entry in ENTRIES if entry.name == "A100 SXM4 40GB"]
    alone = gpus.GpuTable("", gpus.table().architectures, [a100])
    monkeypatch.setattr(gpus, "table", lambda: alone)
    assert gpus.find_gpu("", "8.0", 108, 42_350_739_456, 32).name == "A100 SXM4 40GB"
    assert gpus.find_gpu("", "8.0", 42, int(19.5 * GIB), 32) is None


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("NVIDIA GeForce RTX 3080", ("8.6", 70, 12 * GIB, 32)),  # there are two of that name
        ("NVIDIA H200", ("8.0", None, None, None)),
        ("NVIDIA H200", ("9.0", 132, 150_109_880_320, 64)),
        ("NVIDIA A40", (None, 42, None, None)),
        ("NVIDIA A100-SXM4-40GB", (None, 124, None, None)),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", (None, 124, None, None)),
    ],
)
def test_a_name_that_the_facts_contradict_stays_unknown(name, facts):
    assert gpus.find_gpu(name, *facts) is None


def kineto_devices(path):
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        head = file.read(1 << 20)
    start = head.find('"deviceProperties"')
    if start < 0:
        return []
    text = head[head.index("[", start) :]
    found, _ = json.JSONDecoder().raw_decode(text)
    return [
        (
            d["name"],
            f"{d['computeMajor']}.{d['computeMinor']}",
            d["numSms"],
            d["totalGlobalMem"],
            d["warpSize"],
        )
        for d in found
    ]


def nsight_devices(path, folder):
    with gzip.open(path) as packed, (folder / path.stem).open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    database = sqlite3.connect(folder / path.stem)
    try:
        columns = {row[1] for row in database.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
        if "name" not in columns:
            return []
        if "smCount" not in columns:
            rows = database.execute("SELECT name FROM TARGET_INFO_GPU")
            return [(name, None, None, None, None) for (name,) in rows]
        rows = database.execute(
            "SELECT name, computeMajor || '.' || computeMinor, smCount, totalMemory, "
            "threadsPerWarp FROM TARGET_INFO_GPU"
        )
        return rows.fetchall()
    finally:
        database.close()


def test_every_device_of_the_corpus_is_known_by_name_and_with_its_facts(corpus, tmp_path):
    devices = set()
    for path in sorted(corpus.rglob("*.gz")):
        nsight = path.name.endswith(".sqlite.gz")
        devices |= set(nsight_devices(path, tmp_path) if nsight else kineto_devices(path))
    assert len({name for name, *_ in devices}) > 10
    assert {
        d[0] for d in devices if gpus.find_gpu(d[0]) is None or gpus.find_gpu(*d) is None
    } == set()


def test_the_table_agrees_with_what_devices_say_of_themselves(corpus, samples, tmp_path):
    """Nsight Systems notes clock, L2 and bandwidth; boards of other makers have other clocks."""
    compared = set()
    for path in sorted([*corpus.rglob("*.sqlite.gz"), *samples.glob("*.sqlite.gz")]):
        for name, clock, l2, bandwidth in gpu_properties(path, tmp_path):
            gpu = gpus.find_gpu(name)
            assert gpu.l2_mb in (None, l2 / (1 << 20))
            if gpu.bandwidth_gbps is not None:
                assert gpu.bandwidth_gbps == pytest.approx(bandwidth / 1e9, rel=0.005)
            if "3060" not in name and "2080" not in name:
                assert gpu.clock_mhz == pytest.approx(clock / 1e6, rel=0.005)
            compared.add(gpu.name)
    assert len(compared) >= 5


def gpu_properties(path, folder):
    with gzip.open(path) as packed, (folder / path.stem).open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    database = sqlite3.connect(folder / path.stem)
    try:
        return database.execute(
            "SELECT name, clockRate, l2CacheSize, memoryBandwidth FROM TARGET_INFO_GPU "
            "WHERE clockRate AND l2CacheSize AND memoryBandwidth"
        ).fetchall()
    except sqlite3.OperationalError:  # no such table, or not yet these columns
        return []
    finally:
        database.close()


def test_every_device_of_the_samples_is_known(samples, tmp_path):
    for path in sorted(samples.glob("*.gz")):
        nsight = path.name.endswith(".sqlite.gz")
        for device in nsight_devices(path, tmp_path) if nsight else kineto_devices(path):
            assert gpus.find_gpu(*device).name == "H200 SXM"
