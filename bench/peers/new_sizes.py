"""What the first call at sizes that did not come before takes, through Heddle and ONNX Runtime on one thread, beside later calls
at these sizes, and whether both give the same: a server of pictures or texts sees new sizes all day.

usage: .cache/peers_venv/bin/python bench/peers/new_sizes.py [--only REGEX] [--rounds N] [--write] [--list]

bench/peers/run makes that Python environment and builds the programs. In a round each engine is started anew, called at the first
sizes, and then at all others in turn, each of them for the first time; a time is the median of the rounds. Outputs are
compared in the first round.
"""
import argparse
import datetime
import pathlib
import re
import statistics
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

import graphs
import peers
import real_models

TURN_SECONDS = 0.2


def lines(count, width):
    """Lines of text, of one height, as the recogniser wants them."""
    return {"x": np.random.default_rng(count * width).normal(0, 0.5, (count, 3, 48, width)).astype(np.float32)}


def texts(count, length):
    """Texts of so many tokens, as the encoder of sentences wants them."""
    tokens = np.random.default_rng(count * length).integers(1000, 30000, (count, length))
    return {"input_ids": tokens.astype(np.int64), "attention_mask": np.ones((count, length), np.int64),
            "token_type_ids": np.zeros((count, length), np.int64)}


def with_open_sizes(folder):
    """MiniLM for any number of texts of any length, as exporters write it: positions count up to the length."""
    real_models.minilm(folder)
    model = onnx.load(str(folder / "model.onnx"))
    graph = model.graph
    positions = next(i for i in graph.initializer if i.data_type == onnx.TensorProto.INT64
                     and list(i.dims) == [1, 128] and not numpy_helper.to_array(i)[0, 0])
    name = positions.name
    graph.initializer.remove(positions)
    numbers = {"zero": 0, "one": 1, "axes": [0]}
    graph.initializer.extend(numpy_helper.from_array(np.array(value, np.int64), key) for key, value in numbers.items())
    nodes = [helper.make_node("Shape", ["input_ids"], ["sizes"]), helper.make_node("Gather", ["sizes", "one"], ["length"], axis=0),
             helper.make_node("Range", ["zero", "length", "one"], ["counted"]),
             helper.make_node("Unsqueeze", ["counted", "axes"], [name])]
    for k, node in enumerate(nodes):
        graph.node.insert(k, node)
    for value in (*graph.input, *graph.output):
        for dim, size in zip(value.type.tensor_type.shape.dim, ("texts", "length")):
            dim.dim_param = size
    onnx.save(model, str(folder / "model.onnx"))


#: Builders of models that have known sizes in real_models.
BUILDERS = {"minilm": with_open_sizes}
MODELS = {
    "ocr_det": [(f"{h}x{w}", lambda h=h, w=w: {"x": real_models.page(h, w)})
                for h, w in ((320, 320), (480, 640), (224, 256), (448, 448), (640, 480), (416, 608), (736, 544))],
    "ocr_rec": [(f"{n} of {w}", lambda n=n, w=w: lines(n, w))
                for n, w in ((1, 100), (1, 320), (1, 321), (2, 200), (4, 333), (1, 87), (6, 480))],
    "minilm": [(f"{n} of {t}", lambda n=n, t=t: texts(n, t))
               for n, t in ((1, 16), (1, 17), (1, 128), (1, 9), (4, 32), (1, 77), (8, 128), (3, 50))],
    "ocr6_rec": [(f"{n} of {w}", lambda n=n, w=w: lines(n, w)) for n, w in ((1, 320), (1, 200), (2, 321), (1, 87))],
    "yolo": [(f"{n} of {h}x{w}", lambda n=n, h=h, w=w: {"images": np.repeat(real_models.photograph(1, 3, h, w), n, 0)})
             for n, h, w in ((1, 320, 320), (1, 640, 640), (1, 256, 416), (3, 160, 224), (1, 96, 32))],
    "table": [(f"{h}x{w}", lambda h=h, w=w: {"x": real_models.page(h, w)})
              for h, w in ((488, 488), (320, 480), (256, 256))],
}
#: Of outputs, as `peers.disagreement` counts.
ALLOWED = 1e-3
HEADER = """| model | sizes | ONNX Runtime, first | later | Heddle, first | later | first over first | later over later | Heddle's first over its later | difference |
|---|---|---|---|---|---|---|---|---|---|"""


def run(command, folder, cases, outputs=None):
    """Microseconds of the first and of later calls at each of the cases but the first one; what they give is added to `outputs`."""
    process = peers.Process(command, folder, 1)
    try:
        process.ask(f"turn {TURN_SECONDS}")
        taken = []
        for case in cases[1:]:
            first = process.ask(f"case {case}")["call_us"]
            if outputs is not None:
                outputs.append(process.outputs())
            later = statistics.median(process.ask(f"turn {TURN_SECONDS}")["samples_us"])
            taken.append((first, later))
        return taken
    finally:
        process.close()


def measure(name, rounds):
    with tempfile.TemporaryDirectory() as store:
        folder = pathlib.Path(store) / name
        BUILDERS.get(name, real_models.REAL_MODELS[name][1])(folder)
        cases = []
        for k, (_, inputs) in enumerate(MODELS[name]):
            cases.append(pathlib.Path(store) / f"case{k}")
            cases[-1].mkdir()
            graphs.write_case(cases[-1], inputs())
        graphs.write_case(folder / "case", MODELS[name][0][1]())
        commands = {"heddle": peers.heddle_command(pathlib.Path(store) / "cache"),
                    "onnxruntime": peers.onnxruntime_command()}
        run(commands["heddle"], folder, cases)  # kernels are compiled
        found = {engine: [] for engine in commands}
        outputs = {engine: [] for engine in commands}
        for k in range(rounds):
            for engine, command in commands.items():
                found[engine].append(run(command, folder, cases, outputs[engine] if k == 0 else None))
        differences = [peers.disagreement(*pair) for pair in zip(outputs["heddle"], outputs["onnxruntime"], strict=True)]
        times = {engine: [[statistics.median(times) for times in zip(*of_case)] for of_case in zip(*all_rounds)]
                 for engine, all_rounds in found.items()}
        return times, differences


def line(name, sizes, ort, heddle, difference):
    numbers = [f"{time:,.0f}" for time in (*ort, *heddle)]
    ratios = [ort[0] / heddle[0], ort[1] / heddle[1], heddle[0] / heddle[1]]
    told = f"{difference:.0e}" + ("" if difference <= ALLOWED else " (wrong)")
    return "| " + " | ".join([name, sizes, *numbers, *(f"{ratio:.2f}" for ratio in ratios), told]) + " |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression of models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write bench/results/<date>_new_sizes.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--list", action="store_true", help="print what there is")
    args = parser.parse_args()
    names = [name for name in MODELS if re.search(args.only, name)]
    if args.list:
        print("\n".join(f"{name}: {sizes}" for name in names for sizes, _ in MODELS[name]))
        return
    load, rows = peers.load_average(), []
    print(HEADER)
    for name in names:
        times, differences = measure(name, args.rounds)
        for k, (sizes, _) in enumerate(MODELS[name][1:]):
            rows.append(line(name, sizes, times["onnxruntime"][k], times["heddle"][k], differences[k]))
            print(rows[-1], flush=True)
    if args.write:
        path = peers.ROOT / f"bench/results/{args.date}_new_sizes.md"
        path.write_text(f"""# First calls at new sizes, {args.date}

{peers.processor()}; load averages {load} at the start and {peers.load_average()} at the end. ONNX Runtime and Heddle on one thread, times in
microseconds, medians of {args.rounds} rounds in which each engine was started anew. The first call at sizes includes all that follows from
them: planning memory, ordering pieces, code of a library; kernels of Heddle's own are compiled once for all sizes.
Sizes larger than all before them (480x640, 736x544) also need a larger arena: the pages of the smaller one go on in it, and the system clears those that
are new when they are first touched, which takes from 1 ms for 16 MB to 35, by whether the machine had them before. A
difference is the largest one of any output over its magnitude and that of the output's largest element.
`bench/peers/new_sizes.py` writes this file.

{HEADER}
""" + "\n".join(rows) + "\n")
        print(path)


if __name__ == "__main__":
    main()
