#!/usr/bin/env python3
"""Runs `heddle verify` over what ONNX Runtime gives for ops of com.microsoft and ai.onnx.ml (make_contrib_cases.py,
make_classical_cases.py).

usage: contrib_cases.py HEDDLE
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("contrib_cases.zip", "classical_cases.zip"):
            with zipfile.ZipFile(pathlib.Path(__file__).parent / name) as cases:
                cases.extractall(folder)
        command = [sys.argv[1], "verify", folder, "--json", "--rtol", "1e-4", "--atol", "1e-5"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    result = json.loads(ran.stdout)
    for case in result["cases"]:
        if case["result"] != "PASS":
            print(f"{case['result']} {case['case']}: {case['reason']}")
    print({key: value for key, value in result.items() if key != "cases"})
    all_pass = result["passed"] == len(result["cases"]) > 0
    return 0 if ran.returncode == 0 and all_pass and result["evaluator_steps"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
