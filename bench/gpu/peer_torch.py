"""PyTorch's part of the GPU suite. Reads lines of JSON, answers each with one:

    {"case": FOLDER, "out": FOLDER, "mode": MODE, "seconds": S}

usage: peer_torch.py --device cuda|cpu

MODE "exact" runs the case once, with numbers of 32 bits where it has such of 16, and times nothing: what answers are judged by. Else
MODE is "eager", "default" or "max-autotune" (torch.compile, with CUDA graphs in the latter, as a user asks for it), or names the
kernel of attention that eager mode takes: "flash", "efficient", "cudnn", "math"; one that does not take the inputs is an error. The elements that are compared are written as
case.h says. cpu is for trying the suite out.
"""
import argparse
import contextlib
import json
import math
import pathlib
import re
import sys
import time

import torch
import torch.nn.functional as F

from samples import sample_step, write_floats

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "i32": torch.int32, "i8": torch.int8}
#: Modes to members of torch.nn.attention.SDPBackend.
ATTENTION = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
ROTATED_BYTES = 256 << 20
MOST_SETS = 64


def tensor_of(folder, k, spec, device):
    raw = (folder / f"input{k}.bin").read_bytes()
    flat = torch.frombuffer(bytearray(raw), dtype=DTYPES[spec["dtype"]]).to(device)
    count = math.prod(spec["sizes"])
    if flat.numel() < count:
        flat = flat.repeat(-(-count // flat.numel()))[:count]
    return flat.reshape(spec["sizes"])


def grouped_matmul(x, w, ends):
    """Where PyTorch has no product of groups for the device, a loop that waits for the ends."""
    if x.is_cuda and x.dtype == torch.bfloat16 and hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(x, w, offs=ends.to(torch.int32))
    bounds = [0, *ends.tolist()]
    return torch.cat([x[a:b] @ w[g] for g, (a, b) in enumerate(zip(bounds, bounds[1:]))])


class Timer:
    """The device's time of a batch of calls, in microseconds."""

    def __init__(self, device):
        self.cuda = device == "cuda"

    def time(self, calls):
        if not self.cuda:
            start = time.perf_counter()
            calls()
            return (time.perf_counter() - start) * 1e6
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        calls()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def measure(call, sets, timer, seconds):
    def batch(calls):
        def run():
            for k in range(calls):
                call(sets[k % len(sets)])
        return timer.time(run) / calls

    batch(3 * len(sets))
    once = max(batch(len(sets)), 0.1)
    rounds = int(min(max(2000 / (once * len(sets)), 1), 1000))
    samples, start = [], time.perf_counter()
    while not samples or (time.perf_counter() - start < seconds and len(samples) < 1000):
        samples.append(batch(rounds * len(sets)))
    return {"device_us": median(samples), "fastest_us": min(samples), "slowest_us": max(samples),
            "samples": len(samples), "calls_per_sample": rounds * len(sets), "sets": len(sets)}


def host_us(call, inputs, timer, samples):
    times = []
    for k in range(samples):
        if k % 3 == 0:
            timer.wait()
        start = time.perf_counter()
        call(inputs)
        times.append((time.perf_counter() - start) * 1e6)
    timer.wait()
    return median(times)


def write_samples(folder, name, tensor):
    flat = tensor.detach().reshape(-1)
    write_floats(folder / f"{name}.f32", flat[::sample_step(flat.numel())].float().cpu().tolist())


def kernel_of(mode):
    """While it is entered, attention takes the kernel that `mode` names, or fails."""
    if mode not in ATTENTION:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, ATTENTION[mode]))


def run(request, device):
    try:
        with kernel_of(request["mode"]):
            return measured(request, device)
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()


def measured(request, device):
    folder, out = pathlib.Path(request["case"]), pathlib.Path(request["out"])
    out.mkdir(parents=True, exist_ok=True)
    case = json.loads((folder / "case.json").read_text())
    names = {"torch": torch, "F": F, "grouped_matmul": grouped_matmul}
    text, is_exact = (folder / "torch.txt").read_text(), request["mode"] == "exact"
    if is_exact:
        text = re.sub(r"torch\.b?float16", "torch.float32", text)
    exec(compile(text, str(folder / "torch.txt"), "exec"), names)
    function = names["function"]
    timer = Timer(device)
    with torch.no_grad():
        inputs = [tensor_of(folder, k, spec, device) for k, spec in enumerate(case["inputs"])]
        if is_exact:
            inputs = [x.float() if x.is_floating_point() else x for x in inputs]
            write_answer(out, case, inputs, function(*inputs))
            return {}
        torch._dynamo.reset()
        start = time.perf_counter()
        if request["mode"] == "default":
            function = torch.compile(function)
        elif request["mode"] == "max-autotune":
            function = torch.compile(function, mode="max-autotune")
        kept = []

        def call(arguments):
            kept[:] = function(*arguments)

        call(inputs)
        timer.wait()
        first_call_ms = (time.perf_counter() - start) * 1e3
        size = sum(t.numel() * t.element_size() for t in [*inputs, *kept])
        sets = [inputs]
        if case["rotate"]:
            count = min(max(-(-ROTATED_BYTES // size), 1), MOST_SETS)
            sets += [[t.clone() for t in inputs] for _ in range(count - 1)]
        result = measure(call, sets, timer, request["seconds"])
        result["host_us"] = host_us(call, inputs, timer, 10 if request["seconds"] < 0.1 else 301)
        result["first_call_ms"] = first_call_ms
        call(inputs)
        write_answer(out, case, inputs, kept)
    return result


def write_answer(out, case, inputs, results):
    for k, tensor in enumerate(results):
        write_samples(out, f"output{k}", tensor)
    for k, spec in enumerate(case["inputs"]):
        if spec["state"]:
            write_samples(out, f"state{k}", inputs[k])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("peer_torch: PyTorch sees no CUDA device")
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(json.dumps({"version": f"PyTorch {torch.__version__}", "device": name}), flush=True)
    for line in sys.stdin:
        try:
            reply = run(json.loads(line), device)
        except Exception as error:  # a case that a peer cannot run is a row of the report, not its end
            reply = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
