"""Real models of the peers' table, quantised by ONNX Runtime's tools and in f16, through Heddle and ONNX Runtime on one
thread: same outputs, and which is faster.

usage: .cache/peers_venv/bin/python bench/peers/variants.py [--only REGEX] [--heddle PATH] [--rounds N] [--no-times]
                                                            [--write] [--list]

bench/peers/run makes that Python environment; sympy is needed besides. Static quantisation is
calibrated with the one input that is run. A byte may be rounded to either of two numbers, and the models are sensitive to it:
outputs may differ by as much as ONNX Runtime's differ from those of the original model, or 0.02.
"""
import argparse
import re

import onnx

import graphs
import peers
import real_models
from model_variants import VARIANTS, tolerance
from op_models import saturation_note
from single_models import MEASURED, ROOT, RULES, add_options, compare, measured, summary, write_report

STORE = ROOT / ".cache/variants"
MODELS = ["ocr_det", "ocr_rec", "minilm", "magika", "silero"]
HEADER = f"""| model | {MEASURED}|
|---|{RULES}"""


def with_initialisers(model):
    """Constants as initialisers, which is where quantisation looks for weights."""
    graph, nodes = model.graph, []
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def original(name):
    """The file of a model and its inputs."""
    folder = STORE / name
    real_models.REAL_MODELS[name][1](folder)
    path = STORE / f"{name}.onnx"
    onnx.save(with_initialisers(onnx.load(folder / "model.onnx")), str(path))
    return path, graphs.read_case(folder / "case")


def run(case, model, variant, args):
    source, inputs = model
    path = STORE / f"{case.replace('/', '_')}.onnx"
    row = {"case": case}
    try:
        VARIANTS[variant](str(source), str(path), inputs)
        allowed = tolerance(source, path, inputs)
    except Exception as error:  # of the tools or ONNX Runtime: the model does not count
        row["verdict"] = "not counted: " + str(error).strip().split("\n")[0][:120]
        return row
    compare(row, args, path.with_suffix(""), path, lambda: inputs, lambda _: allowed)
    return row


def line(row):
    return f"| {row['case']} | {measured(row)} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression: model/variant")
    add_options(parser, "variants", rounds=3)
    args = parser.parse_args()
    cases = [(name, variant) for name in MODELS for variant in VARIANTS if re.search(args.only, f"{name}/{variant}")]
    if args.list:
        print("\n".join(map("/".join, cases)))
        return
    rows, load, models = [], peers.load_average(), {}
    print(HEADER)
    for name, variant in cases:
        if name not in models:
            models[name] = original(name)
        rows.append(run(f"{name}/{variant}", models[name], variant, args))
        print(line(rows[-1]), flush=True)
    text = summary(rows, "models")
    print("\n" + text)
    if args.write:
        table = "\n".join([HEADER, *map(line, rows)])
        write_report(args, "variants", f"Real models in bytes and f16, {args.date}", load,
                     "\n\n".join([text, *saturation_note(), table]))


if __name__ == "__main__":
    main()
