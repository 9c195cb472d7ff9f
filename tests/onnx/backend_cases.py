#!/usr/bin/env python3
"""Runs `heddle verify` over the node cases of the ONNX backend test (Debian: libonnx-testdata).

usage: backend_cases.py HEDDLE [FOLDER]
Exits with 77, a skip, where the cases are not installed.
"""

import json
import os
import subprocess
import sys

from node_data import FOLDER, NOT_AS_SAID

LEAST_PASSED = 865


def main():
    command = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else FOLDER
    if not os.path.isdir(folder):
        print(f"{folder} is not there: install libonnx-testdata")
        return 77
    ran = subprocess.run([command, "verify", folder, "--json"], stdout=subprocess.PIPE, text=True)
    result = json.loads(ran.stdout)
    failed = {case["case"] for case in result["cases"] if case["result"] == "FAIL"}
    for case in result["cases"]:
        if case["case"] in failed - NOT_AS_SAID:
            print(f"FAIL {case['case']}: {case['reason']}")
    counts = {key: value for key, value in result.items() if key != "cases"}
    print(counts)
    wrong = []
    if ran.returncode not in (0, 1 if failed else 0):
        wrong.append(f"exit code {ran.returncode}")
    if failed - NOT_AS_SAID:
        wrong.append(f"{len(failed - NOT_AS_SAID)} failed")
    if result["passed"] < LEAST_PASSED:
        wrong.append(f"only {result['passed']} passed, {LEAST_PASSED} are known to")
    if result["evaluator_steps"] != 0:
        wrong.append(f"{result['evaluator_steps']} steps by the evaluator")
    if result["jit_steps"] == 0:
        wrong.append("no step by a compiled kernel")
    for reason in wrong:
        print(reason)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
