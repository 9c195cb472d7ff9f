#!/usr/bin/env python3
"""Runs `heddle verify` over the node cases of the newest ONNX release that is supported, all its opsets.

usage: newer_cases.py HEDDLE WHEELS CACHE

WHEELS holds the wheels onnx, numpy, protobuf, ml_dtypes and typing_extensions (scripts/fetch_wheel), from which the cases
are written into CACHE once. Exits with 77, a skip, where one of them is missing.
"""

import json
import os
import subprocess
import sys

ONNX = "1.23.2"
NEEDED = ["onnx", "numpy", "protobuf", "ml_dtypes", "typing_extensions"]
LEAST_PASSED = 1805
# ONNX's evaluator rounds between the steps of an op, a kernel at its end: results may differ by some units in the last place.
FEW_BITS = {
    "bf16": ["--rtol", "1.6e-2"],
    "fp16": ["--rtol", "2e-3"],
    # Where numbers cancel each other, what is left of them is rounding alone.
    "dft_inverse": ["--atol", "1e-6"],
}


def write_cases(wheels, folder):
    for name in NEEDED:
        sys.path.insert(0, os.path.join(wheels, name))
    import onnx
    from onnx.backend.test import cmd_tools
    from onnx.backend.test.case import node

    if onnx.__version__ != ONNX:
        return f"onnx {ONNX} is not served, but {onnx.__version__}"
    cases = node.collect_testcases(None)

    class Output:
        output = folder + ".part"

    cmd_tools.model_test.collect_testcases = lambda: cases
    cmd_tools.generate_data(Output)
    os.rename(Output.output, folder)
    return None


def verify(command, folder, *options):
    ran = subprocess.run([command, "verify", *folder, "--json", *options], stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def precision_of(case):
    return next((bits for bits in FEW_BITS if bits in case), None)


def main():
    command, wheels, cache = sys.argv[1:4]
    missing = [name for name in NEEDED if not os.path.isfile(os.path.join(wheels, name, ".complete"))]
    if missing:
        print(f"not fetched: {', '.join(missing)}")
        return 77
    folder = os.path.join(cache, "onnx_cases_" + ONNX)
    if not os.path.isdir(folder):
        reason = write_cases(wheels, folder)
        if reason:
            print(reason)
            return 77
    result = verify(command, [os.path.join(folder, "node")])
    passed = result["passed"]
    wrong = []
    for case in result["cases"]:
        if case["result"] != "FAIL":
            continue
        name = case["case"]
        bits = precision_of(name)
        if bits:
            again = verify(command, [os.path.join(folder, "node", name)], *FEW_BITS[bits])
            if again["failed"] == 0:
                passed += 1
                continue
        wrong.append(f"FAIL {name}: {case['reason']}")
    print({key: value for key, value in result.items() if key != "cases"}, f"{passed} passed in all")
    if passed < LEAST_PASSED:
        wrong.append(f"only {passed} passed, {LEAST_PASSED} are known to")
    if result["evaluator_steps"] != 0:
        wrong.append(f"{result['evaluator_steps']} steps by the evaluator")
    for reason in wrong:
        print(reason)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
