"""Graphs for the comparison: ONNX models with seeded weights, inputs, and outputs computed in float64.

Each row is a folder: `model.onnx` (opset 17, weights inside), `case/` with the inputs, `wanted/` with the outputs (both
as protocol.h says), and `cost.json` with what the floor is computed from.
"""
import json
import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from reference import along, reference

OPSET = 17
CONTRIB = {"MatMulNBits"}  # of com.microsoft
ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64,
                 "int32": TensorProto.INT32}


def write_case(folder, arrays):
    """Writes named arrays as a case; `arrays` maps names to numpy arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for k, (name, array) in enumerate(arrays.items()):
        (folder / f"{k}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        sizes = "x".join(map(str, array.shape)) or "-"
        lines.append(f"{name} {array.dtype.name} {sizes} {k}.bin\n")
    (folder / "inputs.txt").write_text("".join(lines))


def read_case(folder):
    """The arrays of a case by name, in its order."""
    arrays = {}
    for line in (folder / "inputs.txt").read_text().splitlines():
        name, dtype, sizes, file = line.split(" ")
        shape = [] if sizes == "-" else [int(size) for size in sizes.split("x")]
        arrays[name] = np.frombuffer(bytearray((folder / file).read_bytes()), dtype).reshape(shape)
    return arrays


class Graph:
    """A graph under construction. Tensors are known by name; nodes are (op, inputs, outputs, attributes)."""

    def __init__(self, seed=0, tolerance=1e-4):
        self.random = np.random.default_rng(seed)
        self.tolerance = tolerance
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []
        self.prefix = ""

    def name(self, hint):
        return f"{hint}_{self.prefix}{len(self.nodes)}_{len(self.constants)}"

    def input(self, name, array):
        self.inputs.append((name, array))
        return name

    def constant(self, value, hint="constant"):
        name = self.name(hint)
        self.constants[name] = np.asarray(value)
        return name

    def scalar(self, value):
        return self.constant(np.float32(value))

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def normal(self, shape, scale, offset=0.0, hint="weight"):
        return self.constant(
            (offset + scale * self.random.standard_normal(shape)).astype(np.float32), hint)

    def weight(self, *shape):
        return self.normal(shape, 1 / math.sqrt(shape[0]))

    def op(self, op, *inputs, results=1, **attributes):
        names = [self.name(op.lower()) + f"_{k}" for k in range(results)]
        self.nodes.append((op, list(inputs), names, attributes))
        return names[0] if results == 1 else names

    def loop(self, steps, start, body):
        """Runs `body` so many times, a function of a graph and the values carried that gives the next ones; constants are this
        graph's. The values carried at the end."""
        inner = Graph()
        inner.random, inner.constants, inner.prefix = self.random, self.constants, "body_"
        inner.inputs = ["step", "go", *(f"carried_{k}" for k in range(len(start)))]
        inner.outputs = ["go", *body(inner, inner.inputs[2:])]
        return self.op("Loop", self.constant(np.int64(steps)), "", *start, results=len(start), body=inner)

    def proto(self, inputs, outputs, constants):
        """The GraphProto."""
        def made(op, ins, outs, attributes):
            attributes = {name: value.body_proto() if isinstance(value, Graph) else value
                          for name, value in attributes.items()}
            return helper.make_node(op, ins, outs, domain="com.microsoft" if op in CONTRIB else None, **attributes)
        return helper.make_graph([made(*node) for node in self.nodes], "graph", inputs, outputs, constants)

    def body_proto(self):
        """Of a loop's body, whose condition stays; sizes of what it carries are open."""
        types = [TensorProto.INT64, TensorProto.BOOL] + [TensorProto.FLOAT] * (len(self.inputs) - 2)
        inputs = [helper.make_tensor_value_info(name, dtype, [] if k < 2 else None)
                  for k, (name, dtype) in enumerate(zip(self.inputs, types))]
        self.nodes.append(("Identity", ["go"], ["go_on"], {}))
        outputs = [helper.make_tensor_value_info(name, dtype, None)
                   for name, dtype in zip(["go_on", *self.outputs[1:]], types[1:])]
        proto = self.proto(inputs, outputs, [])
        self.nodes.pop()
        return proto

    def model(self, outputs):
        """The ModelProto; `outputs` are the values of self.outputs."""
        def info(name, array):
            return helper.make_tensor_value_info(name, ELEMENT_TYPES[array.dtype.name], array.shape)
        graph = self.proto(
            [info(name, array) for name, array in self.inputs],
            [info(name, value.astype(np.float32)) for name, value in zip(self.outputs, outputs)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()])
        opsets = [helper.make_opsetid("", OPSET)]
        if any(op in CONTRIB for op, _, _, _ in self.nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        outputs, cost = reference(self)
        onnx.save(self.model(outputs), str(folder / "model.onnx"))
        write_case(folder / "case", dict(self.inputs))
        write_case(folder / "wanted", {name: value.astype(np.float32)
                                       for name, value in zip(self.outputs, outputs)})
        cost.update(tolerance=self.tolerance,
                    input_bytes=sum(array.nbytes for _, array in self.inputs),
                    output_bytes=sum(4 * value.size for value in outputs),
                    weight_bytes=sum(array.nbytes for array in self.constants.values()))
        (folder / "cost.json").write_text(json.dumps(cost, indent=1))


# Building blocks, in the node patterns of the usual exporters.

def normal(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def gelu(g, x):
    share = g.op("Add", g.op("Erf", g.op("Div", x, g.scalar(math.sqrt(2)))), g.scalar(1))
    return g.op("Mul", g.op("Mul", x, share), g.scalar(0.5))


def normed(g, x, width):
    return g.op("LayerNormalization", x, g.normal(width, 0.1, 1.0), g.normal(width, 0.1), axis=-1,
                epsilon=1e-5)


def linear(g, x, inner, outer):
    product = g.op("MatMul", x, g.weight(inner, outer))
    return g.op("Add", product, g.normal(outer, 0.02))


def feed_forward(g, x, width, inner):
    return linear(g, gelu(g, linear(g, x, width, inner)), inner, width)


def attention(g, x, mask, width, heads, project):
    """`project(x, part)`: the query, key and value projections, parts 0 to 2."""
    def split(part, perm):
        parts = g.op("Reshape", project(x, part), g.integers(0, 0, heads, width // heads))
        return g.op("Transpose", parts, perm=perm)
    scores = g.op("MatMul", split(0, [0, 2, 1, 3]), split(1, [0, 2, 3, 1]))
    scores = g.op("Add", g.op("Div", scores, g.scalar(math.sqrt(width // heads))), mask)
    context = g.op("MatMul", g.op("Softmax", scores, axis=3), split(2, [0, 2, 1, 3]))
    return g.op("Reshape", g.op("Transpose", context, perm=[0, 2, 1, 3]), g.integers(0, 0, width))


def additive_mask(g, mask):
    """0 where the int64 mask is 1, -10000 where it is 0."""
    mask = g.op("Unsqueeze", g.op("Unsqueeze", mask, g.integers(1)), g.integers(2))
    mask = g.op("Cast", mask, to=TensorProto.FLOAT)
    return g.op("Mul", g.op("Sub", g.scalar(1), mask), g.scalar(-10000))


def padding_mask(length):
    mask = np.ones((1, length), np.int64)
    mask[0, length - length // 8:] = 0
    return mask


def encoder_layer(g, x, mask, width, heads):
    context = attention(g, x, mask, width, heads, lambda x, _: linear(g, x, width, width))
    x = normed(g, g.op("Add", linear(g, context, width, width), x), width)
    return normed(g, g.op("Add", feed_forward(g, x, width, 4 * width), x), width)


def convolved(g, x, inputs, outputs, size, stride=1, relu=True):
    weights = g.normal((outputs, inputs, size, size), math.sqrt(2 / (inputs * size * size)))
    y = g.op("Conv", x, weights, kernel_shape=[size] * 2, strides=[stride] * 2,
             pads=[size // 2] * 4)
    def parameter(mean):
        values = np.abs(mean + 0.1 * g.random.standard_normal(outputs))
        return g.constant(values.astype(np.float32))
    y = g.op("BatchNormalization", y, parameter(1), parameter(0), parameter(0), parameter(1),
             epsilon=1e-5)
    return g.op("Relu", y) if relu else y


# The graphs.

def add16():
    g = Graph()
    g.outputs = [g.op("Add", g.input("x", normal(1, 16)), g.scalar(1))]
    return g


def tiny64():
    g = Graph()
    x = y = g.input("x", normal(1, 16))
    for k in range(64):
        number = g.scalar(0.9 + 0.001 * k)
        y = [lambda: g.op("Add", y, number), lambda: g.op("Mul", y, number),
             lambda: g.op("Abs", y), lambda: g.op("Sub", y, x)][k % 4]()
    g.outputs = [y]
    return g


def mixed20(count):
    g = Graph(tolerance=2e-4)
    x = g.input("x", normal(2, count))
    t = g.op("Tanh", g.op("Add", g.op("Mul", x, g.scalar(1.1)), g.scalar(0.1)))
    s = g.op("Sigmoid", g.op("Mul", t, x))
    e = g.op("Mul", g.op("Exp", g.op("Neg", g.op("Add", s, t))), g.scalar(0.5))
    a = g.op("Add", g.op("Abs", g.op("Sub", gelu(g, e), x)), g.scalar(1e-3))
    g.outputs = [g.op("Div", g.op("Mul", g.op("Sqrt", a), s), a)]
    assert len(g.nodes) == 20
    return g


def cheap8():
    g = Graph()
    z = g.input("x", normal(2, 1 << 20))
    y = g.input("y", normal(3, 1 << 20))
    for k in range(4):
        z = g.op("Add", g.op("Mul", z, g.scalar(0.9 + 0.01 * k)), y)
    g.outputs = [z]
    return g


def softmax_rows():
    g = Graph()
    g.outputs = [g.op("Softmax", g.input("x", normal(4, 512, 1024, scale=3)), axis=-1)]
    return g


def layer_norm_rows():
    g = Graph()
    g.outputs = [normed(g, g.input("x", normal(5, 512, 768)), 768)]
    return g


def rms_norm_rows():
    g = Graph()
    x = g.input("x", normal(6, 512, 768))
    mean = g.op("ReduceMean", g.op("Pow", x, g.scalar(2)), axes=[-1])
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, g.scalar(1e-6))))
    g.outputs = [g.op("Mul", g.op("Mul", x, inverse), g.normal(768, 0.1, 1.0))]
    return g


def mlp(rows):
    g = Graph(seed=7)
    x = g.input("x", normal(7, rows, 768))
    g.outputs = [normed(g, g.op("Add", feed_forward(g, x, 768, 3072), x), 768)]
    return g


def byte_product(g, x, weights):
    """What dynamic quantisation makes of a product: weights in i8 with one scale, activations in u8."""
    scale = np.abs(weights).max() / 127
    bytes_ = g.constant(np.rint(weights / scale).astype(np.int8), "weight")
    x, x_scale, x_zero = g.op("DynamicQuantizeLinear", x, results=3)
    product = g.op("MatMulInteger", x, bytes_, x_zero, g.constant(np.int8(0)))
    product = g.op("Cast", product, to=TensorProto.FLOAT)
    return g.op("Mul", product, g.op("Mul", x_scale, g.scalar(scale)))


def quantised_linear(g, x, inner, outer):
    product = byte_product(g, x, g.random.standard_normal((inner, outer)) / math.sqrt(inner))
    return g.op("Add", product, g.normal(outer, 0.02))


def quantised_mlp(rows):
    # An element on the edge between two integers may be rounded to either.
    g = Graph(seed=7, tolerance=2e-2)
    x = g.input("x", normal(7, rows, 768))
    inner = gelu(g, quantised_linear(g, x, 768, 3072))
    g.outputs = [normed(g, g.op("Add", quantised_linear(g, inner, 3072, 768), x), 768)]
    return g


def through_bytes(g, x, scale, zero):
    """x as what u8 can hold of it, as quantisation ahead of time writes each activation."""
    scale, zero = g.scalar(scale), g.constant(np.uint8(zero))
    return g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)


def weights_of_bytes(g, shape, axis, deviation):
    """Weights in i8 with a scale for each output along `axis`, dequantised."""
    weights = g.random.standard_normal(shape) * deviation
    others = tuple(d for d in range(len(shape)) if d != axis)
    scale = np.abs(weights).max(others) / 127
    bytes_ = np.clip(np.rint(weights / along(scale, weights, axis)), -127, 127).astype(np.int8)
    return g.op("DequantizeLinear", g.constant(bytes_, "weight"),
                g.constant(scale.astype(np.float32)), g.constant(np.zeros(shape[axis], np.int8)),
                axis=axis)


def bytes_linear(g, x, inner, outer):
    product = g.op("MatMul", x, weights_of_bytes(g, (inner, outer), 1, 1 / math.sqrt(inner)))
    return g.op("Add", through_bytes(g, product, 8 / 255, 128), g.normal(outer, 0.02))


def mlp_of_bytes(rows):
    # An element on the edge between two integers may be rounded to either.
    g = Graph(seed=7, tolerance=2e-2)
    x = g.input("x", normal(7, rows, 768))
    inner = gelu(g, bytes_linear(g, through_bytes(g, x, 8 / 255, 128), 768, 3072))
    inner = through_bytes(g, inner, 4.2 / 255, 10)
    g.outputs = [normed(g, g.op("Add", bytes_linear(g, inner, 3072, 768), x), 768)]
    return g


def bytes_convolved(g, x, x_scale, channels, size, scale):
    """A convolution of dequantised tensors; its bias is in i32, with the scale of its sums."""
    weights = weights_of_bytes(g, (channels, channels, size, size), 0,
                               math.sqrt(2 / (channels * size * size)))
    sums_scale = (np.float32(x_scale) * g.constants[g.nodes[-1][1][1]]).astype(np.float32)
    bias = np.rint(g.random.standard_normal(channels) * 0.02 / sums_scale).astype(np.int32)
    bias = g.op("DequantizeLinear", g.constant(bias), g.constant(sums_scale),
                g.constant(np.zeros(channels, np.int32)), axis=0)
    y = g.op("Conv", x, weights, bias, strides=[1, 1], pads=[size // 2] * 4,
             kernel_shape=[size, size])
    return through_bytes(g, g.op("Relu", y), scale, 0)


def conv_block_of_bytes():
    g = Graph(seed=9, tolerance=2e-2)
    x = through_bytes(g, g.input("x", normal(9, 1, 128, 28, 28)), 8 / 255, 128)
    y = bytes_convolved(g, x, 8 / 255, 128, 3, 6 / 255)
    for size in (3, 1):
        y = bytes_convolved(g, y, 6 / 255, 128, size, 6 / 255)
    g.outputs = [through_bytes(g, g.op("Relu", g.op("Add", y, x)), 6 / 255, 0)]
    return g


def encoder(layers, width, length):
    g = Graph(seed=8, tolerance=5e-4)
    x = g.input("x", normal(8 + length, 1, length, width))
    mask = additive_mask(g, g.input("attention_mask", padding_mask(length)))
    x = normed(g, x, width)
    for _ in range(layers):
        x = encoder_layer(g, x, mask, width, 12)
    g.outputs = [x]
    return g


def few_bits(g, x, inner, outer, block=32):
    """A product by weights of 4 bits with a scale for each block of the depth."""
    blocks = inner // block
    numbers = g.random.integers(0, 256, (outer, blocks, block // 2), np.uint8)
    scales = np.abs(g.random.standard_normal((outer, blocks))) / (4 * math.sqrt(inner))
    return g.op("MatMulNBits", x, g.constant(numbers, "weight"),
                g.constant(scales.astype(np.float32)), K=inner, N=outer, bits=4, block_size=block)


def root_normed(g, x, width):
    """As exporters of decoders write an RMS norm."""
    mean = g.op("ReduceMean", g.op("Pow", x, g.scalar(2)), axes=[-1])
    root = g.op("Sqrt", g.op("Add", mean, g.scalar(1e-5)))
    return g.op("Mul", g.op("Div", x, root), g.normal(width, 0.1, 1.0))


def turned(g, x, cosines, sines, size):
    """Rotary embedding: x * cos + (-second half, first half) * sin."""
    def half(begin, end):
        return g.op("Slice", x, g.integers(begin), g.integers(end), g.integers(3))
    other = g.op("Concat", g.op("Neg", half(size // 2, size)), half(0, size // 2), axis=-1)
    return g.op("Add", g.op("Mul", x, cosines), g.op("Mul", other, sines))


def decoder(layers, product):
    """One token behind a cache of 1023, 16 heads of 64 that share 4 of keys and values, gated feed-forward of 2816;
    outputs are the token and the caches with it."""
    width, heads, shared, size, inner, past = 1024, 16, 4, 64, 2816, 1023
    g = Graph(seed=12, tolerance=5e-4)
    x = g.input("x", normal(12, 1, 1, width))
    angles = normal(13, 1, 1, 1, size)
    cosines, sines = g.input("cos", np.cos(angles)), g.input("sin", np.sin(angles))
    caches = []

    def split(y, count):
        return g.op("Transpose", g.op("Reshape", y, g.integers(0, 0, count, size)), perm=[0, 2, 1, 3])

    def cached(name, seed, y):
        old = g.input(name, normal(seed, 1, shared, past, size))
        caches.append(g.op("Concat", old, y, axis=2))
        wide = g.op("Expand", g.op("Unsqueeze", caches[-1], g.integers(2)),
                    g.integers(1, shared, heads // shared, past + 1, size))
        return g.op("Reshape", wide, g.integers(1, heads, past + 1, size))

    for layer in range(layers):
        y = root_normed(g, x, width)
        query = turned(g, split(product(g, y, width, width), heads), cosines, sines, size)
        key = turned(g, split(product(g, y, width, shared * size), shared), cosines, sines, size)
        keys = cached(f"keys_{layer}", 14 + 2 * layer, key)
        values = cached(f"values_{layer}", 15 + 2 * layer,
                        split(product(g, y, width, shared * size), shared))
        scores = g.op("MatMul", query, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = g.op("Softmax", g.op("Div", scores, g.scalar(math.sqrt(size))), axis=3)
        context = g.op("Transpose", g.op("MatMul", scores, values), perm=[0, 2, 1, 3])
        context = g.op("Reshape", context, g.integers(0, 0, width))
        x = g.op("Add", x, product(g, context, width, width))
        y = root_normed(g, x, width)
        gate = product(g, y, width, inner)
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        y = g.op("Mul", gate, product(g, y, width, inner))
        x = g.op("Add", x, product(g, y, inner, width))
    g.outputs = [x, *caches]
    return g


def generation(layers, width, heads, prompt, steps):
    """Vectors that follow from those before: each step adds a row to the caches, in a loop of the graph."""
    g = Graph(seed=15, tolerance=1e-2)
    size = width // heads
    caches = [g.input(f"{kind}_{layer}", normal(20 + 2 * layer + k, 1, heads, prompt, size))
              for layer in range(layers) for k, kind in enumerate(["keys", "values"])]

    def body(b, carried):
        x, *past = carried
        present = []

        def split(y):
            return b.op("Transpose", b.op("Reshape", y, b.integers(0, 0, heads, size)), perm=[0, 2, 1, 3])
        for layer in range(layers):
            y = normed(b, x, width)
            query, key, value = (split(linear(b, y, width, width)) for _ in range(3))
            keys = b.op("Concat", past[2 * layer], key, axis=2)
            values = b.op("Concat", past[2 * layer + 1], value, axis=2)
            present += [keys, values]
            scores = b.op("MatMul", query, b.op("Transpose", keys, perm=[0, 1, 3, 2]))
            scores = b.op("Softmax", b.op("Div", scores, b.scalar(math.sqrt(size))), axis=3)
            context = b.op("Transpose", b.op("MatMul", scores, values), perm=[0, 2, 1, 3])
            context = b.op("Reshape", context, b.integers(0, 0, width))
            x = b.op("Add", x, linear(b, context, width, width))
            x = b.op("Add", x, feed_forward(b, normed(b, x, width), width, 4 * width))
        return [normed(b, x, width), *present]
    g.outputs = g.loop(steps, [g.input("x", normal(16, 1, 1, width)), *caches], body)
    return g


def table_rows(rows, width, steps):
    """A table of which each iteration of a loop writes a row."""
    g = Graph(seed=17, tolerance=1e-4)

    def body(b, carried):
        table, x = carried
        step = b.inputs[0]
        row = b.op("Add", b.op("Gather", table, step, axis=0), x)
        place = b.op("Unsqueeze", step, b.integers(0, 1))
        table = b.op("ScatterND", table, place, b.op("Unsqueeze", row, b.integers(0)))
        return [table, b.op("Add", b.op("Mul", x, b.scalar(0.25)), row)]
    g.outputs = g.loop(steps, [g.input("table", normal(17, rows, width)), g.input("x", normal(18, width))], body)
    return g


def conv_block():
    g = Graph(seed=9, tolerance=5e-4)
    x = g.input("x", normal(9, 1, 64, 56, 56))
    y = convolved(g, convolved(g, x, 64, 64, 3), 64, 64, 3, relu=False)
    g.outputs = [g.op("Relu", g.op("Add", y, x))]
    return g


def resnet50():
    g = Graph(seed=10, tolerance=2e-3)
    x = convolved(g, g.input("x", normal(10, 1, 3, 224, 224)), 3, 64, 7, 2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, (inner, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            y = convolved(g, convolved(g, x, width, inner, 1), inner, inner, 3, stride)
            y = convolved(g, y, inner, 4 * inner, 1, relu=False)
            past = convolved(g, x, width, 4 * inner, 1, stride, relu=False) if block == 0 else x
            x = g.op("Relu", g.op("Add", y, past))
            width = 4 * inner
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    weights = g.normal((1000, 2048), 1 / math.sqrt(2048))
    g.outputs = [g.op("Gemm", x, weights, g.normal(1000, 0.02), transB=1)]
    return g


def lstm256():
    g = Graph(seed=11)
    parameters = [g.normal(shape, 1 / 16) for shape in ((1, 1024, 256), (1, 1024, 256), (1, 2048))]
    g.outputs = g.op("LSTM", g.input("x", normal(11, 32, 1, 256)), *parameters, results=3,
                     hidden_size=256)
    return g


GRAPHS = {
    "add16": ("y = x + 1 on 16 floats", add16),
    "tiny64": ("64 tiny ops on 16 floats", tiny64),
    "mixed20_64k": ("20 mixed ops on 64 Ki floats", lambda: mixed20(1 << 16)),
    "mixed20_1m": ("20 mixed ops on 1 M floats", lambda: mixed20(1 << 20)),
    "cheap8_1m": ("8 cheap ops on 1 M floats", cheap8),
    "softmax": ("softmax 512x1024", softmax_rows),
    "layer_norm": ("layer norm 512x768", layer_norm_rows),
    "rms_norm": ("rms norm from primitives 512x768", rms_norm_rows),
    "mlp_m32": ("MLP 768-3072-768, 32 rows", lambda: mlp(32)),
    "mlp_m1": ("MLP 768-3072-768, 1 row", lambda: mlp(1)),
    "mlp_int8_m32": ("the same MLP in 8 bits, 32 rows", lambda: quantised_mlp(32)),
    "mlp_int8_m1": ("the same MLP in 8 bits, 1 row", lambda: quantised_mlp(1)),
    "mlp_qdq_m32": ("the same MLP quantised ahead, 32 rows", lambda: mlp_of_bytes(32)),
    "mlp_qdq_m1": ("the same MLP quantised ahead, 1 row", lambda: mlp_of_bytes(1)),
    "bert_layer": ("BERT-base layer, 128 tokens", lambda: encoder(1, 768, 128)),
    "minilm_random": ("6 layers of 384, 128 tokens", lambda: encoder(6, 384, 128)),
    "decoder": ("2 decoder layers of 1024, a token behind 1023",
                lambda: decoder(2, lambda g, x, inner, outer: g.op("MatMul", x, g.weight(inner, outer)))),
    "decoder_4bit": ("the same, weights of 4 bits in blocks of 32", lambda: decoder(2, few_bits)),
    "generation": ("2 layers of 256, 128 steps in a loop whose caches grow", lambda: generation(2, 256, 4, 64, 128)),
    "table_rows": ("200 rows of a table of 1024x1024, written in a loop", lambda: table_rows(1024, 1024, 200)),
    "conv_block": ("two 3x3 convolutions 64-64 at 56x56, residual", conv_block),
    "conv_block_qdq": ("3x3, 3x3, 1x1 convolutions 128-128 at 28x28 quantised ahead",
                       conv_block_of_bytes),
    "resnet50": ("ResNet-50, one image", resnet50),
    "lstm": ("LSTM 256, 32 steps", lstm256),
}
