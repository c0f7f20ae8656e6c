"""Lighthouse's scores of pages, served from this machine.

    python scripts/lighthouse.py PAGE.html …   # needs `npm install lighthouse` and Chromium

`LIGHTHOUSE` names the program where it is not on the PATH, `CHROME_PATH` the browser. A page is a
file that is opened on a desk, so the numbers are those of a desktop without a slow network; exits
with 1 below 95 for performance or 100 for accessibility.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LEAST = {"performance": 95, "accessibility": 100}
SHOWN = ("first-contentful-paint", "total-blocking-time", "cumulative-layout-shift")


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def scores(page: Path) -> dict[str, object]:
    """The categories of `LEAST`, 0 to 100, and the times of `SHOWN` in words."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(page.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        os.environ.get("LIGHTHOUSE", "lighthouse"),
        f"http://127.0.0.1:{server.server_port}/{page.name}",
        "--preset=desktop",
        f"--only-categories={','.join(LEAST)}",
        "--chrome-flags=--headless=new --no-sandbox --disable-dev-shm-usage --disable-gpu",
        *("--output=json", "--quiet"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    server.shutdown()
    found = json.loads(done.stdout)
    rounded = {name: round(100 * found["categories"][name]["score"]) for name in LEAST}
    return rounded | {name: found["audits"][name]["displayValue"] for name in SHOWN}


def main() -> int:
    """Print the scores of every page; 1 where one is too low."""
    low = 0
    for name in sys.argv[1:]:
        found = scores(Path(name).resolve())
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in found.items())}")
        low += any(int(str(found[key])) < least for key, least in LEAST.items())
    return int(low > 0)


if __name__ == "__main__":
    sys.exit(main())
