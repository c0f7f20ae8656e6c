"""Pages of an Nsight Systems export: which hold the rows of a table, and spoiling them."""

from __future__ import annotations

import sqlite3

from tests.builders import nsight
from tests.builders.scenario import Script

MANY = 2_000
"""Kernels of the export."""
PAGE = 4096


def write_many_kernels(path):
    """An export of many kernels: its tables have many pages."""
    script = Script()
    for k in range(MANY):
        at = 1_000_000 + k * 10_000
        script.op("kernel", at, at + 5_000, (at - 9_000, at - 8_000))
    return nsight.write(script.build(), path)


def leaf_pages(path, table):
    """Numbers of the pages that hold rows of a table, in the order of the rows."""
    data = path.read_bytes()
    with sqlite3.connect(path) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = db.execute(query, (table,)).fetchone()
    db.close()

    def below(number):
        page = data[(number - 1) * PAGE : number * PAGE]
        if page[0] == 13:
            return [number]
        cells = int.from_bytes(page[3:5], "big")
        at = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
        children = [int.from_bytes(page[a : a + 4], "big") for a in at]
        children.append(int.from_bytes(page[8:12], "big"))
        return [leaf for child in children for leaf in below(child)]

    return below(root)


def overwrite_pages(path, *pages):
    """Overwrite pages with what is none."""
    with path.open("r+b") as file:
        for number in pages:
            file.seek((number - 1) * PAGE)
            file.write(b"\xa5" * PAGE)
    return path
