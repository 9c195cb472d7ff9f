"""Forms that ONNX Runtime's tools bring models into: quantised, in f16, and fused."""
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.transformers import float16, optimizer

from op_models import peer_saturates
from single_models import OnnxRuntime, distance

LEAST_TOLERANCE = 0.02


class OneInput(quantization.CalibrationDataReader):
    def __init__(self, inputs):
        self.left = [inputs]

    def get_next(self):
        return self.left.pop() if self.left else None


def dynamic(weights):
    return lambda source, target, inputs: quantization.quantize_dynamic(source, target, weight_type=weights,
                                                                          reduce_range=peer_saturates())


def static(form):
    def make(source, target, inputs):
        quantization.quantize_static(source, target, OneInput(inputs), quant_format=form,
                                     activation_type=quantization.QuantType.QUInt8, reduce_range=peer_saturates(),
                                     weight_type=quantization.QuantType.QInt8)
    return make


def in_f16(source, target, inputs):
    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def as_loaded(source, target, inputs):
    """What ONNX Runtime runs on a CPU, but for the layouts of one processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = target
    options.log_severity_level = 4
    # By its bytes: of a file whose weights lie beside it, the result would look for them there.
    onnxruntime.InferenceSession(onnx.load(source).SerializeToString(), options, providers=["CPUExecutionProvider"])


def fused(source, target, inputs):
    """By the optimiser for transformers, whose default is BERT's."""
    optimizer.optimize_model(source, opt_level=0).save_model_to_file(target)


VARIANTS = {"dynamic_u8": dynamic(quantization.QuantType.QUInt8), "dynamic_i8": dynamic(quantization.QuantType.QInt8),
            "qdq": static(quantization.QuantFormat.QDQ), "operators": static(quantization.QuantFormat.QOperator),
            "f16": in_f16, "as_loaded": as_loaded, "fused": fused}


def tolerance(source, path, inputs):
    """As much as ONNX Runtime's outputs differ from those of the original model, or 0.02."""
    found = [OnnxRuntime(file, inputs, threads=1).outputs.values() for file in (path, source)]
    return max([LEAST_TOLERANCE] + [distance(a, b) for a, b in zip(*found)])
