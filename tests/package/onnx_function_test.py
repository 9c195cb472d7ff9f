"""ONNX graphs as functions (bench/peers/onnx_function.py), against onnx's own evaluator and the rows' float64 outputs, with
numpy and with each array library of a peer that is installed. Runs in .cache/peers_venv where bench/peers/run made one.
"""
import importlib.util
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".cache/peers_venv/bin/python"


def missing():
    return [name for name in ("numpy", "onnx") if importlib.util.find_spec(name) is None]


if missing() and PYTHON.exists() and pathlib.Path(sys.prefix) != PYTHON.parents[1]:
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
if missing():
    print(f"skipped: no {' and no '.join(missing())} here; bench/peers/run installs them")
    sys.exit(77)

sys.path.insert(0, str(ROOT / "bench/peers"))
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import graphs  # noqa: E402
import onnx_function  # noqa: E402


def libraries():
    """Array libraries by name: each takes a function of arrays and numpy arrays to numpy results."""
    found = {"numpy": lambda call, arrays: call(onnx_function.NumpyArrays, *arrays)}
    if importlib.util.find_spec("jax"):
        import jax
        import jax_peer
        found["jax"] = lambda call, arrays: jax.jit(lambda *x: call(jax_peer.JaxArrays, *x))(*arrays)
    if importlib.util.find_spec("torch"):
        import torch
        import torch_peer
        found["torch"] = lambda call, arrays: call(torch_peer.TorchArrays, *map(torch.from_numpy, arrays))
    return found


LIBRARIES = libraries()


def f32(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


def zero_point(value, dtype=np.uint8):
    return np.array(value, dtype)


X, IMAGE = f32(1, 2, 3, 4), f32(2, 1, 4, 6, 6)
POSITIVE = np.abs(X) + np.float32(0.1)
# (op, what depends on inputs, constants after it, attributes); opset 17.
CASES = [
    *[(op, [X, f32(3, 3, 1)], [], {}) for op in ("Add", "Sub", "Mul", "Div")],
    ("Div", [np.array([7, 9], np.int64)], [i64(2, 3)], {}),
    ("Pow", [POSITIVE], [np.float32(2)], {}), ("Pow", [POSITIVE], [np.float32(0.5)], {}),
    ("Pow", [POSITIVE], [np.float32(1.7)], {}), ("Equal", [np.array([1, 2])], [i64(1, 3)], {}),
    ("Max", [X, f32(4, 3, 4)], [], {}), ("Min", [X], [np.float32(0.2)], {}),
    ("Not", [np.array([True, False])], [], {}),
    *[(op, [X], [], {}) for op in ("Neg", "Abs", "Exp", "Tanh", "Erf", "Sigmoid", "Relu", "Identity", "Flatten",
                                   "HardSigmoid")],
    *[(op, [POSITIVE], [], {}) for op in ("Sqrt", "Reciprocal")],
    ("HardSigmoid", [X], [], {"alpha": 0.3, "beta": 0.4}),
    ("Clip", [X], [np.float32(-0.5), np.float32(0.5)], {}), ("Clip", [X], [np.float32(0)], {}),
    ("Cast", [X], [], {"to": TensorProto.INT32}),
    ("Shape", [X], [], {}), ("Size", [X], [], {}),
    ("Reshape", [X], [i64(0, -1)], {}), ("Flatten", [X], [], {"axis": 2}),
    ("Unsqueeze", [X], [i64(0, -1)], {}), ("Squeeze", [f32(5, 1, 3, 1)], [i64(-1)], {}),
    ("Squeeze", [f32(5, 1, 3, 1)], [], {}), ("Expand", [f32(6, 3, 1)], [i64(2, 1, 4)], {}),
    ("Slice", [X], [i64(1, -3), i64(3, 9), i64(1, 2), i64(1, 2)], {}), ("Slice", [X], [i64(0), i64(1)], {}),
    ("Gather", [X], [i64(2, 0)], {"axis": 1}), ("Gather", [X], [np.array(1)], {"axis": 2}),
    ("Gather", [f32(7, 5, 3)], [np.array([[4, 0]])], {}),
    ("Pad", [X], [i64(0, 0, 1, 0, 0, 2), np.float32(3)], {}),
    ("Pad", [X], [i64(0, 0, 1, 0, 0, 2)], {"mode": "reflect"}),
    ("Pad", [X[0]], [i64(0, 2, 0, 1)], {"mode": "reflect"}), ("Pad", [X], [i64(0, 0, 0, 0, 0, 0)], {}),
    ("Resize", [IMAGE], [np.zeros(0, np.float32), np.array([1, 1, 2, 3], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Transpose", [X], [], {"perm": [2, 0, 1]}), ("Concat", [X, f32(8, 2, 1, 4)], [], {"axis": 1}),
    *[(op, [X], [], {"axes": [-1], "keepdims": keep}) for op in ("ReduceMean", "ReduceMax", "ReduceMin")
      for keep in (0, 1)],
    ("ReduceSum", [X], [i64(0, 2)], {"keepdims": 0}), ("ReduceSum", [X], [], {}),
    ("ReduceSum", [X], [i64()], {"noop_with_empty_axes": 1}),
    ("GlobalAveragePool", [IMAGE], [], {}), ("GlobalMaxPool", [IMAGE], [], {}),
    ("MaxPool", [IMAGE], [], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
    ("Softmax", [X], [], {"axis": 1}),
    ("LayerNormalization", [X], [f32(9, 4), f32(10, 4)], {"axis": -1, "epsilon": 1e-3}),
    ("BatchNormalization", [IMAGE], [f32(11, 4), f32(12, 4), f32(13, 4), np.abs(f32(14, 4))], {"epsilon": 1e-3}),
    ("MatMul", [X, f32(15, 4, 5)], [], {}), ("MatMul", [X], [f32(15, 4, 5)], {}),
    ("Gemm", [f32(16, 2, 3)], [f32(17, 5, 3), f32(18, 5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Conv", [IMAGE], [f32(19, 6, 2, 3, 3), f32(20, 6)],
     {"group": 2, "strides": [2, 1], "pads": [0, 1, 1, 1], "dilations": [1, 2], "kernel_shape": [3, 3]}),
    ("Conv", [f32(21, 1, 4, 9)], [f32(22, 3, 4, 2)], {"kernel_shape": [2]}),
    ("ConvTranspose", [IMAGE], [f32(23, 4, 3, 2, 2), f32(24, 3)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("LSTM", [f32(25, 5, 2, 3)], [f32(26, 1, 16, 3), f32(27, 1, 16, 4), f32(28, 1, 32)], {"hidden_size": 4}),
    ("LSTM", [f32(25, 5, 2, 3)], [f32(26, 1, 16, 3), f32(27, 1, 16, 4), f32(28, 1, 32), "", f32(29, 1, 2, 4),
                                  f32(30, 1, 2, 4)], {"hidden_size": 4}),
    ("QuantizeLinear", [X], [np.float32(0.03), zero_point(120)], {}),
    ("QuantizeLinear", [X], [np.array([0.03, 0.01, 0.1], np.float32), np.array([3, -4, 0], np.int8)], {"axis": 1}),
    ("DequantizeLinear", [np.arange(12, dtype=np.uint8).reshape(3, 4)],
     [np.array([0.5, 1, 2], np.float32), np.array([1, 2, 3], np.uint8)], {"axis": 0}),
    ("DynamicQuantizeLinear", [X], [], {}),
    ("MatMulInteger", [np.arange(12, dtype=np.uint8).reshape(3, 4)],
     [np.arange(-4, 4, dtype=np.int8).reshape(4, 2), zero_point(3)], {}),
]
RESULTS = {"LSTM": 3, "DynamicQuantizeLinear": 3}


def model_of(op, inputs, constants, attributes):
    """One node; the checker wants ranks and types of inputs only."""
    info = [helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for k, x in enumerate(inputs)]
    named = [(f"c{k}" if not isinstance(c, str) else "", c) for k, c in enumerate(constants)]
    names = [value.name for value in info] + [name for name, _ in named]
    if op == "Resize":
        names = ["x0", "c0", "c1"]
    outputs = [f"y{k}" for k in range(RESULTS.get(op, 1))]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, **attributes)], "one", info,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(c), name) for name, c in named if name])
    # onnx's evaluator has these two from their next version on, which says the same of bytes.
    opset = 19 if op in ("QuantizeLinear", "DequantizeLinear") else 17
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def run(library, model, inputs):
    call, names = onnx_function.function(model, inputs)
    return [np.asarray(value) for value in LIBRARIES[library](call, [inputs[name] for name in names])]


class OpsTest(unittest.TestCase):
    def test_every_op_has_a_case(self):
        # ConstantOfShape and If are of constants alone; they are below.
        self.assertEqual(set(onnx_function.OPS) - {op for op, *_ in CASES}, {"ConstantOfShape"})

    def test_ops_compute_what_onnx_says(self):
        for op, inputs, constants, attributes in CASES:
            model = model_of(op, inputs, constants, attributes)
            given = {f"x{k}": x for k, x in enumerate(inputs)}
            wanted = ReferenceEvaluator(model).run(None, given)
            for library in LIBRARIES:
                with self.subTest(op=op, library=library, attributes=attributes):
                    got = run(library, model, given)
                    self.assertEqual(len(got), len(wanted))
                    for mine, theirs in zip(got, wanted):
                        self.assertEqual(mine.shape, np.shape(theirs))
                        # JAX has integers of 32 bits unless told otherwise.
                        self.assertEqual(mine.dtype.kind, np.asarray(theirs).dtype.kind)
                        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


    def test_constants_may_come_first(self):
        for op in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"):
            for constant in (np.float32(0.7), f32(31, 3, 1)):
                graph = graphs.Graph()
                x = graph.input("x", X)
                graph.outputs = [graph.op(op, graph.constant(np.abs(constant)), x)]
                model = graph.model([X])
                wanted = ReferenceEvaluator(model).run(None, {"x": X})[0]
                for library in LIBRARIES:
                    with self.subTest(op=op, library=library, shape=constant.shape):
                        np.testing.assert_allclose(run(library, model, {"x": X})[0], wanted, rtol=2e-5, atol=2e-6)


    def test_a_constant_table_is_gathered_from(self):
        graph = graphs.Graph()
        table, ids = f32(32, 7, 3), np.array([[4, 0]])
        graph.outputs = [graph.op("Gather", graph.constant(table), graph.input("ids", ids), axis=0)]
        model = graph.model([table[ids]])
        for library in LIBRARIES:
            with self.subTest(library=library):
                np.testing.assert_array_equal(run(library, model, {"ids": ids})[0], table[ids])


class GraphsTest(unittest.TestCase):
    def test_rows_of_the_comparison_agree_with_their_float64_outputs(self):
        rows = {"tiny64": graphs.tiny64, "mixed20": lambda: graphs.mixed20(100), "mlp": lambda: graphs.mlp(2),
                "quantised_mlp": lambda: graphs.quantised_mlp(1), "mlp_of_bytes": lambda: graphs.mlp_of_bytes(1),
                "encoder": lambda: graphs.encoder(1, 48, 8), "lstm": graphs.lstm256,
                "conv_block": graphs.conv_block}
        for name, build in rows.items():
            graph = build()
            wanted, _ = graphs.reference(graph)
            model = onnx_function.fold_batch_norms(graph.model(wanted))
            for library in LIBRARIES:
                with self.subTest(row=name, library=library):
                    for mine, reference in zip(run(library, model, dict(graph.inputs)), wanted, strict=True):
                        self.assertEqual(mine.shape, reference.shape)
                        np.testing.assert_allclose(mine, reference, rtol=graph.tolerance,
                                                   atol=graph.tolerance * np.abs(reference).max())

    def test_scale_and_shift_go_into_the_convolution_before_them(self):
        graph = graphs.conv_block()
        model = graph.model([graph.inputs[0][1]])
        before = run("numpy", model, dict(graph.inputs))
        folded = onnx_function.fold_batch_norms(onnx.ModelProto.FromString(model.SerializeToString()))
        self.assertEqual([node.op_type for node in folded.graph.node], ["Conv", "Relu", "Conv", "Add", "Relu"])
        np.testing.assert_allclose(run("numpy", folded, dict(graph.inputs))[0], before[0], rtol=1e-4, atol=1e-4)

    def test_a_convolution_with_another_use_keeps_its_scale(self):
        graph = graphs.conv_block()
        graph.outputs = [graph.nodes[0][2][0], *graph.outputs]
        model = onnx_function.fold_batch_norms(graph.model([graph.inputs[0][1]] * 2))
        self.assertEqual([node.op_type for node in model.graph.node],
                         ["Conv", "BatchNormalization", "Relu", "Conv", "Add", "Relu"])

    def test_an_integer_of_rank_0_chooses_a_branch_and_sizes(self):
        def branch(name, sizes):
            nodes = [helper.make_node("Constant", [], ["n"], value=numpy_helper.from_array(i64(*sizes))),
                     helper.make_node("ConstantOfShape", ["n"], ["z"],
                                      value=numpy_helper.from_array(np.ones(1, np.float32))),
                     helper.make_node("Add", ["x", "z"], [name])]
            return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(name)])
        nodes = [helper.make_node("Equal", ["rate", "limit"], ["same"]),
                 helper.make_node("If", ["same"], ["y"], then_branch=branch("a", [3]), else_branch=branch("b", [2, 3]))]
        info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
                helper.make_tensor_value_info("rate", TensorProto.INT64, [])]
        graph = helper.make_graph(nodes, "g", info, [helper.make_empty_tensor_value_info("y")],
                                  [numpy_helper.from_array(np.array(8), "limit")])
        model = helper.make_model(graph)
        for library in LIBRARIES:
            for rate, shape in ((8, (3,)), (9, (2, 3))):
                inputs = {"x": np.zeros(3, np.float32), "rate": np.array(rate)}
                self.assertEqual(run(library, model, inputs)[0].tolist(), np.ones(shape).tolist())

    def test_what_is_missing_is_named(self):
        cases = [(("Selu", [X], [], {}), "op Selu"),
                 (("Reshape", [X, i64(4, 6)], [], {}), "sizes of a Reshape that depend on inputs"),
                 (("ConvTranspose", [IMAGE], [f32(1, 4, 3, 3, 3)], {"kernel_shape": [3, 3], "strides": [2, 2]}),
                  "a ConvTranspose whose windows overlap"),
                 (("MaxPool", [IMAGE], [], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
                  "a pool whose last window hangs over"),
                 (("Resize", [IMAGE], [np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)],
                   {"mode": "linear"}), "a Resize other than to the nearest, by a whole factor")]
        # What depends on inputs is what is no numpy array: another library's, or one that only looks alike.
        class Traced:
            def __init__(self, value):
                self.shape, self.dtype = value.shape, value.dtype
        for (op, inputs, constants, attributes), message in cases:
            model = model_of(op, inputs, constants, attributes)
            call, _ = onnx_function.function(model, {f"x{k}": x for k, x in enumerate(inputs)})
            with self.assertRaisesRegex(onnx_function.Unsupported, f"^{message}$"):
                call(onnx_function.NumpyArrays, *map(Traced, inputs))


if __name__ == "__main__":
    unittest.main()
