"""torch: a graph traced to its own ops and compiled by Inductor, with weights frozen into the program."""
import logging
import os

import onnx
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import onnx_function
import python_peer


class TorchArrays:
    """torch as onnx_function's array library."""

    exp, tanh, sqrt, abs, round = torch.exp, torch.tanh, torch.sqrt, torch.abs, torch.round
    matmul, erf, sigmoid = torch.matmul, torch.erf, torch.sigmoid
    transpose, reshape, broadcast_to = torch.permute, torch.reshape, torch.broadcast_to

    @staticmethod
    def constant(value):
        """Numbers stay numbers, which kernels then hold as such."""
        if isinstance(value, torch.Tensor) or not hasattr(value, "dtype"):
            return value
        return value.item() if value.ndim == 0 else torch.from_numpy(value.copy())

    @staticmethod
    def maximum(a, b):
        number, x = (a, b) if isinstance(b, torch.Tensor) else (b, a)
        return torch.maximum(number, x) if isinstance(number, torch.Tensor) else torch.clamp(x, min=number)

    @staticmethod
    def minimum(a, b):
        number, x = (a, b) if isinstance(b, torch.Tensor) else (b, a)
        return torch.minimum(number, x) if isinstance(number, torch.Tensor) else torch.clamp(x, max=number)

    @staticmethod
    def concatenate(parts, axis):
        return torch.cat(parts, axis)

    @staticmethod
    def take(x, indices, axis):
        if not isinstance(indices, torch.Tensor):
            return torch.select(x, axis, indices)
        if axis == 0 and x.ndim == 2:
            return functional.embedding(indices, x)
        return torch.index_select(x, axis, indices.reshape(-1)).reshape(
            x.shape[:axis] + indices.shape + x.shape[axis + 1:])

    @staticmethod
    def cast(x, dtype):
        return x.to(getattr(torch, str(dtype().dtype if isinstance(dtype, type) else dtype)))

    @staticmethod
    def softmax(x, axis):
        return torch.softmax(x, axis)

    @staticmethod
    def reduce(kind, x, axes, keepdims):
        name = {"max": "amax", "min": "amin"}.get(kind, kind)
        return getattr(torch, name)(x, dim=axes, keepdim=keepdims)

    @staticmethod
    def pad(x, widths, mode, value):
        first = next((k for k, width in enumerate(widths) if tuple(width) != (0, 0)), x.ndim)
        flat = [number for pair in reversed(widths[first:]) for number in pair]
        return functional.pad(x, flat, mode, *([value] if mode == "constant" else []))

    @staticmethod
    def convolution(x, weights, strides, pads, dilations, groups):
        call = functional.conv1d if weights.ndim == 3 else functional.conv2d
        if any(before != after for before, after in pads):
            x, pads = TorchArrays.pad(x, pads, "constant", 0), [(0, 0)] * len(pads)
        return call(x, weights, None, strides, [before for before, _ in pads], dilations, groups)

    @staticmethod
    def pool(kind, x, kernel, strides, pads):
        padding = [before for before, after in pads if before == after]
        if len(padding) != 2:
            raise onnx_function.Unsupported("a pool with other padding than the same on both sides of an image")
        if kind == "max":
            return functional.max_pool2d(x, kernel, strides, padding)
        return functional.avg_pool2d(x, kernel, strides, padding, count_include_pad=False)

    @staticmethod
    def integer_product(a, b):
        """In f32, whose sums are exact to 2^24: Inductor has no product of unsigned by signed bytes."""
        wide = [TorchArrays.constant(x.astype("float32")) if hasattr(x, "astype") else x.to(torch.float32) for x in (a, b)]
        return torch.matmul(*wide).to(torch.int32)

    @staticmethod
    def scan(step, state, rows):
        results = []
        for row in rows.unbind(0):
            state, result = step(state, row)
            results.append(result)
        return state, torch.stack(results)


class TorchPeer:
    def load(self, model, threads, options):
        torch.set_num_threads(threads)
        # Inductor's own compiling is left all processors.
        self.options = {"freezing": True}
        if "cache_dir" in options:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = options["cache_dir"]
        logging.getLogger("torch").setLevel(logging.ERROR)
        self.model = onnx_function.fold_batch_norms(onnx.load(model))

    def first_call(self, inputs):
        call, names = onnx_function.function(self.model, inputs)
        self.names = [output.name for output in self.model.graph.output]
        self.inputs = [torch.from_numpy(inputs[name]) for name in names]
        with torch.inference_mode():
            traced = make_fx(lambda *arrays: call(TorchArrays, *arrays))(*self.inputs)
            traced.requires_grad_(False)
            self.compiled = torch.compile(traced.eval(), fullgraph=True, dynamic=False, options=self.options)
            self.call()

    def call(self):
        with torch.inference_mode():
            self.results = self.compiled(*self.inputs)

    def outputs(self):
        return {name: value.numpy() for name, value in zip(self.names, self.results)}

    def facts(self):
        return {"version": torch.__version__}


if __name__ == "__main__":
    python_peer.serve(TorchPeer())
