"""The graphs of the GPU suite, by part. Every case has a tiny twin, which the simulated device can run."""
import math

from graph import Graph

#: The most telling first, should time run out.
SIZES = {"256m": 1 << 28, "16m": 1 << 24, "1g": 1 << 30, "1m": 1 << 20}
TINY_SIZES = {"tiny": 1 << 9}


class Case:
    """`by_norm`: answers are compared as a whole, as single elements may be quite different ones where rounding decides
    between two experts."""

    def __init__(self, name, graph, tolerance, rotate=False, modes=("eager", "default", "max-autotune"),
                 jax=True, by_norm=False):
        self.name, self.graph, self.tolerance, self.rotate, self.by_norm = name, graph, tolerance, rotate, by_norm
        self.modes, self.jax = modes, jax


# Kernels bound by memory.

def cheap8(g, count):
    """8 additions and multiplications."""
    z, y = g.input(count), g.input(count)
    for k in range(4):
        z = g.add(g.mul(z, 0.9 + 0.01 * k), y)
    return g.returns(z)


def mixed20(g, count):
    """20 ops, four of them transcendental."""
    x = g.input(count)
    t = g.tanh(g.add(g.mul(x, 1.1), 0.1))
    s = g.sigmoid(g.mul(t, x))
    e = g.mul(g.exp(g.negative(g.add(s, t))), 0.5)
    a = g.add(g.absolute(g.sub(g.gelu(e), x)), 1e-3)
    b = g.div(g.mul(g.sqrt(a), s), a)
    return g.returns(g.sub(g.add(g.mul(b, 0.5), t), g.mul(s, 0.25)))


def _rows(count):
    columns = 64 if count < 1 << 16 else 1024 if count <= 1 << 20 else 4096
    return count // columns, columns


def softmax(g, count):
    return g.returns(g.softmax(g.input(*_rows(count), scale=3.0)))


def layer_norm(g, count):
    rows, columns = _rows(count)
    x = g.input(rows, columns)
    return g.returns(g.layer_norm(x, g.input(columns, kind="ones"), g.input(columns, scale=0.1)))


def rms_norm(g, count):
    rows, columns = _rows(count)
    return g.returns(g.rms_norm(g.input(rows, columns), g.input(columns, kind="ones")))


def _rotated(g, x, cos, sin):
    """Halves of the last axis turned against each other."""
    half = x.sizes[-1] // 2
    low, high = g.slice_last(x, 0, half), g.slice_last(x, half, 2 * half)
    return g.add(g.mul(x, cos), g.mul(g.concat_last(g.negative(high), low), sin))


def rotary(g, count):
    heads, width = (2, 8) if count < 1 << 16 else (32, 128)
    tokens = count // (heads * width)
    x, cos, sin = g.input(tokens, heads, width), g.input(tokens, 1, width), g.input(tokens, 1, width)
    return g.returns(_rotated(g, x, cos, sin))


def row_sum(g, count):
    return g.returns(g.reduce_sum(g.input(*_rows(count), scale=0.1)))


def row_max(g, count):
    return g.returns(g.reduce_max(g.input(*_rows(count))))


def column_sum(g, count):
    """Of few columns."""
    return g.returns(g.reduce_sum(g.input(count // 64, 64, scale=0.1), axis=0))


def cumsum(g, count):
    return g.returns(g.cumsum(g.input(*_rows(count), scale=0.1)))


def transposed_add(g, count):
    rows, columns = _rows(count)
    return g.returns(g.add(g.permute(g.input(rows, columns), 1, 0), g.input(columns, rows)))


MEMORY = {f.__name__: f
          for f in (cheap8, mixed20, softmax, layer_norm, rms_norm, rotary, row_sum, row_max, column_sum,
                    cumsum, transposed_add)}


def memory_cases(tiny):
    for size, count in (TINY_SIZES if tiny else SIZES).items():
        for name, make in MEMORY.items():
            for dtype, tolerance in (("f32", 1e-4), ("bf16", 3e-2)):
                # Graphs copy their inputs where those move, so peers go without in this part.
                # Where a difference that mixed20 takes the root of is near 0, rounding to 16 bits decides.
                rounded = name == "mixed20" and dtype == "bf16"
                yield Case(f"{name}_{dtype}_{size}", make(Graph(dtype), count), 0.1 if rounded else tolerance,
                           rotate=True, by_norm=rounded,
                           modes=("eager", "default") if size in ("256m", "tiny") else ("eager",),
                           jax=size in ("16m", "tiny"))


# Products and attention.

def matmul_cases(tiny):
    shapes = [(m, n, k) for n, k in ((4096, 4096), (6144, 4096), (14336, 4096), (4096, 14336), (8192, 8192))
              for m in (1, 16, 64, 256, 1024, 4096)]
    for m, n, k in [(1, 32, 48), (20, 33, 40)] if tiny else shapes:
        g = Graph("bf16")
        g.returns(g.matmul(g.input(m, k), g.input(k, n, scale=1 / math.sqrt(k))))
        yield Case(f"matmul_{m}x{n}x{k}", g, 2e-2, rotate=True, modes=("eager",), jax=False)


def weights8_cases(tiny):
    """Activations of 16 bits by weights of 8, with a scale for each column: of one row bytes of weights are all that counts."""
    shapes = [(m, n, k) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336)) for m in (1, 4, 16, 64, 1024)]
    for m, n, k in [(1, 32, 48), (20, 33, 40)] if tiny else shapes:
        for turned in (False, True):
            g = Graph("bf16")
            x = g.input(m, k)
            w = g.input(*((n, k) if turned else (k, n)), dtype="i8", scale=30.0)
            scale = g.input(*((n, 1) if turned else (n,)), scale=1 / (30 * math.sqrt(k)))
            w = g.mul(g.to(w, "bf16"), scale)
            g.returns(g.matmul(x, g.permute(w, 1, 0) if turned else w))
            yield Case(f"weights8_{'turned_' if turned else ''}{m}x{n}x{k}", g, 2e-2, rotate=True,
                       modes=("eager", "max-autotune"), jax=False)


def attention_cases(tiny):
    shapes = {"prefill_2k": (4, 32, 8, 2048, 2048, 128, True), "prefill_16k": (1, 32, 8, 16384, 16384, 128, True),
              "encoder_512": (32, 12, 12, 512, 512, 64, False), "decode_4k": (32, 32, 8, 1, 4096, 128, False),
              "decode_32k": (4, 32, 8, 1, 32768, 128, False)}
    if tiny:
        shapes = {"prefill": (1, 4, 2, 9, 9, 8, True), "decode": (2, 4, 2, 1, 12, 8, False)}
    for name, (batch, heads, shared, queries, keys, width, causal) in shapes.items():
        g = Graph("bf16")
        q = g.input(batch, heads, queries, width)
        k, v = (g.input(batch, shared, keys, width) for _ in range(2))
        yield Case(f"attention_{name}", g.returns(g.attention(q, k, v, causal)), 2e-2,
                   modes=("eager", "flash", "efficient", "cudnn", "math"), jax=False)


def conv_cases(tiny):
    """Convolutions of ResNet-50, of 16 images, with the scale, shift and relu that follow: x, channels out, kernel, stride."""
    shapes = [(64, 56, 64, 1, 1), (64, 56, 256, 1, 1), (64, 56, 64, 3, 1), (3, 224, 64, 7, 2), (128, 56, 128, 3, 2),
              (128, 28, 128, 3, 1), (512, 28, 1024, 1, 2), (256, 14, 256, 3, 1), (256, 14, 1024, 1, 1),
              (512, 7, 512, 3, 1), (512, 7, 2048, 1, 1)]
    for channels, side, out, kernel, stride in [(20, 5, 16, 3, 1), (16, 6, 18, 1, 1)] if tiny else shapes:
        g = Graph("bf16")
        w = g.input(out, channels, kernel, kernel, scale=1 / math.sqrt(channels * kernel * kernel))
        y = g.conv(g.input(2 if tiny else 16, channels, side, side), w, stride)
        y = g.relu(g.add(g.mul(y, g.input(out, 1, 1, kind="ones")), g.input(out, 1, 1, scale=0.1)))
        yield Case(f"conv_{kernel}x{kernel}_{channels}_to_{out}_at_{side}" + (f"_by_{stride}" if stride > 1 else ""),
                   g.returns(y), 3e-2, rotate=True, modes=("eager", "default"), jax=False)


# Model graphs.

def _weight(g, rows, columns):
    return g.input(rows, columns, scale=1 / math.sqrt(rows))


def _heads(g, x, batch, length, heads, width):
    return g.permute(g.reshape(x, batch, length, heads, width), 0, 2, 1, 3)


def _gated(g, x, width, inner):
    gate, up = g.matmul(x, _weight(g, width, inner)), g.matmul(x, _weight(g, width, inner))
    return g.matmul(g.mul(g.silu(gate), up), _weight(g, inner, width))


def transformer_block(g, batch, length, width, heads, shared, inner, cache=0):
    """With `cache` places, a step of one token a sequence that writes its keys and values into the last place."""
    head = width // heads
    x = g.input(batch, length, width)
    cos, sin = g.input(length, head), g.input(length, head)
    y = g.rms_norm(x, g.input(width, kind="ones"))
    q = _heads(g, g.matmul(y, _weight(g, width, width)), batch, length, heads, head)
    k, v = (_heads(g, g.matmul(y, _weight(g, width, shared * head)), batch, length, shared, head)
            for _ in range(2))
    q, k = _rotated(g, q, cos, sin), _rotated(g, k, cos, sin)
    if cache:
        at = g.input(1, kind="index", scale=cache, dtype="i64")
        k, v = (g.update_cache(g.input(batch, shared, cache, head, state=True), at, rows) for rows in (k, v))
    y = g.permute(g.attention(q, k, v, causal=not cache), 0, 2, 1, 3)
    y = g.matmul(g.reshape(y, batch, length, width), _weight(g, width, width))
    x = g.add(x, y)
    y = _gated(g, g.rms_norm(x, g.input(width, kind="ones")), width, inner)
    return g.returns(g.add(x, y))


def moe_layer(g, tokens, width, inner, experts, chosen):
    """Every expert on every token, weighted by its share, which is 0 for all but the best `chosen`."""
    x = g.input(tokens, width)
    shares = g.top_experts(g.matmul(x, _weight(g, width, experts)), chosen)
    up = g.input(experts, width, inner, scale=1 / math.sqrt(width))
    down = g.input(experts, inner, width, scale=1 / math.sqrt(inner))
    y = g.matmul(g.gelu(g.matmul(g.reshape(x, 1, tokens, width), up)), down)
    shares = g.reshape(g.permute(shares, 1, 0), experts, tokens, 1)
    y = g.permute(g.mul(y, shares), 1, 2, 0)
    return g.returns(g.add(x, g.reduce_sum(y)))


def moe_grouped(g, tokens, width, inner, experts, chosen):
    """The same layer, each expert on the tokens that chose it: choices are put in the order of their experts."""
    x = g.input(tokens, width)
    order, shares, ends = g.picked_experts(g.matmul(x, _weight(g, width, experts)), chosen)
    up = g.input(experts, width, inner, scale=1 / math.sqrt(width))
    down = g.input(experts, inner, width, scale=1 / math.sqrt(inner))
    y = g.gelu(g.grouped_matmul(g.rows(x, order, chosen), up, ends))
    y = g.rows(g.mul(g.grouped_matmul(y, down, ends), shares), g.order(order))
    y = g.permute(g.reshape(y, tokens, chosen, width), 0, 2, 1)
    return g.returns(g.add(x, g.reduce_sum(y)))


def resnet50(g, batch, side, width):
    """Batch norm is a scale and a shift of each channel. `width` 64 is the model's."""
    def convolved(x, out, kernel, stride=1, relu=True):
        fan = x.sizes[1] * kernel * kernel
        y = g.conv(x, g.input(out, x.sizes[1], kernel, kernel, scale=1 / math.sqrt(fan)), stride)
        y = g.add(g.mul(y, g.input(out, 1, 1, kind="ones")), g.input(out, 1, 1, scale=0.1))
        return g.relu(y) if relu else y

    x = g.max_pool3(convolved(g.input(batch, 3, side, side), width, 7, 2))
    for stage, blocks in enumerate([3, 4, 6, 3] if width == 64 else [1, 1]):
        inner = width << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            y = convolved(convolved(x, inner, 1), inner, 3, stride)
            y = convolved(y, 4 * inner, 1, relu=False)
            past = convolved(x, 4 * inner, 1, stride, relu=False) if block == 0 else x
            x = g.relu(g.add(y, past))
    classes = 1000 if width == 64 else 10
    return g.returns(g.matmul(g.mean_space(x), _weight(g, x.sizes[1], classes)))


def encoder(g, layers, length, width, heads):
    x = g.input(1, length, width)
    head = width // heads
    for _ in range(layers):
        q, k, v = (_heads(g, g.matmul(x, _weight(g, width, width)), 1, length, heads, head) for _ in range(3))
        y = g.reshape(g.permute(g.attention(q, k, v), 0, 2, 1, 3), 1, length, width)
        x = g.add(x, g.matmul(y, _weight(g, width, width)))
        x = g.layer_norm(x, g.input(width, kind="ones"), g.input(width, scale=0.1))
        y = g.gelu(g.matmul(x, _weight(g, width, 4 * width)))
        x = g.add(x, g.matmul(y, _weight(g, 4 * width, width)))
        x = g.layer_norm(x, g.input(width, kind="ones"), g.input(width, scale=0.1))
    return g.returns(x)


def model_cases(tiny):
    block = (1, 5, 16, 4, 2, 24) if tiny else (1, 2048, 4096, 32, 8, 14336)
    step = (2, 1, 16, 4, 2, 24, 6) if tiny else (16, 1, 4096, 32, 8, 14336, 4096)
    moe = (6, 16, 24, 4, 2) if tiny else (1024, 2048, 4096, 8, 2)
    images = (1, 16, 4) if tiny else (16, 224, 64)
    yield Case("transformer_block", transformer_block(Graph("bf16"), *block), 5e-2)
    yield Case("decode_step", transformer_block(Graph("bf16"), *step), 5e-2)
    yield Case("moe_layer", moe_layer(Graph("bf16"), *moe), 0.15, by_norm=True)
    yield Case("moe_grouped", moe_grouped(Graph("bf16"), *moe), 0.15, by_norm=True)
    yield Case("resnet50", resnet50(Graph("bf16"), *images), 8e-2)


def host_cases(tiny):
    """Small layers: what a call costs the host."""
    yield Case("encoder_layer_small", encoder(Graph(), 1, 4 if tiny else 32, 16 if tiny else 128, 4), 1e-3)


def start_cases(tiny):
    """An engine from its text to the first answer, without kernels on disk and with them."""
    sizes = (2, 4, 16, 4) if tiny else (12, 128, 768, 12)
    yield Case("encoder_12_layers", encoder(Graph(), *sizes), 2e-3, modes=("default",), jax=False)


PARTS = {"memory": memory_cases, "matmul": matmul_cases, "weights8": weights8_cases, "attention": attention_cases,
         "conv": conv_cases, "models": model_cases, "host": host_cases, "start": start_cases}
