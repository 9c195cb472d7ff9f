"""JAX: a graph as a jitted function on XLA's CPU backend, compiled for the inputs' sizes before it is called.

Weights are constants of the program, which XLA lays out and folds; inputs lie on the device. XLA has no option that says
how many threads: the process is held to so many processors before the client starts, which is what it counts.
"""
import os

import jax
import jax.numpy as jnp
from jax import lax
import numpy as np
import onnx

import onnx_function
import python_peer


class JaxArrays:
    """jax.numpy as onnx_function's array library."""

    exp, tanh, sqrt, abs, round = jnp.exp, jnp.tanh, jnp.sqrt, jnp.abs, jnp.rint
    maximum, minimum, matmul, transpose = jnp.maximum, jnp.minimum, jnp.matmul, jnp.transpose
    reshape, broadcast_to, take = jnp.reshape, jnp.broadcast_to, jnp.take
    concatenate, erf, sigmoid, scan = jnp.concatenate, jax.scipy.special.erf, jax.nn.sigmoid, lax.scan
    constant = jnp.asarray

    @staticmethod
    def cast(x, dtype):
        return x.astype(dtype)

    @staticmethod
    def softmax(x, axis):
        return jax.nn.softmax(x, axis=axis)

    @staticmethod
    def reduce(kind, x, axes, keepdims):
        return getattr(jnp, kind)(x, axis=axes, keepdims=keepdims)

    @staticmethod
    def pad(x, widths, mode, value):
        more = {"constant_values": value} if mode == "constant" else {}
        return jnp.pad(x, widths, mode=mode, **more)

    @staticmethod
    def convolution(x, weights, strides, pads, dilations, groups):
        return lax.conv_general_dilated(x, weights, strides, pads, rhs_dilation=dilations,
                                        feature_group_count=groups)

    @staticmethod
    def pool(kind, x, kernel, strides, pads):
        start, step = (-np.inf, lax.max) if kind == "max" else (0.0, lax.add)
        shape = (1, 1, *kernel), (1, 1, *strides), [(0, 0), (0, 0), *pads]
        result = lax.reduce_window(x, np.float32(start), step, *shape)
        if kind == "max":
            return result
        return result / lax.reduce_window(np.ones(x.shape, np.float32), np.float32(0), step, *shape)

    @staticmethod
    def integer_product(a, b):
        """XLA's product of bytes on CPUs is a plain loop, five times as long as one of f32, whose sums are exact to 2^24."""
        return jnp.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.int32)


class JaxPeer:
    def load(self, model, threads, options):
        # Read when the client starts, at the first array. By itself XLA uses half of a 512-bit register.
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_prefer_vector_width=512")
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        # The caller's thread runs what it asks for, as in the other engines, rather than waiting for one that does.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_compilation_cache_dir", options.get("cache_dir"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        self.model = onnx_function.fold_batch_norms(onnx.load(model))

    def first_call(self, inputs):
        call, names = onnx_function.function(self.model, inputs)
        self.names = [output.name for output in self.model.graph.output]
        self.inputs = [jax.device_put(inputs[name]) for name in names]
        traced = jax.jit(lambda *arrays: call(JaxArrays, *arrays))
        self.compiled = traced.lower(*self.inputs).compile()
        self.call()

    def call(self):
        self.results = self.compiled(*self.inputs)
        for result in self.results:
            result.block_until_ready()

    def outputs(self):
        return {name: np.asarray(value) for name, value in zip(self.names, self.results)}

    def facts(self):
        return {"version": jax.__version__}


if __name__ == "__main__":
    python_peer.serve(JaxPeer())
