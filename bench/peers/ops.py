"""Runs models of single ops, at sizes that users' models have, through Heddle and ONNX Runtime on one thread: same
outputs, and which is faster.

usage: .cache/peers_venv/bin/python bench/peers/ops.py [--only REGEX] [--heddle PATH] [--rounds N] [--no-times]
                                                       [--write] [--list]

bench/peers/run makes that Python environment. The cases are in op_movement.py, op_elements.py, op_products.py and,
without times, op_edges.py, by families. A case's name fixes its numbers; its model, its inputs and ONNX Runtime's
outputs are left in .cache/ops/NAME, a case for `heddle verify`. --only takes cases whose family and name, as in
pointwise/relu, match. --write writes bench/results/<date>_ops.md.
"""
import argparse
import re

import numpy as np
import onnx

import op_edges
import op_elements
import op_movement
import op_products
import op_trees
import peers
from op_models import Model, saturation_note
from single_models import MEASURED, ROOT, RULES, add_options, compare, measured, summary, write_report

STORE = ROOT / ".cache/ops"
FAMILIES = (op_movement.FAMILIES | op_elements.FAMILIES | op_products.FAMILIES | op_trees.FAMILIES |
            op_edges.FAMILIES)
# Of an output's type: the largest difference over its largest magnitude. Other types are exact.
TOLERANCES = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-6}
# Of cases: a byte may be rounded to either of two numbers; group_norm_offset is ONNX Runtime's error, of single sums.
OWN_TOLERANCES = {"quantisation/(q_linear|q_gemm|qdq|quantize|dynamic)": 1e-2, "resize_u8_n(hwc|chw)": 5e-3,
                  "layer_norm_bf16": 2e-2, "group_norm_offset": 5e-4}

HEADER = f"""| case | {MEASURED}|
|---|{RULES}"""


def tolerance(case, output):
    own = next((value for pattern, value in OWN_TOLERANCES.items() if re.search(pattern, case)), None)
    return TOLERANCES.get(output.dtype.name, 0.0) if own is None else own


def run(case, build, args):
    """The row of a case."""
    row, folder = {"case": case}, STORE / case.split("/")[1]
    path = folder.with_suffix(".onnx")
    model = Model(case)

    def inputs():
        build(model.op)
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model.proto(), str(path))
        return {name: np.array(array, order="C") for name, array in model.inputs.items()}

    compare(row, args, folder, path, inputs, lambda output: tolerance(case, output),
            timed=not case.startswith("edges/"))
    return row


def line(row):
    return f"| {row['case']} | {measured(row)} |"


def table(rows):
    return "\n".join([HEADER, *map(line, rows)])


def report(rows):
    """What came out, the cases that fail, and those where Heddle is behind, worst first."""
    failed = [row for row in rows if row["verdict"] != "agrees"]
    behind = sorted((row for row in rows if row.get("ratio", 1) < 1), key=lambda row: row["ratio"])
    parts = [summary(rows, "cases")]
    for title, chosen in (("Not the same:", failed), ("Behind, worst first:", behind)):
        if chosen:
            parts += [title, table(chosen)]
    parts[1:1] = saturation_note()
    return "\n\n".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression: family/name")
    add_options(parser, "ops", rounds=1)
    args = parser.parse_args()
    cases = {f"{family}/{name}": build for family, builds in FAMILIES.items() for name, build in builds.items()
             if re.search(args.only, f"{family}/{name}")}
    if args.list:
        print("\n".join(cases))
        return
    rows, load = [], peers.load_average()
    print(HEADER)
    for case, build in cases.items():
        rows.append(run(case, build, args))
        print(line(rows[-1]), flush=True)
    text = report(rows)
    print("\n" + text)
    if args.write:
        write_report(args, "ops", f"Single ops, {args.date}", load, f"{text}\n\nAll:\n\n{table(rows)}")


if __name__ == "__main__":
    main()
