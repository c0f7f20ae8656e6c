"""Pickles are read as data: whatever else they would do is refused, and nothing of it is done."""

from __future__ import annotations

import os
import pickle
import pickletools
import random
import struct
import subprocess

import pytest

from tests.flight_records import SCENARIOS
from traceprobe.ingest.nccl import plain_pickle
from traceprobe.ingest.nccl.plain_pickle import NotPlain, loads

PLAIN = {
    "none": None,
    "truth": [True, False],
    "numbers": [0, 255, 256, -1, 2**31 - 1, -(2**31), 2**40, 2**100, 1.5],
    "texts": ["", "ä€", "x" * 300, b"bytes", b"y" * 300],
    "nested": {"a": {"b": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]}},
}
DUMP = SCENARIOS["two_groups"][0]().dump(1)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value", [PLAIN, DUMP, [], {}, "text"], ids=["all", "dump", "[]", "{}", "text"]
)
def test_plain_data_is_read_as_python_reads_it(protocol, value):
    if protocol == 2 and value is PLAIN:
        value = {**PLAIN, "texts": ["", "ä€"]}  # there, bytes are the call of a function
    assert loads(pickle.dumps(value, protocol=protocol)) == value


def test_what_is_referred_to_twice_is_one_object():
    shared = ["frame"]
    found = loads(pickle.dumps([shared, shared], protocol=2))
    assert found[0] is found[1]


class Runs:
    """A pickle that runs a command where it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


class Plain:
    pass


HOSTILE = {
    "os.system": pickle.dumps(Runs(os.system, "touch EXECUTED")),
    "os.system, protocol 2": pickle.dumps(Runs(os.system, "touch EXECUTED"), protocol=2),
    "inside a dump": pickle.dumps({**DUMP, "entries": [Runs(os.system, "touch EXECUTED")]}),
    "a dump before it": pickle.dumps([DUMP, Runs(subprocess.getoutput, "touch EXECUTED")]),
    "eval": pickle.dumps(Runs(eval, "open('EXECUTED', 'w')")),
    "an object": pickle.dumps(Plain()),
    "a class": pickle.dumps(Plain),
    "a set": pickle.dumps({1, 2}),
    "inst": b"\x80\x02(S'touch EXECUTED'\nios\nsystem\n.",
    "inst without mark": b"\x80\x02ios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\nX\x01\x00\x00\x00ao.",
    "persistent": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "persistent text": b"\x80\x02Pa\n.",
    "extension": b"\x80\x02\x82\x01.",
    "build": b"\x80\x02}}b.",
    "protocol 0": pickle.dumps({"a": 1}, protocol=0),
    "protocol 9": b"\x80\x09N.",
    "a text number": b"\x80\x02I1\n.",
    "buffers": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_more_than_data_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotPlain):
        loads(HOSTILE[name])
    assert not [*tmp_path.iterdir()]


BROKEN = {
    "empty": b"",
    "a header": b"\x80\x02",
    "no value": b"\x80\x02.",
    "two values": b"\x80\x02NN.",
    "a mark": b"\x80\x02(.",
    "no mark": b"\x80\x02]Ne.",
    "append to nothing": b"\x80\x02Na.",
    "append to a text": b"\x80\x02X\x01\x00\x00\x00aNa.",
    "append to a mark": b"\x80\x02(Na.",
    "an odd dictionary": b"\x80\x02}(Nu.",
    "a key that is a list": b"\x80\x02}]Ns.",
    "keys that collide": b"\x80\x02}K\x01Ns.",
    "a key deep as the stack": b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"Ns.",
    "no such memo": b"\x80\x02h\x05.",
    "nothing to remember": b"\x80\x02q\x05N.",
    "a mark to remember": b"\x80\x02(q\x05N.",
    "a text beyond the end": b"\x80\x02X\xff\xff\xff\xffabc.",
    "a long text beyond the end": b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b".",
    "a number of many digits": b"\x80\x02\x8b" + struct.pack("<I", 10**6) + b"\xff" * 10**6 + b".",
    "a number of negative length": b"\x80\x02\x8b" + struct.pack("<i", -1) + b".",
    "a tuple of a mark": b"\x80\x02(\x85.",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused(name):
    with pytest.raises(NotPlain):
        loads(BROKEN[name])


def test_values_are_bounded(monkeypatch):
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 1000)
    assert loads(b"\x80\x02](" + b"}" * 998 + b"e.") == [{}] * 998
    with pytest.raises(NotPlain, match="more than 1,000 values"):
        loads(b"\x80\x02](" + b"}" * 999 + b"e.")


def test_a_billion_laughs_stay_as_small_as_their_file():
    bomb = b"\x80\x02]q\x00" + b"".join(
        b"](" + b"h%c" % level * 10 + b"eq%c" % (level + 1) for level in range(200)
    )
    # Each list holds ten times the one before it; nothing of it is ever copied.
    found = loads(bomb.replace(b"\x80\x02]q\x00", b"\x80\x02(]q\x00") + b"t.")
    assert len(found) == 201
    assert len(found[-1]) == 10
    assert found[-1][0] is found[-2]


def test_nesting_costs_no_stack():
    deep = 1_000_000
    found = loads(b"\x80\x02" + b"]" * deep + b"a" * (deep - 1) + b".")
    for _ in range(deep - 1):
        (found,) = found
    assert found == []


@pytest.mark.parametrize("seed", range(8))
def test_damaged_dumps_are_refused_or_read(seed):
    """Whatever bytes change: a value of plain types, or one clean refusal."""
    rng = random.Random(seed)
    whole = pickle.dumps(DUMP, protocol=rng.choice([2, 4]))
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3, 20])):
            at = rng.randrange(2, len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 9)]
                case 2:
                    data[at:at] = rng.randbytes(rng.randrange(1, 5))
                case 3:
                    del data[max(at, 3) :]
            if len(data) < 4:
                break
        try:
            found = loads(bytes(data))
        except NotPlain:
            continue
        assert type(found) in (dict, list, tuple, str, bytes, int, float, bool, type(None))


def test_every_opcode_is_known_or_refused():
    known = {code.code.encode("latin-1") for code in pickletools.opcodes}
    assert set(plain_pickle._OPCODES) < known
    for code in known - set(plain_pickle._OPCODES) - {b"."}:
        with pytest.raises(NotPlain, match=r"opcode|protocol"):
            loads(b"\x80\x02" + code + b"\x00" * 20)
