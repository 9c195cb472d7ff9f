"""Graphs that Heddle, PyTorch and JAX run alike: each op is noted once, as IR text and as an expression of either peer.

Expressions name values as Python does: x0, x1, ... are inputs, v0, v1, ... results of ops.
"""
import json

TORCH_DTYPES = {"f32": "torch.float32", "bf16": "torch.bfloat16", "f16": "torch.float16",
                "i64": "torch.int64", "i32": "torch.int32", "i8": "torch.int8"}
JAX_DTYPES = {"f32": "jnp.float32", "bf16": "jnp.bfloat16", "f16": "jnp.float16",
              "i64": "jnp.int64", "i32": "jnp.int32", "i8": "jnp.int8"}
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1}


def product(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


class Value:
    """A tensor of a graph: its name in Python and in IR text, its dtype and sizes."""

    def __init__(self, name, dtype, sizes):
        self.name, self.dtype, self.sizes = name, dtype, tuple(sizes)

    @property
    def bytes(self):
        return product(self.sizes) * BYTES[self.dtype]


def _attribute(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return str(value)


class Graph:
    """`bytes` and `flops` of one call: what it has to move and to compute at least."""

    def __init__(self, dtype="f32"):
        self.dtype = dtype
        self.inputs, self.hir, self.torch, self.jax, self.outputs = [], [], [], [], []
        self.states = {}
        self.kinds = {}
        self.count = 0
        self.flops = 0
        self.bytes = 0

    # Values.

    def input(self, *sizes, kind="normal", scale=1.0, dtype=None, state=False):
        value = Value(f"x{len(self.inputs)}", dtype or self.dtype, sizes)
        self.inputs.append(value)
        self.kinds[value.name] = {"kind": kind, "scale": scale, "state": state}
        self.bytes += value.bytes
        return value

    def result(self, sizes, dtype=None):
        value = Value(f"v{self.count}", dtype or self.dtype, sizes)
        self.count += 1
        return value

    def note(self, result, hir, torch, jax):
        """One op. `hir` is text after the equals sign; None leaves it to lines noted before."""
        if hir is not None:
            self.hir.append(f"%{result.name} = {hir}")
        self.torch.append(f"{result.name} = {torch}")
        self.jax.append(f"{result.name} = {jax}")
        return result

    def returns(self, *values):
        self.outputs = list(values)
        self.bytes += sum(value.bytes for value in values)
        return self

    # Ops of one operand.

    def unary(self, op, x, torch, jax):
        return self.note(self.result(x.sizes, x.dtype), f"{op}(%{x.name})", torch.format(x.name),
                         jax.format(x.name))

    def exp(self, x):
        return self.unary("exp", x, "torch.exp({})", "jnp.exp({})")

    def tanh(self, x):
        return self.unary("tanh", x, "torch.tanh({})", "jnp.tanh({})")

    def sigmoid(self, x):
        return self.unary("sigmoid", x, "torch.sigmoid({})", "jax.nn.sigmoid({})")

    def sqrt(self, x):
        return self.unary("sqrt", x, "torch.sqrt({})", "jnp.sqrt({})")

    def absolute(self, x):
        return self.unary("abs", x, "torch.abs({})", "jnp.abs({})")

    def negative(self, x):
        return self.unary("neg", x, "torch.neg({})", "jnp.negative({})")

    def relu(self, x):
        return self.unary("relu", x, "F.relu({})", "jax.nn.relu({})")

    def silu(self, x):
        return self.unary("silu", x, "F.silu({})", "jax.nn.silu({})")

    def gelu(self, x):
        return self.note(self.result(x.sizes, x.dtype), f'gelu(%{x.name}) {{approximate = "tanh"}}',
                         f"F.gelu({x.name}, approximate='tanh')",
                         f"jax.nn.gelu({x.name}, approximate=True)")

    # Ops of two.

    def binary(self, op, a, b, sign):
        """`b` is a value or a number."""
        if isinstance(b, Value):
            sizes, right, text = _broadcast(a.sizes, b.sizes), b.name, f"%{b.name}"
        else:
            sizes, right, text = a.sizes, repr(float(b)), f"{float(b)!r}: {a.dtype}"
        return self.note(self.result(sizes, a.dtype), f"{op}(%{a.name}, {text})",
                         f"{a.name} {sign} {right}", f"{a.name} {sign} {right}")

    def add(self, a, b):
        return self.binary("add", a, b, "+")

    def sub(self, a, b):
        return self.binary("sub", a, b, "-")

    def mul(self, a, b):
        return self.binary("mul", a, b, "*")

    def div(self, a, b):
        return self.binary("div", a, b, "/")

    def matmul(self, a, b):
        sizes = _broadcast(a.sizes[:-2], b.sizes[:-2]) + (a.sizes[-2], b.sizes[-1])
        self.flops += 2 * product(sizes) * a.sizes[-1]
        return self.note(self.result(sizes, a.dtype), f"matmul(%{a.name}, %{b.name})",
                         f"{a.name} @ {b.name}", f"{a.name} @ {b.name}")

    # Reductions, running sums and norms: over the last axis unless one is given.

    def reduce(self, op, x, torch, jax, axis=-1):
        axis %= len(x.sizes)
        kept = x.sizes[:axis] + x.sizes[axis + 1:]
        return self.note(self.result(kept, x.dtype), f"reduce_{op}(%{x.name}) {{axes = [{axis}]}}",
                         f"{torch}({x.name}, {axis})", f"{jax}({x.name}, {axis})")

    def reduce_sum(self, x, axis=-1):
        return self.reduce("sum", x, "torch.sum", "jnp.sum", axis)

    def reduce_max(self, x):
        return self.reduce("max", x, "torch.amax", "jnp.max")

    def cumsum(self, x):
        return self.note(self.result(x.sizes, x.dtype), f"cumsum(%{x.name}) {{axis = -1}}",
                         f"torch.cumsum({x.name}, -1)", f"jnp.cumsum({x.name}, -1)")

    def softmax(self, x):
        return self.note(self.result(x.sizes, x.dtype), f"softmax(%{x.name})",
                         f"torch.softmax({x.name}, -1)", f"jax.nn.softmax({x.name}, -1)")

    def layer_norm(self, x, scale, bias):
        return self.note(self.result(x.sizes, x.dtype),
                         f"layer_norm(%{x.name}, %{scale.name}, %{bias.name})",
                         f"F.layer_norm({x.name}, {x.name}.shape[-1:], {scale.name}, {bias.name}, 1e-5)",
                         f"layer_norm({x.name}, {scale.name}, {bias.name})")

    def rms_norm(self, x, scale):
        return self.note(self.result(x.sizes, x.dtype), f"rms_norm(%{x.name}, %{scale.name})",
                         f"F.rms_norm({x.name}, {x.name}.shape[-1:], {scale.name}, 1e-5)",
                         f"rms_norm({x.name}, {scale.name})")

    # Shapes.

    def reshape(self, x, *sizes):
        return self.note(self.result(sizes, x.dtype), f"reshape(%{x.name}) {{sizes = {_attribute(sizes)}}}",
                         f"{x.name}.reshape{tuple(sizes)}", f"{x.name}.reshape({tuple(sizes)})")

    def permute(self, x, *order):
        return self.note(self.result([x.sizes[k] for k in order], x.dtype),
                         f"permute(%{x.name}) {{perm = {_attribute(order)}}}",
                         f"{x.name}.permute{tuple(order)}", f"jnp.transpose({x.name}, {tuple(order)})")

    def slice_last(self, x, begin, end):
        low = [0] * (len(x.sizes) - 1) + [begin]
        high = list(x.sizes[:-1]) + [end]
        step = [1] * len(x.sizes)
        return self.note(self.result(x.sizes[:-1] + (end - begin,), x.dtype),
                         f"slice(%{x.name}) {{start = {_attribute(low)}, limit = {_attribute(high)}, "
                         f"stride = {_attribute(step)}}}",
                         f"{x.name}[..., {begin}:{end}]", f"{x.name}[..., {begin}:{end}]")

    def concat_last(self, a, b):
        axis = len(a.sizes) - 1
        return self.note(self.result(a.sizes[:-1] + (a.sizes[-1] + b.sizes[-1],), a.dtype),
                         f"concat(%{a.name}, %{b.name}) {{axis = {axis}}}",
                         f"torch.cat([{a.name}, {b.name}], -1)",
                         f"jnp.concatenate([{a.name}, {b.name}], -1)")

    def to(self, x, dtype):
        return self.note(self.result(x.sizes, dtype), f"convert(%{x.name}) {{dtype = {dtype}}}",
                         f"{x.name}.to({TORCH_DTYPES[dtype]})", f"{x.name}.astype({JAX_DTYPES[dtype]})")

    # Larger ones.

    def attention(self, q, k, v, causal=False):
        """q [B, H, L, D], k and v [B, Hk, M, D]; with `causal` L is M."""
        pairs = product(q.sizes[:3]) * k.sizes[2] * (0.5 if causal else 1)
        self.flops += int(4 * pairs * q.sizes[3])
        grouped = ", enable_gqa=True" if q.sizes[1] != k.sizes[1] else ""
        return self.note(self.result(q.sizes, q.dtype),
                         f"attention(%{q.name}, %{k.name}, %{v.name}) {{causal = {_attribute(causal)}}}",
                         f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name}, "
                         f"is_causal={causal}{grouped})",
                         f"attention({q.name}, {k.name}, {v.name}, {causal})")

    def conv(self, x, w, stride=1):
        """x [N, C, H, W], w [O, C, K, K], padded so that stride 1 keeps the sizes."""
        kernel = w.sizes[2]
        pad = kernel // 2
        out = [(size + 2 * pad - kernel) // stride + 1 for size in x.sizes[2:]]
        sizes = (x.sizes[0], w.sizes[0], *out)
        self.flops += 2 * product(sizes) * product(w.sizes[1:])
        window = (f"strides = [{stride}, {stride}], pads_low = [{pad}, {pad}], pads_high = [{pad}, {pad}], "
                  "dilations = [1, 1]")
        return self.note(self.result(sizes, x.dtype), f"conv(%{x.name}, %{w.name}) {{{window}, groups = 1}}",
                         f"F.conv2d({x.name}, {w.name}, None, {stride}, {pad})",
                         f"jax.lax.conv_general_dilated({x.name}, {w.name}, ({stride}, {stride}), "
                         f"[({pad}, {pad})] * 2)")

    def max_pool3(self, x):
        """Windows of 3 x 3, stride 2, padded by 1."""
        out = [(size + 2 - 3) // 2 + 1 for size in x.sizes[2:]]
        return self.note(self.result((*x.sizes[:2], *out), x.dtype),
                         f"max_pool(%{x.name}) {{kernel = [3, 3], strides = [2, 2], pads_low = [1, 1], "
                         "pads_high = [1, 1], dilations = [1, 1]}",
                         f"F.max_pool2d({x.name}, 3, 2, 1)",
                         f"jax.lax.reduce_window({x.name}, jnp.array(-jnp.inf, {x.name}.dtype), jax.lax.max, "
                         "(1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])")

    def mean_space(self, x):
        """[N, C, H, W] to [N, C]."""
        return self.note(self.result(x.sizes[:2], x.dtype), f"reduce_mean(%{x.name}) {{axes = [2, 3]}}",
                         f"{x.name}.mean((2, 3))", f"{x.name}.mean((2, 3))")

    def update_cache(self, cache, at, rows):
        """Writes `rows` [B, H, 1, D] at place `at` [1] of the state `cache` [B, H, M, D], and gives it."""
        batch, heads = cache.sizes[:2]
        b, h = self.result((batch, 1, 1), "i64"), self.result((1, heads, 1), "i64")
        self.hir.append(f"%{b.name} = iota() {{sizes = [{batch}, 1, 1], axis = 0, dtype = i64}}")
        self.hir.append(f"%{h.name} = iota() {{sizes = [1, {heads}, 1], axis = 1, dtype = i64}}")
        updated = self.note(
            self.result(cache.sizes, cache.dtype),
            f"index_put(%{cache.name}, %{rows.name}, %{b.name}, %{h.name}, %{at.name})",
            f"{cache.name}.index_copy_(2, {at.name}, {rows.name})",
            f"jax.lax.dynamic_update_slice({cache.name}, {rows.name}, (0, 0, {at.name}[0], 0))")
        self.states[cache.name] = updated
        return updated

    def top_experts(self, scores, k):
        """Weights [n, experts] of the k best of each row, which sum to 1; the others are 0."""
        rows, experts = scores.sizes
        values, places = self.result((rows, k), scores.dtype), self.result((rows, k), "i64")
        self.hir.append(f"%{values.name}, %{places.name} = topk(%{scores.name}) {{k = {k}}}")
        self.torch.append(f"{values.name}, {places.name} = torch.topk({scores.name}, {k})")
        self.jax.append(f"{values.name}, {places.name} = jax.lax.top_k({scores.name}, {k})")
        weights = self.softmax(values)
        none = self.mul(scores, 0.0)
        return self.note(
            self.result((rows, experts), scores.dtype),
            f"scatter_elements(%{none.name}, %{places.name}, %{weights.name}) {{axis = 1}}",
            f"{none.name}.scatter(1, {places.name}, {weights.name})",
            f"{none.name}.at[jnp.arange({rows})[:, None], {places.name}].set({weights.name})")

    def picked_experts(self, scores, k):
        """The k best of each row, in order of the experts: numbers of the choices [n * k] (choice c is of row c // k),
        their weights [n * k, 1], and where each expert's choices end."""
        rows, experts = scores.sizes
        values, places = self.result((rows, k), scores.dtype), self.result((rows, k), "i64")
        self.hir.append(f"%{values.name}, %{places.name} = topk(%{scores.name}) {{k = {k}}}")
        self.torch.append(f"{values.name}, {places.name} = torch.topk({scores.name}, {k})")
        self.jax.append(f"{values.name}, {places.name} = jax.lax.top_k({scores.name}, {k})")
        weights = self.reshape(self.softmax(values), rows * k, 1)
        choices = self.reshape(places, 1, rows * k)
        order = self.order(self.reshape(places, rows * k))
        numbers, ends = self.result((experts, 1), "i64"), self.result((experts,), "i64")
        upto = self.result((experts, rows * k), "i64")
        self.hir.append(f"%{numbers.name} = iota() {{sizes = [{experts}, 1], axis = 0, dtype = i64}}")
        self.hir.append(f"%{upto.name}_le = le(%{choices.name}, %{numbers.name})")
        self.hir.append(f"%{upto.name} = convert(%{upto.name}_le) {{dtype = i64}}")
        self.note(ends, f"reduce_sum(%{upto.name}) {{axes = [1]}}",
                  f"({choices.name} <= torch.arange({experts}, device={choices.name}.device)[:, None]).sum(1)",
                  f"({choices.name} <= jnp.arange({experts})[:, None]).sum(1)")
        return order, self.rows(weights, order), ends

    def order(self, x):
        """Positions of the elements of `x` [n] in ascending order."""
        values, order = self.result(x.sizes, x.dtype), self.result(x.sizes, "i64")
        self.hir.append(f"%{values.name}, %{order.name} = sort(%{x.name})")
        return self.note(order, None, f"torch.argsort({x.name}, stable=True)",
                         f"jnp.argsort({x.name}, stable=True)")

    def rows(self, x, places, divisor=1):
        """Rows of `x` picked by `places` // `divisor`."""
        index = places.name
        if divisor != 1:
            index = self.result(places.sizes, places.dtype).name
            self.hir.append(f"%{index} = div(%{places.name}, {divisor}: i64)")
            self.torch.append(f"{index} = {places.name} // {divisor}")
            self.jax.append(f"{index} = {places.name} // {divisor}")
        return self.note(self.result((*places.sizes, *x.sizes[1:]), x.dtype), f"gather(%{x.name}, %{index}) {{axis = 0}}",
                         f"{x.name}[{index}]", f"{x.name}[{index}]")

    def grouped_matmul(self, x, w, ends):
        """Rows of `x` [n, k] in groups that end at `ends`, each times its own of `w` [groups, k, m]."""
        rows, depth = x.sizes
        columns = w.sizes[2]
        self.flops += 2 * rows * depth * columns
        names = f"{x.name}, {w.name}, {ends.name}"
        return self.note(self.result((rows, columns), x.dtype),
                         f"grouped_matmul(%{x.name}, %{w.name}, %{ends.name})", f"grouped_matmul({names})",
                         f"jax.lax.ragged_dot({x.name}, {w.name}, "
                         f"jnp.diff({ends.name}, prepend=0).astype(jnp.int32))")

    # Texts.

    def ir_text(self):
        parameters = ", ".join(f'%{x.name}: {x.dtype}[{", ".join(map(str, x.sizes))}] "{x.name}"'
                               for x in self.inputs)
        lines = [f"graph @main({parameters}) {{"] + ["  " + line for line in self.hir]
        lines += [f"  write_back %{name} = %{value.name}" for name, value in self.states.items()]
        lines += ["  return " + ", ".join(f"%{value.name}" for value in self.outputs), "}", ""]
        return "\n".join(lines)

    def torch_text(self):
        return self._python(self.torch, [value.name for value in self.outputs])

    def jax_text(self):
        """States come back behind the outputs: JAX has no memory to write to."""
        states = [value.name for value in self.states.values()]
        return self._python(self.jax, [value.name for value in self.outputs] + states)

    def _python(self, lines, results):
        arguments = ", ".join(x.name for x in self.inputs)
        body = "".join(f"    {line}\n" for line in lines)
        return f"def function({arguments}):\n{body}    return ({', '.join(results)},)\n"

    def write(self, folder, name, rotate):
        """The folder of a case: bench/gpu/case.h says what lies in it."""
        folder.mkdir(parents=True, exist_ok=True)
        inputs = [{"name": x.name, "dtype": x.dtype, "sizes": list(x.sizes), **self.kinds[x.name]}
                  for x in self.inputs]
        document = {"name": name, "rotate": rotate, "bytes": self.bytes, "flops": self.flops,
                    "inputs": inputs, "outputs": len(self.outputs), "dtype": self.dtype}
        (folder / "case.json").write_text(json.dumps(document, indent=1))
        (folder / "graph.hir").write_text(self.ir_text())
        (folder / "torch.txt").write_text(self.torch_text())
        (folder / "jax.txt").write_text(self.jax_text())


def _broadcast(a, b):
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    return tuple(max(x, y) if min(x, y) == 1 else x for x, y in zip(a, b))
