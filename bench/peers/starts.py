"""From model file to first answer, in processes of their own: Heddle, ONNX Runtime and OpenVINO, with nothing cached on disk and
with what a start before left there.

usage: .cache/peers_venv/bin/python bench/peers/starts.py [--only REGEX] [--exporter NAME] [--threads N] [--rounds N] [--write] [--list]

The models are the cases that bench/peers/architectures.py left in .cache/architectures, whose file and inputs they have. A number
with nothing cached is the median of rounds, one with a cache that of three starts in each round. OpenVINO's cache is that of its
option CACHE_DIR; ONNX Runtime keeps none.
"""
import argparse
import datetime
import math
import pathlib
import re
import statistics
import tempfile

import onnx

import graphs
import peers

CASES = peers.ROOT / ".cache/architectures"
ENGINES = ["heddle", "onnxruntime", "openvino"]
HEADER = """| model | MB | Heddle, nothing cached | cached | ONNX Runtime | ratio | OpenVINO, nothing cached | cached | ratio |
|---|---|---|---|---|---|---|---|---|"""


def commands():
    return {"heddle": peers.heddle_command("cache_dir="), "onnxruntime": peers.onnxruntime_command(),
            "openvino": peers.python_command("openvino", "CACHE_DIR=")}


def inputs_of(case):
    files = sorted((case / "test_data_set_0").glob("input_*.pb"), key=lambda file: int(file.stem.split("_")[1]))
    tensors = [onnx.load_tensor(str(file)) for file in files]
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


def started(facts):
    return facts["load_ms"] + facts["first_call_ms"]


def measure(case, threads, rounds):
    """By engine: milliseconds with nothing cached, and with a cache; an engine that fails has none."""
    model = (case / "model.onnx").resolve()
    found = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        graphs.write_case(folder / "case", inputs_of(case))
        for _ in range(rounds):
            for engine, command in commands().items():
                try:
                    found[engine].append([started(facts) for facts in
                                          peers.first_starts(command, folder, threads, model)])
                except RuntimeError:
                    pass
    return {engine: [statistics.median(times) for times in zip(*of_rounds)] for engine, of_rounds in found.items()}


def number(found, engine, k):
    return f"{found[engine][k]:,.0f}" if found[engine] else ""


def ratio(found, engine, k):
    return found[engine][k] / found["heddle"][1] if found[engine] else None


def line(name, megabytes, found):
    ratios = [ratio(found, "onnxruntime", 0), ratio(found, "openvino", 1)]
    told = [f"{each:.2f}" if each else "" for each in ratios]
    cells = [name, f"{megabytes:.1f}", number(found, "heddle", 0), number(found, "heddle", 1), number(found, "onnxruntime", 0),
             told[0], number(found, "openvino", 0), number(found, "openvino", 1), told[1]]
    return "| " + " | ".join(cells) + " |"


def summary(rows):
    def told(engine, k):
        ratios = [each for each in (ratio(found, engine, k) for found in rows) if each]
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        return f"{mean:.2f} of {len(ratios)}, below 1 in {sum(each < 1 for each in ratios)}"
    return (f"{len(rows)} models; time over that of Heddle with its cache, geometric mean: ONNX Runtime {told('onnxruntime', 0)}; "
            f"OpenVINO with its cache {told('openvino', 1)}.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression of models")
    parser.add_argument("--exporter", default="dynamo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write bench/results/<date>_starts.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--list", action="store_true", help="print what there is")
    args = parser.parse_args()
    cases = [case for case in sorted((CASES / args.exporter).iterdir())
             if (case / "test_data_set_0").exists() and re.search(args.only, case.name)]
    if args.list:
        print("\n".join(case.name for case in cases))
        return
    load, rows, lines = peers.load_average(), [], []
    print(HEADER)
    for case in cases:
        rows.append(measure(case, args.threads, args.rounds))
        files = (case / "model.onnx").resolve().parent.glob("model.onnx*")
        lines.append(line(case.name, sum(file.stat().st_size for file in files) / 1e6, rows[-1]))
        print(lines[-1], flush=True)
    print(summary(rows))
    if args.write:
        path = peers.ROOT / f"bench/results/{args.date}_starts.md"
        path.write_text(f"""# From model file to first answer, {args.date}

{peers.processor()}; load averages {load} at the start and {peers.load_average()} at the end. Milliseconds of load and first call in a new process, {args.threads} thread{'s' if args.threads != 1 else ''} of the engine, medians of
{args.rounds} round{'s' if args.rounds != 1 else ''}, with a cache of three starts in each. A ratio is the other's time over that of Heddle with its cache. `bench/peers/starts.py` writes this file.

{summary(rows)}

""" + "\n".join([HEADER, *lines]) + "\n")
        print(path)


if __name__ == "__main__":
    main()
