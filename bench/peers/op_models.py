"""How the cases of ops.py are written: models of one op, or of a few, with their inputs."""
import contextlib
import dataclasses
import pathlib
import zlib
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OF_FLOATS = ("matmulintegertofloat", "gatherblockquantized", "qattention")  # whatever the type of their first input
SATURATION = """Weights of products of bytes have 7 bits: without VNNI, as here, ONNX Runtime's sums of products of two neighbouring
bytes saturate at 16 bits and are wrong for some weights of 8 bits. Heddle's are exact for all."""
SINCE_23 = {"Attention", "RMSNormalization", "RotaryEmbedding"}


def peer_saturates():
    """Whether ONNX Runtime adds up products of bytes in 16 bits, two at a time, which saturate: on x86 without VNNI. Weights of
    7 bits keep its sums exact, so its tools take these for such processors (reduce_range)."""
    with contextlib.suppress(OSError):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
        return "avx2" in flags and "avx512_vnni" not in flags and "avx_vnni" not in flags
    return False


def saturation_note():
    """What a report says of these weights: one paragraph, or none."""
    return [SATURATION] if peer_saturates() else []


@dataclasses.dataclass
class Operand:
    make: Callable                 # of a random generator: the array
    is_constant: bool = False


def normal(*shape, dtype=np.float32, scale=1):
    return Operand(lambda random: np.asarray(random.standard_normal(shape) * scale, dtype))


def positive(*shape, low=0.1, high=3.0, dtype=np.float32):
    return Operand(lambda random: random.uniform(low, high, shape).astype(dtype))


def whole(below, *shape, dtype=np.int64, low=0):
    return Operand(lambda random: random.integers(low, below, shape).astype(dtype))


def chance(*shape):
    return Operand(lambda random: random.random(shape) < 0.5)


def constant(operand):
    return Operand(operand.make, True)


def weight(*shape, dtype=np.float32):
    return constant(normal(*shape, dtype=dtype, scale=0.05))


class Model:
    """A model under construction, with random numbers that its name fixes."""

    def __init__(self, name):
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.inputs, self.constants = [], {}, {}

    def name_of(self, operand):
        """Of an operand: a tensor's name; a tuple, the shape of an input; an Operand; numbers; or None for none."""
        if operand is None or isinstance(operand, str):
            return operand or ""
        if isinstance(operand, tuple):
            operand = normal(*operand)
        if isinstance(operand, Operand):
            array, is_constant = operand.make(self.random), operand.is_constant
        else:
            array, is_constant = np.asarray(operand), True
            if not isinstance(operand, (np.ndarray, np.generic)) and array.dtype == np.float64:
                array = array.astype(np.float32)
        name = f"{'constant' if is_constant else 'input'}_{len(self.inputs) + len(self.constants)}"
        (self.constants if is_constant else self.inputs)[name] = array
        return name

    def op(self, kind, *operands, results=1, **attributes):
        domain, _, kind = kind.rpartition(".")
        names = [f"{kind.lower()}_{len(self.nodes)}_{k}" for k in range(results)]
        operands = [self.name_of(operand) for operand in operands]
        self.nodes.append(helper.make_node(kind, operands, names, domain=domain, **attributes))
        return names[0] if results == 1 else names

    def proto(self):
        infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                 for name, array in self.inputs.items()]
        used = {name for node in self.nodes for name in node.input}
        outputs = [helper.make_empty_tensor_value_info(name)
                   for node in self.nodes for name in node.output if name not in used]
        graph = helper.make_graph(self.nodes, "graph", infos, outputs,
                                  [numpy_helper.from_array(array, name) for name, array in self.constants.items()])
        opset = 23 if any(node.op_type in SINCE_23 and not node.domain for node in self.nodes) else 21
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, ir_version=10, opset_imports=opsets))
        for output in model.graph.output:  # of an op that inference does not know
            if not output.type.WhichOneof("value"):
                of_floats = output.name.startswith(OF_FLOATS)
                types = [info.type.tensor_type.elem_type for info in infos]
                first = next(kind for kind in types if kind != TensorProto.BOOL)
                output.type.tensor_type.elem_type = TensorProto.FLOAT if of_floats else first
        return model


def one(kind, *operands, **attributes):
    return lambda op: op(kind, *operands, **attributes)


# Sizes and types that recur.
IMAGE, ROWS = (1, 64, 56, 56), (512, 1024)
HALF, BYTE, INT8, INT32, DOUBLE = np.float16, np.uint8, np.int8, np.int32, np.float64
