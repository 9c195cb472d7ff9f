#!/usr/bin/env python3
"""Packs programs of a build and the shared libraries that they need into a folder. See scripts/gpu_bundle.

usage: pack_gpu_bundle.py BUILD BUNDLE PROGRAM...
"""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_BYTES = 64 << 20
#: Parts of glibc and of the driver: the GPU host has its own.
HOSTS_OWN = re.compile(r"^(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|cuda|nvrtc))\.so")


def needed(binary):
    """Names to paths of the shared libraries that `binary` loads, its libraries' too."""
    listing = subprocess.run(["ldd", binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    missing = re.findall(r"(\S+) => not found", listing)
    if missing:
        sys.exit(f"pack_gpu_bundle: {binary} needs {', '.join(missing)}")
    return dict(re.findall(r"(\S+) => (/\S+)", listing))


def glibc_needed(paths):
    """The newest version of glibc's symbols that any of the files asks for."""
    newest = (2, 0)
    for path in paths:
        symbols = subprocess.run(["objdump", "-T", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols):
            newest = max(newest, (int(major), int(minor)))
    return f"{newest[0]}.{newest[1]}"


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path(source).resolve(), target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def commit():
    ran = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return ran.stdout.strip() or "unknown"


def main():
    build, bundle, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    shutil.rmtree(bundle, ignore_errors=True)
    binaries = {f"bin/{name}": build / "bin" / name for name in programs}
    binaries["lib/libheddle_cuda_sim.so"] = build / "lib/libheddle_cuda_sim.so"
    for place, source in list(binaries.items()):
        for name, path in needed(source).items():
            if not HOSTS_OWN.match(name):
                binaries.setdefault(f"lib/{name}", pathlib.Path(path))
    for place, source in binaries.items():
        copy_stripped(source, bundle / place)
    for name in ("kernel_shim.h", "state.h"):
        (bundle / "cuda_sim/tests/cuda_sim").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests/cuda_sim" / name, bundle / "cuda_sim/tests/cuda_sim" / name)
    (bundle / "suite").mkdir()
    for script in sorted((ROOT / "bench/gpu").glob("*.py")):
        shutil.copy(script, bundle / "suite" / script.name)
    shutil.copy(ROOT / "bench/gpu/run_gpu_suite", bundle / "run_gpu_suite")
    shutil.copy(ROOT / "LICENSE", bundle / "LICENSE")
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    bytes_ = sum(path.stat().st_size for path in files)
    document = {"commit": commit(), "programs": programs, "glibc": glibc_needed(bundle / place for place in binaries), "bytes": bytes_,
                "files": {str(path.relative_to(bundle)): hashlib.sha256(path.read_bytes()).hexdigest()
                          for path in files}}
    (bundle / "MANIFEST.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{bundle}: {len(files)} files, {bytes_ / 1e6:.1f} MB, glibc {document['glibc']} or later")
    if bytes_ > LIMIT_BYTES:
        sys.exit(f"pack_gpu_bundle: {bytes_} bytes, at most {LIMIT_BYTES} may travel")


if __name__ == "__main__":
    main()
