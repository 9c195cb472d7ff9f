#!/usr/bin/env python3
"""Writes what ONNX Runtime gives for the two examples' models: tests/golden/outputs/*.npy.

usage: make_goldens.py MAGIKA_MODEL.onnx      (needs: pip install onnxruntime onnx numpy)

  magika_<file>.npy       f32[1, labels]: the model of the magika wheel on tests/golden/inputs/<file>
  encoder_<b>x<n>.npy     f32[b, n, width]: the encoder of examples/transformer on ids i64[b, n]

The encoder is written here once more as ONNX, its weights from the generator that the example states.
"""
import argparse
import math
import pathlib

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
SIZES = [(1, 1), (1, 16), (3, 5), (2, 33)]
LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 4, 128, 4, 1000, 512

BEGIN, END, BLOCK, PADDING = 1024, 1024, 4096, 256
BLANKS = b" \t\n\v\f\r"


def tokens_of(data):
    """The first and the last bytes of a file, without the blanks around them."""
    begin = data[:BLOCK].lstrip(BLANKS)[:BEGIN]
    end = data[-BLOCK:].rstrip(BLANKS)[-END:] if data else b""
    tokens = numpy.full((1, BEGIN + END), PADDING, numpy.int32)
    tokens[0, : len(begin)] = list(begin)
    tokens[0, BEGIN + END - len(end) :] = list(end)
    return tokens


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def write(name, array):
    numpy.save(HERE / "outputs" / f"{name}.npy", numpy.ascontiguousarray(array, numpy.float32))


def write_magika(model):
    session = session_of(model)
    name = session.get_inputs()[0].name
    for path in sorted((HERE / "inputs").iterdir()):
        write(f"magika_{path.name}", session.run(None, {name: tokens_of(path.read_bytes())})[0])


class Weights:
    """x' = 6364136223846793005 x + 1442695040888963407 (mod 2^64); (x' >> 40) / 2^23 - 1."""

    def __init__(self):
        self.state = 1

    def next(self, sizes, scale):
        count = math.prod(sizes)
        values = numpy.empty(count, numpy.float64)
        state = self.state
        for k in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
            values[k] = state >> 40
        self.state = state
        return ((values / 8388608.0 - 1.0) * scale).astype(numpy.float32).reshape(sizes)


class EncoderModel:
    """The graph of examples/transformer/encoder.h out of ONNX nodes."""

    def __init__(self):
        self.nodes, self.constants, self.weights = [], [], Weights()

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, sizes, scale):
        return self.constant(self.weights.next(sizes, scale))

    def ints(self, *values):
        return self.constant(numpy.array(values, numpy.int64))

    def __call__(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(self, x, w, b):
        return self("Add", self("MatMul", x, w), b)

    def split_heads(self, x):
        split = self("Reshape", x, self.ints(0, 0, HEADS, WIDTH // HEADS))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, x, w, b):
        q, k, v = (self.split_heads(self.linear(x, w[i], b[i])) for i in range(3))
        products = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scale = self.constant(numpy.array(1 / math.sqrt(WIDTH // HEADS), numpy.float32))
        shares = self("Softmax", self("Mul", products, scale), axis=-1)
        joined = self("Transpose", self("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.linear(self("Reshape", joined, self.ints(0, 0, WIDTH)), w[3], b[3])

    def norm(self, x, scale, bias):
        return self("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def layer(self, x, scale):
        w = [self.weight((WIDTH, WIDTH), scale) for _ in range(4)]
        b = [self.weight((WIDTH,), 0.1) for _ in range(4)]
        up, up_bias = self.weight((WIDTH, 4 * WIDTH), scale), self.weight((4 * WIDTH,), 0.1)
        down, down_bias = self.weight((4 * WIDTH, WIDTH), scale / 2), self.weight((WIDTH,), 0.1)
        norms = [self.weight((WIDTH,), scale) for scale in (1, 0.1, 1, 0.1)]
        x = self.norm(self("Add", x, self.attend(x, w, b)), norms[0], norms[1])
        hidden = self("Gelu", self.linear(x, up, up_bias))
        return self.norm(
            self("Add", x, self.linear(hidden, down, down_bias)), norms[2], norms[3])

    def build(self):
        scale = math.sqrt(3.0 / WIDTH)
        tokens = self.weight((VOCABULARY, WIDTH), 1)
        positions = self.weight((POSITIONS, WIDTH), 0.1)
        length = self("Slice", self("Shape", "ids"), self.ints(1), self.ints(2))
        places = self("Slice", positions, self.ints(0), length, self.ints(0))
        x = self("Add", self("Gather", tokens, "ids"), places)
        for _ in range(LAYERS):
            x = self.layer(x, scale)
        self.nodes.append(helper.make_node("Identity", [x], ["out"]))
        graph = helper.make_graph(
            self.nodes, "encoder",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "length", WIDTH])],
            self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.checker.check_model(model)
        return model.SerializeToString()


def write_encoder():
    session = session_of(EncoderModel().build())
    for batch, length in SIZES:
        ids = (numpy.arange(batch * length, dtype=numpy.int64) * 7919 + 13) % VOCABULARY
        outputs = session.run(None, {"ids": ids.reshape(batch, length)})
        write(f"encoder_{batch}x{length}", outputs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("magika_model")
    arguments = parser.parse_args()
    (HERE / "outputs").mkdir(exist_ok=True)
    write_magika(arguments.magika_model)
    write_encoder()


if __name__ == "__main__":
    main()
