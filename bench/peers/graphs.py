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

OPSET = 17
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

    def name(self, hint):
        return f"{hint}_{len(self.nodes)}_{len(self.constants)}"

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

    def model(self, outputs):
        """The ModelProto; `outputs` are the values of self.outputs."""
        def info(name, array):
            return helper.make_tensor_value_info(name, ELEMENT_TYPES[array.dtype.name], array.shape)
        nodes = [helper.make_node(op, ins, outs, **attributes)
                 for op, ins, outs, attributes in self.nodes]
        graph = helper.make_graph(
            nodes, "graph", [info(name, array) for name, array in self.inputs],
            [info(name, value.astype(np.float32)) for name, value in zip(self.outputs, outputs)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()])
        return helper.make_model(graph, ir_version=8,
                                 opset_imports=[helper.make_opsetid("", OPSET)])

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


# The reference: each op in float64, written for reading.

def convolution(x, weights, bias=None, *, strides, pads, kernel_shape):
    batch, channels, height, width = x.shape
    filters, (kh, kw), stride, pad = weights.shape[0], kernel_shape, strides[0], pads[0]
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    columns = np.empty((batch, channels, kh, kw, oh, ow))
    for i in range(kh):
        for j in range(kw):
            columns[:, :, i, j] = x[:, :, i:i + stride * oh:stride, j:j + stride * ow:stride]
    result = np.einsum("ok,nkp->nop", weights.reshape(filters, -1),
                       columns.reshape(batch, channels * kh * kw, oh * ow), optimize=True)
    result = result.reshape(batch, filters, oh, ow)
    return result if bias is None else result + bias[:, None, None]


def max_pool(x, *, kernel_shape, strides, pads):
    pad, stride, size = pads[0], strides[0], kernel_shape[0]
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    oh, ow = (x.shape[2] - size) // stride + 1, (x.shape[3] - size) // stride + 1
    return np.max([x[:, :, i:i + stride * oh:stride, j:j + stride * ow:stride]
                   for i in range(size) for j in range(size)], axis=0)


def layer_norm(x, gamma, beta, *, epsilon, axis):
    assert axis == -1
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def batch_norm(x, scale, shift, mean, variance, *, epsilon):
    factor = scale / np.sqrt(variance + epsilon)
    return x * factor[:, None, None] + (shift - mean * factor)[:, None, None]


def softmax(x, *, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, r, b, *, hidden_size):
    """One direction; ONNX orders the gates input, output, forget, cell."""
    gates = 4 * hidden_size
    hidden = np.zeros((x.shape[1], hidden_size))
    cell = np.zeros_like(hidden)
    rows = []
    for step in x:
        z = step @ w[0].T + hidden @ r[0].T + b[0, :gates] + b[0, gates:]
        take, show, keep, fresh = np.split(z, 4, axis=1)
        cell = sigmoid(keep) * cell + sigmoid(take) * np.tanh(fresh)
        hidden = sigmoid(show) * np.tanh(cell)
        rows.append(hidden)
    return [np.stack(rows)[:, None], hidden[None], cell[None]]


def gather(x, indices, *, axis):
    return np.take(x, indices, axis)


def reshape(x, sizes):
    return x.reshape([x.shape[k] if size == 0 else int(size) for k, size in enumerate(sizes)])


def cast(x, *, to):
    return x.astype(np.float64 if to == TensorProto.FLOAT else np.int64)


def dynamic_quantize(x):
    """In f32, as the operator says: another rounding would be another integer."""
    x = x.astype(np.float32)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    quantised = np.clip(np.rint(x / scale) + zero, 0, 255)
    return [quantised.astype(np.uint8), scale.astype(np.float64), zero.astype(np.uint8)]


def along(vector, x, axis):
    """A scale or zero point as it is broadcast to x: a vector runs along `axis`."""
    return vector.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]) if vector.ndim else vector


def quantize(x, scale, zero, *, axis=1):
    """In f32, as above."""
    scaled = x.astype(np.float32) / along(scale.astype(np.float32), x, axis)
    limits = np.iinfo(zero.dtype)
    moved = np.rint(scaled) + along(zero, x, axis).astype(np.float32)
    return np.clip(moved, limits.min, limits.max).astype(zero.dtype)


def dequantize(x, scale, zero, *, axis=1):
    return (x.astype(np.float64) - along(zero, x, axis)) * along(scale, x, axis)


def integer_product(a, b, a_zero, b_zero):
    """Sums of less than 2^53 in float64: exact."""
    return (a.astype(np.float64) - a_zero) @ (b.astype(np.float64) - b_zero)


REFERENCE = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
    "Abs": np.abs, "Neg": np.negative, "Exp": np.exp, "Sqrt": np.sqrt, "Tanh": np.tanh,
    "Sigmoid": sigmoid, "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Relu": lambda x: np.maximum(x, 0), "Reciprocal": lambda x: 1 / x, "MatMul": np.matmul,
    "Gemm": lambda x, w, b, *, transB: x @ w.T + b,
    "ReduceMean": lambda x, *, axes: x.mean(tuple(axes), keepdims=True),
    "Transpose": lambda x, *, perm: x.transpose(perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(axis) for axis in axes)),
    "Flatten": lambda x: x.reshape(x.shape[0], -1),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
    "Conv": convolution, "MaxPool": max_pool, "LayerNormalization": layer_norm,
    "BatchNormalization": batch_norm, "Softmax": softmax, "LSTM": lstm, "Gather": gather,
    "Reshape": reshape, "Cast": cast, "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": integer_product, "QuantizeLinear": quantize, "DequantizeLinear": dequantize,
}
TRANSCENDENTAL = {"Exp", "Tanh", "Sigmoid", "Erf", "Softmax"}
MOVES = {"Reshape", "Transpose", "Unsqueeze", "Flatten", "Cast", "Gather"}


def product_flops(op, operands, results):
    """Floating operations of what runs on multiply-add units; 0 for all other ops."""
    if op == "MatMul":
        return 2 * results[0].size * operands[0].shape[-1]
    if op == "MatMulInteger":  # one instruction multiplies four times as many bytes as floats
        return results[0].size * operands[0].shape[-1] // 2
    if op == "Gemm":
        return 2 * results[0].size * operands[0].shape[-1]
    if op == "Conv":
        return 2 * results[0].size * operands[1][0].size
    if op == "LSTM":
        steps, batch, width = operands[0].shape
        return 2 * steps * batch * operands[1].shape[1] * (width + operands[2].shape[2])
    return 0


def reference(graph):
    """Outputs in float64, and counts: flops of products, cheap and transcendental operations on elements."""
    def wide(array):
        return array.astype(np.float64) if array.dtype.kind == "f" else array
    values = {name: wide(array) for name, array in graph.constants.items()}
    values.update({name: wide(array) for name, array in graph.inputs})
    cost = {"flops": 0, "cheap": 0, "transcendental": 0}
    last = {name: k for k, (_, inputs, _, _) in enumerate(graph.nodes) for name in inputs}
    for k, (op, inputs, names, attributes) in enumerate(graph.nodes):
        operands = [values[name] for name in inputs]
        results = REFERENCE[op](*operands, **attributes)
        results = results if isinstance(results, list) else [results]
        flops = product_flops(op, operands, results)
        cost["flops"] += flops
        elements = max(results[0].size, operands[0].size)
        if op == "LSTM":
            cost["transcendental"] += 5 * results[0].size
        elif op in TRANSCENDENTAL:
            cost["transcendental"] += elements
        elif not flops and op not in MOVES:
            cost["cheap"] += elements
        values.update(zip(names, results))
        for name in set(inputs):
            if last[name] == k and name not in graph.outputs:
                values.pop(name, None)
    return [values[name] for name in graph.outputs], {key: int(n) for key, n in cost.items()}


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
    "conv_block": ("two 3x3 convolutions 64-64 at 56x56, residual", conv_block),
    "conv_block_qdq": ("3x3, 3x3, 1x1 convolutions 128-128 at 28x28 quantised ahead",
                       conv_block_of_bytes),
    "resnet50": ("ResNet-50, one image", resnet50),
    "lstm": ("LSTM 256, 32 steps", lstm256),
}
