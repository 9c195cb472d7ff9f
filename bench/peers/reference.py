"""The ops of the comparison's graphs in float64, written for reading, and what they cost."""
import math

import numpy as np
from onnx import TensorProto


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


def slice_of(x, starts, ends, axes):
    parts = [slice(None)] * x.ndim
    for start, end, axis in zip(starts, ends, axes):
        parts[int(axis)] = slice(int(start), int(end))
    return x[tuple(parts)]


def scatter_nd(x, places, rows):
    x = x.copy()
    x[tuple(np.moveaxis(places, -1, 0))] = rows
    return x


def few_bits_product(x, numbers, scales, *, K, N, bits, block_size):
    """Numbers less 8 times the scale of their block, two numbers to a byte."""
    assert bits == 4 and K % block_size == 0
    halves = np.stack([numbers & 15, numbers >> 4], -1).reshape(N, -1, block_size)
    return x @ ((halves - 8.0) * scales.reshape(N, -1, 1)).reshape(N, K).T


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
    "Slice": slice_of, "Concat": lambda *all, axis: np.concatenate(all, axis),
    "Expand": lambda x, sizes: np.broadcast_to(x, tuple(int(size) for size in sizes)),
    "MatMulNBits": few_bits_product, "ScatterND": scatter_nd,
}
TRANSCENDENTAL = {"Exp", "Tanh", "Sigmoid", "Erf", "Softmax"}
MOVES = {"Reshape", "Transpose", "Unsqueeze", "Flatten", "Cast", "Gather", "Slice", "Concat", "Expand", "ScatterND"}


def product_flops(op, operands, results):
    """Floating operations of what runs on multiply-add units; 0 for all other ops."""
    if op in ("MatMul", "MatMulNBits"):
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
    evaluate(graph, values, cost)
    return [values[name] for name in graph.outputs], {key: int(n) for key, n in cost.items()}


def evaluate(graph, values, cost):
    """Puts the values of the graph's nodes into `values`, but for those that nothing reads any more, and adds to `cost`."""
    last = {name: k for k, (_, inputs, _, _) in enumerate(graph.nodes) for name in inputs}
    for k, (op, inputs, names, attributes) in enumerate(graph.nodes):
        if op == "Loop":
            values.update(zip(names, loop(attributes["body"], inputs, values, cost)))
            continue
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
            if last[name] == k and name not in graph.outputs and name not in graph.constants:
                values.pop(name, None)


def loop(body, inputs, values, cost):
    """What a loop carries at its end, whose condition stays true."""
    steps, _, *start = inputs
    carried = [values[name] for name in start]
    for step in range(int(values[steps])):
        inside = {name: values[name] for name in body.constants}
        inside.update(zip(body.inputs, [np.int64(step), np.bool_(True), *carried]))
        evaluate(body, inside, cost)
        carried = [inside[name] for name in body.outputs[1:]]
    return carried
