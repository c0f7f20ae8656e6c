#!/bin/sh
# Make a virtual environment: scripts/make_venv.sh FOLDER
# Uses $PYTHON, or else the first Python >= 3.10 on the PATH that really runs (a version manager's
# shim may be there without a Python behind it).
set -eu

folder=$1
found=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.14 python}; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
        found=$candidate
        break
    fi
done
if [ -z "$found" ]; then
    echo "traceprobe needs Python 3.10 or later. Tried: ${PYTHON:-python3, python3.10 to 3.14}." >&2
    echo "Install one and try again, or name one: make PYTHON=/path/to/python3 ..." >&2
    exit 2
fi

# Debian ships venv without ensurepip unless python3-venv is installed: then pip comes from outside.
if ! "$found" -m venv --clear "$folder" >/dev/null 2>&1; then
    "$found" -m venv --clear --without-pip "$folder"
    "$found" -m pip --python "$folder/bin/python" install --quiet pip
fi
