"""Vendor the Vega libraries that draw the charts of the HTML report.

Run it with `npm` on the PATH after changing a version below: it fetches the pinned packages, keeps
their minified builds and licences in `templates/vendor/` and writes `VERSIONS.json` beside them,
and `library.txt`, all of it packed as pages carry it.
The Vega-Lite version must be the one that altair writes its specs for.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.render import html  # noqa: E402

PACKAGES = {"vega": "6.2.0", "vega-lite": "6.4.1", "vega-embed": "7.0.2"}
"""Package to version, in the order in which a page has to load them."""

VENDOR = ROOT / "templates" / "vendor"
BREAKS_INLINE_SCRIPT = ("</script", "<!--", "<script")
"""What ends an inline script, or changes how a browser looks for its end."""


def pack(package: str, version: str, folder: Path) -> Path:
    """Download one package from the npm registry into `folder`."""
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / done.stdout.strip().splitlines()[-1]


def extract(archive: Path, member: str) -> str:
    """Read one text file out of a package."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"package/{member}")
        if file is None:
            sys.exit(f"{archive.name} holds no {member}")
        return file.read().decode()


def inline_safe(name: str, source: str) -> str:
    """Check that `source` can stand inside a script element; drop the source map comment.

    The map is not shipped, and a browser's console would look for it.
    """
    lines = [line for line in source.splitlines() if not line.startswith("//# sourceMappingURL=")]
    text = "\n".join(lines) + "\n"
    found = [mark for mark in BREAKS_INLINE_SCRIPT if mark in text.lower()]
    if found:
        sys.exit(f"{name} cannot be inlined: it contains {', '.join(found)}")
    return text


def main() -> None:
    """Fetch every package and write the vendor folder."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for package, version in PACKAGES.items():
            archive = pack(package, version, Path(folder))
            name = f"{package}.min.js"
            script = inline_safe(name, extract(archive, f"build/{name}"))
            (VENDOR / name).write_text(script, encoding="utf-8")
            licence = extract(archive, "LICENSE")
            (VENDOR / f"{package}.LICENSE.txt").write_text(licence, encoding="utf-8")
            digest = hashlib.sha256(script.encode()).hexdigest()
            records.append({"package": package, "version": version, "file": name, "sha256": digest})
    versions = json.dumps({"load_order": records}, indent=2) + "\n"
    (VENDOR / "VERSIONS.json").write_text(versions, encoding="utf-8")
    # Packed here and not where a page is made: what zlib makes of it differs between its versions.
    (VENDOR / "library.txt").write_text(html.packed(html.vendored_scripts()), encoding="utf-8")


if __name__ == "__main__":
    main()
