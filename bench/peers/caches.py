"""A token's GroupQueryAttention in caches that stay where they are: ONNX Runtime, with past and present bound to the same memory, against
Heddle, with past donated.

usage: python bench/peers/caches.py [--threads N]        (in .cache/peers_venv, after bench/peers/run has made it)
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("HEDDLE_BENCH_BIN", ROOT / "build/release/bin"))
HEADS, SHARED, SIZE = 16, 4, 64
# Room of the caches, tokens in them with the new one.
CASES = [(1024, 256), (1024, 1000), (4096, 1024), (4096, 4000), (16384, 16000)]
ROUNDS = 5


def model():
    """Lengths come from a mask, as exporters of decoders have it."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["total"]),
        helper.make_node("Cast", ["total"], ["total_i32"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axes"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["last_i32"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention", ["q", "k", "v", "past_key", "past_value", "last_i32", "total_i32"],
                         ["y", "present_key", "present_value"], domain="com.microsoft",
                         num_heads=HEADS, kv_num_heads=SHARED),
    ]

    def info(name, *sizes):
        dtype = TensorProto.INT64 if name == "mask" else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, dtype, sizes)
    graph = helper.make_graph(
        nodes, "caches",
        [info("q", "b", "s", HEADS * SIZE), info("k", "b", "s", SHARED * SIZE), info("v", "b", "s", SHARED * SIZE),
         info("past_key", "b", SHARED, "past", SIZE), info("past_value", "b", SHARED, "past", SIZE),
         info("mask", "b", "total")],
        [info("y", "b", "s", HEADS * SIZE), info("present_key", "b", SHARED, "now", SIZE),
         info("present_value", "b", SHARED, "now", SIZE)],
        [helper.make_tensor("one", TensorProto.INT64, [], [1]), helper.make_tensor("axes", TensorProto.INT64, [1], [1])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18),
                                                   helper.make_opsetid("com.microsoft", 1)])
    made.ir_version = 9
    return made


def inputs_of(room, length):
    random = np.random.default_rng(0)

    def normal(*sizes):
        return random.standard_normal(sizes, dtype=np.float32)
    return {"q": normal(1, 1, HEADS * SIZE), "k": normal(1, 1, SHARED * SIZE), "v": normal(1, 1, SHARED * SIZE),
            "past_key": normal(1, SHARED, room, SIZE), "past_value": normal(1, SHARED, room, SIZE),
            "mask": np.ones((1, length), np.int64)}


def onnxruntime_us(path, arrays, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options)
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    y = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, HEADS * SIZE), np.float32))
    binding.bind_ortvalue_output("y", y)
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_ortvalue_output("present_value", values["past_value"])
    times = []
    for _ in range(200):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - start)
    return statistics.median(times[20:]) * 1e6


def heddle_us(path, files, threads):
    command = [str(BIN / "heddle"), "bench", path, "--threads", str(threads), "--json", "--iterations", "200",
               "--donate", "past_key", "--donate", "past_value"]
    for name, file in files.items():
        command += ["--input", f"{name}={file}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["p50_us"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    print(f"| room | tokens | Heddle, us | ONNX Runtime {onnxruntime.__version__}, us | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "caches.onnx")
        onnx.save(model(), path)
        for room, length in CASES:
            arrays = inputs_of(room, length)
            files = {name: f"{folder}/{name}.npy" for name in arrays}
            for name, array in arrays.items():
                np.save(files[name], array)
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(heddle_us(path, files, threads))
                theirs.append(onnxruntime_us(path, arrays, threads))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"| {room} | {length} | {a:.0f} | {b:.0f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    main()
