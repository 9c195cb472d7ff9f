"""JAX's part of the GPU suite: jax.jit of the same graphs. The lines it reads and answers are those of peer_torch.py.

usage: peer_jax.py --device cuda|cpu
"""
import argparse
import json
import math
import os
import pathlib
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from samples import sample_step, write_floats  # noqa: E402

DTYPES = {"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16, "i64": np.int64, "i32": np.int32,
          "i8": np.int8}
ROTATED_BYTES = 256 << 20
MOST_SETS = 64


def layer_norm(x, scale, bias):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def rms_norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def attention(q, k, v, causal):
    q, k, v = (jnp.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    return jnp.transpose(jax.nn.dot_product_attention(q, k, v, is_causal=causal), (0, 2, 1, 3))


def array_of(folder, k, spec):
    flat = np.frombuffer((folder / f"input{k}.bin").read_bytes(), dtype=DTYPES[spec["dtype"]])
    return jnp.asarray(np.resize(flat, math.prod(spec["sizes"])).reshape(spec["sizes"]))


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def write_samples(folder, name, value):
    flat = value.reshape(-1)
    write_floats(folder / f"{name}.f32", np.asarray(flat[::sample_step(flat.size)], np.float32).tolist())


def run(request):
    """Times are of batches that the host waits for: a device's event is out of reach here."""
    folder, out = pathlib.Path(request["case"]), pathlib.Path(request["out"])
    out.mkdir(parents=True, exist_ok=True)
    case = json.loads((folder / "case.json").read_text())
    names = {"jax": jax, "jnp": jnp, "layer_norm": layer_norm, "rms_norm": rms_norm, "attention": attention}
    exec(compile((folder / "jax.txt").read_text(), str(folder / "jax.txt"), "exec"), names)
    inputs = [array_of(folder, k, spec) for k, spec in enumerate(case["inputs"])]
    states = [k for k, spec in enumerate(case["inputs"]) if spec["state"]]
    start = time.perf_counter()
    function = jax.jit(names["function"], donate_argnums=states)

    def call(arguments):
        results = function(*arguments)
        for k, state in zip(states, results[case["outputs"]:]):
            arguments[k] = state  # the memory of the old one is the new one's
        return results

    results = jax.block_until_ready(call(inputs))
    first_call_ms = (time.perf_counter() - start) * 1e3
    size = sum(value.nbytes for value in [*inputs, *results])
    sets = [inputs]
    if case["rotate"]:
        count = min(max(-(-ROTATED_BYTES // size), 1), MOST_SETS)
        sets += [[jnp.array(value) for value in inputs] for _ in range(count - 1)]

    def batch(calls):
        begin = time.perf_counter()
        for k in range(calls):
            last = call(sets[k % len(sets)])
        jax.block_until_ready(last)
        return (time.perf_counter() - begin) * 1e6 / calls

    batch(3 * len(sets))
    rounds = int(min(max(10000 / (max(batch(len(sets)), 0.1) * len(sets)), 1), 1000))
    samples, begin = [], time.perf_counter()
    while not samples or (time.perf_counter() - begin < request["seconds"] and len(samples) < 1000):
        samples.append(batch(rounds * len(sets)))
    results = jax.block_until_ready(call(inputs))
    for k in range(case["outputs"]):
        write_samples(out, f"output{k}", results[k])
    for k in states:
        write_samples(out, f"state{k}", inputs[k])
    return {"device_us": median(samples), "fastest_us": min(samples), "slowest_us": max(samples),
            "samples": len(samples), "calls_per_sample": rounds * len(sets), "sets": len(sets),
            "first_call_ms": first_call_ms}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", device)
    if not jax.devices():
        raise SystemExit("peer_jax: JAX sees no device")
    print(json.dumps({"version": f"JAX {jax.__version__}", "device": jax.devices()[0].device_kind}), flush=True)
    for line in sys.stdin:
        try:
            reply = run(json.loads(line))
        except Exception as error:  # a case that a peer cannot run is a row of the report, not its end
            reply = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
