#!/usr/bin/env python3
"""Runs `heddle verify --device cuda-sim` over every n-th node case of the ONNX backend test.

usage: onnx_cases.py HEDDLE [N [FOLDER]]
Exits with 77, a skip, where the cases are not installed.
"""

import json
import os
import subprocess
import sys

FOLDER = "/usr/share/libonnx-testdata/data/node"


def main():
    command = sys.argv[1]
    step = int(sys.argv[2]) if len(sys.argv) > 2 else 25
    folder = sys.argv[3] if len(sys.argv) > 3 else FOLDER
    if not os.path.isdir(folder):
        print(f"{folder} is not there: install libonnx-testdata")
        return 77
    cases = [os.path.join(folder, name) for name in sorted(os.listdir(folder))[::step]]
    ran = subprocess.run([command, "verify", "--device", "cuda-sim", "--json", *cases],
                         stdout=subprocess.PIPE, text=True)
    result = json.loads(ran.stdout)
    for case in result["cases"]:
        if case["result"] != "PASS":
            print(f"{case['result']} {case['case']}: {case['reason']}")
    print({key: value for key, value in result.items() if key != "cases"})
    good = (ran.returncode == 0 and result["failed"] == 0 and result["evaluator_steps"] == 0
            and result["library_steps"] == 0 and result["passed"] >= 0.7 * len(cases))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
