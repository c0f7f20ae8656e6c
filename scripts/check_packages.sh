#!/bin/sh
# Build the source archive and, from it, the wheel; then try the wheel in an empty environment and
# the editable install of $VENV (default .venv). Run it from the root of the source tree.
set -eu

root=$(pwd)
venv=$root/${VENV:-.venv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# try BIN PACKAGE_PARENT: the installation in BIN works from any folder and runs the expected code.
try() {
    home=$("$1/python" -c 'import pathlib, traceprobe; print(pathlib.Path(traceprobe.__file__).parents[1])')
    if [ "$home" != "$2" ]; then
        echo "expected traceprobe from $2, got it from $home" >&2
        return 1
    fi
    "$1/traceprobe" --version
    "$1/python" -m traceprobe --version
    for trace in cpu_convnet.json.gz h200_nvtx_start_end.sqlite.gz; do
        "$1/traceprobe" analyze -q -f "$root/sample_traces/$trace" -o r.html -o r.json -o r.md
    done
    "$1/traceprobe" render r.json -f -o again.html
    grep -q '</html>' r.html
    grep -q 'vega' r.html
    cmp r.html again.html
}

rm -rf build/dist
"$venv/bin/python" -m build --no-isolation --outdir build/dist >"$work/build.log" 2>&1 || {
    cat "$work/build.log" >&2
    exit 1
}
PYTHON="$venv/bin/python" scripts/make_venv.sh "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-compile \
    --constraint constraints.txt build/dist/traceprobe-*.whl

cd "$work"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
try "$work/venv/bin" "$site"
for needed in templates/page.html.j2 workloads/unet.py records/report.schema.json py.typed \
    capture/hook/sitecustomize.py workloads/ladders/tiny.toml; do
    test -f "$site/traceprobe/$needed" || { echo "the wheel lacks traceprobe/$needed" >&2; exit 1; }
done
echo "wheel: ok"
try "$venv/bin" "$root"
echo "editable install: ok"
