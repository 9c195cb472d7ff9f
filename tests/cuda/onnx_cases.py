#!/usr/bin/env python3
"""Runs `heddle verify --device cuda-sim` over node cases of the ONNX backend test, in three interleavings each.

usage: onnx_cases.py HEDDLE [N [FOLDER]]       (every N-th case: each by night, with HEDDLE_NIGHTLY=1, else 12)
Exits with 77, a skip, where the cases are not installed.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "onnx"))
from node_data import FOLDER, NOT_AS_SAID  # noqa: E402  (found by the line above)

#: Interleavings of streams; 0 is the order in which work was given.
SEEDS = [0, 1, 2]


def verified(command, cases, seed):
    """Whether all cases that the engine takes are right with this interleaving; says which are not."""
    ran = subprocess.run([command, "verify", "--device", "cuda-sim", "--json", *cases],
                         env={**os.environ, "HEDDLE_CUDA_SIM_SEED": str(seed)}, stdout=subprocess.PIPE, text=True)
    result = json.loads(ran.stdout)
    right = ran.returncode == (1 if result["failed"] else 0)
    for case in result["cases"]:
        if case["result"] == "FAIL" and case["case"] not in NOT_AS_SAID:
            right = False
        if case["result"] != "PASS":
            print(f"seed {seed}: {case['result']} {case['case']}: {case['reason']}")
    print(f"seed {seed}:", {key: value for key, value in result.items() if key != "cases"}, flush=True)
    return (right and result["evaluator_steps"] == 0
            and result["library_steps"] == 0 and result["passed"] >= 0.7 * len(cases))


def main():
    command = sys.argv[1]
    by_default = 1 if os.environ.get("HEDDLE_NIGHTLY") == "1" else 12
    step = int(sys.argv[2]) if len(sys.argv) > 2 else by_default
    folder = sys.argv[3] if len(sys.argv) > 3 else FOLDER
    if not os.path.isdir(folder):
        print(f"{folder} is not there: install libonnx-testdata")
        return 77
    cases = [os.path.join(folder, name) for name in sorted(os.listdir(folder))[::step]]
    bad = [seed for seed in SEEDS if not verified(command, cases, seed)]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
