"""Where the report's templates, styles and scripts are found.

They live in the top-level `templates/` folder of the source tree; a wheel carries them inside the
package instead. An editable install may hold a stale copy in site-packages, so the folder is looked
up beside the code that is running, never through the package's metadata.
"""

from __future__ import annotations

from pathlib import Path

_PAGE = "page.html.j2"


def templates_dir() -> Path:
    """The folder that holds `page.html.j2` and what it includes.

    Raises:
        FileNotFoundError: the installation is incomplete; the message names the places searched.
    """
    package = Path(__file__).resolve().parents[1]
    places = (package / "templates", package.parent / "templates")
    for place in places:
        if (place / _PAGE).is_file():
            return place
    searched = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"traceprobe is installed without {_PAGE}: searched {searched}")
