"""The elements of outputs that are compared, in files of little-endian f32, and the comparison."""
import array
import math

try:
    import numpy
except ImportError:  # it is faster, no more
    numpy = None

SAMPLES = 1 << 17  # as kSamples in case.h


def sample_step(count):
    """Every so many elements of a tensor of `count` are compared, from the first on: SAMPLES of them at most."""
    return max(count // SAMPLES, 1) if count > SAMPLES else 1


def write_floats(path, numbers):
    path.write_bytes(array.array("f", numbers[:SAMPLES]).tobytes())


def read_floats(path):
    numbers = array.array("f")
    numbers.frombytes(path.read_bytes())
    return numbers


def distance(got, want):
    """Of all elements together: the norm of got - want, in norms of want; infinite where one is not finite."""
    if len(got) != len(want) or not all(math.isfinite(x) for x in got) or not all(math.isfinite(x) for x in want):
        return math.inf
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / max(sum(b * b for b in want), 1e-60))


def disagreement(got, want):
    """The least r with |got - want| <= r |want| + r max |want| for each element; infinite where one is NaN alone."""
    if len(got) != len(want):
        return math.inf
    if numpy is not None:
        return _disagreement_of_arrays(numpy.asarray(got, dtype=float), numpy.asarray(want, dtype=float))
    largest = max((abs(x) for x in want if math.isfinite(x)), default=0.0)
    worst = 0.0
    for a, b in zip(got, want):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.inf
        worst = max(worst, abs(a - b) / max(abs(b) + largest, 1e-30))
    return worst


def _disagreement_of_arrays(got, want):
    largest = numpy.max(numpy.abs(want), initial=0.0, where=numpy.isfinite(want))
    differ = ~((got == want) | (numpy.isnan(got) & numpy.isnan(want)))
    got, want = got[differ], want[differ]
    if not numpy.isfinite(got).all() or not numpy.isfinite(want).all():
        return math.inf
    return float(numpy.max(numpy.abs(got - want) / numpy.maximum(numpy.abs(want) + largest, 1e-30), initial=0.0))
