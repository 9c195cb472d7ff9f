"""One model at a time through Heddle and ONNX Runtime, on one thread or --threads: same outputs, and which is faster; with
--openvino the times of OpenVINO, too."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

import graphs
import peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TURN_SECONDS, MIN_CALLS = 0.3, 5
COMMAND_SECONDS = 300


def write_case(folder, model, inputs, outputs):
    """A case in the layout of the ONNX backend test. Its model is a link."""
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(model)
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for k, (name, array) in enumerate(arrays.items()):
            onnx.save_tensor(onnx.numpy_helper.from_array(np.asarray(array), name), str(data / f"{kind}_{k}.pb"))


class OnnxRuntime:
    """A session, called with its inputs in place where it lets itself be: with strings, and with outputs
    whose rank is declared wrong, it does not."""

    def __init__(self, path, inputs, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        self.outputs = dict(zip(names, session.run(names, inputs)))
        self.call = lambda: session.run(names, inputs)
        binding = session.io_binding()
        with contextlib.suppress(RuntimeError, ValueError):
            for name, array in inputs.items():
                binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
            for name in names:
                binding.bind_output(name)
            for _ in range(2):  # the second call is the first into outputs that are there
                session.run_with_iobinding(binding)
            self.call = lambda: session.run_with_iobinding(binding)

    def turn(self):
        """The median of calls in microseconds."""
        times, end = [], time.perf_counter() + TURN_SECONDS
        while len(times) < MIN_CALLS or time.perf_counter() < end:
            start = time.perf_counter()
            self.call()
            times.append((time.perf_counter() - start) * 1e6)
        return statistics.median(times)


class OpenVino(peers.Process):
    """A process of its own that holds the model at the sizes of its inputs; some models end it."""

    def __init__(self, path, inputs, threads):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        graphs.write_case(folder / "case", inputs)
        command = peers.python_command("openvino")
        # Data beside a model are found from the model's own path.
        super().__init__(command, folder, threads, model=path)

    def turn(self):
        return statistics.median(self.ask(f"turn {TURN_SECONDS}")["samples_us"])


class Heddle:
    """The command, with the inputs of a case, and with a cache of kernels that is not the user's."""

    def __init__(self, command, case, inputs, threads):
        self.command, self.model, self.threads = command, str(case / "model.onnx"), str(threads)
        self.inputs = [f"--input={name}={case}/test_data_set_0/input_{k}.pb" for k, name in enumerate(inputs)]

    def call(self, action, *options):
        """What a command prints. Raises RuntimeError with what it says is wrong."""
        command = [self.command, action, self.model, "--threads", self.threads, *self.inputs, *options]
        environment = os.environ | {"HEDDLE_CACHE_DIR": str(ROOT / ".cache/heddle")}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no result within {COMMAND_SECONDS} s") from None
        if done.returncode < 0:
            raise RuntimeError(f"crashed with signal {-done.returncode}: {done.stderr.strip()}")
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.call("run", "--output-dir", folder)
            files = sorted(pathlib.Path(folder).iterdir(), key=lambda file: int(file.name.split("_")[0]))
            return [np.load(file) for file in files]

    def turn(self, expected_us):
        iterations = max(MIN_CALLS, min(2000, int(TURN_SECONDS * 1e6 / expected_us)))
        return json.loads(self.call("bench", "--json", "--iterations", str(iterations)))["p50_us"]


def distance(got, want):
    """The largest difference over the largest magnitude; for what has no magnitudes, the share that differs."""
    if want.dtype == object:  # strings
        got = got.astype(object) if got.dtype.kind == "U" else got
    if got.shape != want.shape or got.dtype != want.dtype:
        raise RuntimeError(f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}")
    if want.size == 0:
        return 0.0
    if want.dtype.kind not in "fiu":
        return float((got != want).mean())
    got, want = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return float("inf")
    largest = np.abs(want[finite]).max(initial=0)
    return float(np.abs(got[finite] - want[finite]).max(initial=0) / (largest or 1))


def compare(row, args, case, model, make_inputs, tolerance_of, timed=True):
    """Fills a row: `verdict`, `distance` and `tolerance` of the output that is worst off, and the times. The case, with
    ONNX Runtime's outputs, is left in a folder, for `heddle verify`."""
    try:
        inputs = make_inputs()
        peer = OnnxRuntime(model, inputs, args.threads)
    except Exception as error:  # of protobuf, numpy or ONNX Runtime: the model does not count
        row["verdict"] = "not counted, ONNX Runtime: " + one_line(error)
        return
    write_case(case, model, inputs, peer.outputs)
    heddle = Heddle(args.heddle, case, inputs, args.threads)
    try:
        pairs = zip(heddle.outputs(), peer.outputs.values(), strict=True)
        found = [(distance(got, want), tolerance_of(want)) for got, want in pairs]
        worst = max(range(len(found)), key=lambda k: found[k][0] - found[k][1])
        row["distance"], row["tolerance"] = found[worst]
        row["verdict"] = "agrees" if row["distance"] <= row["tolerance"] else f"differs, output {worst}"
        # ONNX Runtime takes strings one by one, Heddle their codes.
        has_strings = any(array.dtype == object for array in inputs.values())
        if timed and not args.no_times and not has_strings:
            with openvino_of(model, inputs, args.threads) if args.openvino else contextlib.nullcontext() as openvino:
                measure(row, heddle, peer, openvino, args.rounds)
    except (RuntimeError, ValueError) as error:
        row["verdict"] = one_line(error)


@contextlib.contextmanager
def openvino_of(model, inputs, threads):
    """None where OpenVINO does not take the model."""
    try:
        openvino = OpenVino(model, inputs, threads)
    except RuntimeError:
        yield None
        return
    with contextlib.closing(openvino):
        yield openvino


def measure(row, heddle, peer, openvino, rounds):
    """In each round Heddle has its turn between two of its peer, and OpenVINO one before."""
    theirs, ours, ratios, openvinos = [peer.turn()], [], [], []
    for _ in range(rounds):
        if openvino:
            openvinos.append(openvino.turn())
        ours.append(heddle.turn(theirs[-1]))
        theirs.append(peer.turn())
        ratios.append((theirs[-2] + theirs[-1]) / 2 / ours[-1])
    row.update(heddle_us=statistics.median(ours), peer_us=statistics.median(theirs), ratio=statistics.median(ratios))
    if openvino:
        row.update(openvino_us=statistics.median(openvinos),
                   openvino_ratio=statistics.median(one / other for one, other in zip(openvinos, ours)))


def one_line(error):
    return re.sub(r"\s+", " ", str(error)).replace(f"{ROOT}/", "").replace("|", "/")[:300]


def number(row, key, form):
    return format(row[key], form) if key in row else ""


def measured(row):
    """The cells of a table that every row has."""
    return " | ".join([number(row, "heddle_us", ",.0f"), number(row, "peer_us", ",.0f"), number(row, "ratio", ".2f"),
                       number(row, "openvino_us", ",.0f"), number(row, "openvino_ratio", ".2f"),
                       number(row, "distance", ".0e"), number(row, "tolerance", ".0e"), row["verdict"]])


MEASURED = "Heddle, us | ONNX Runtime, us | ratio | OpenVINO, us | ratio | difference | allowed | "
RULES = "---|" * (MEASURED.count("|") + 1)


def summary(rows, what):
    counted = [row for row in rows if not row["verdict"].startswith("not counted")]
    ratios = [row["ratio"] for row in counted if "ratio" in row]
    text = (f"{len(counted)} {what}, {len(rows) - len(counted)} more not counted; "
            f"{sum(row['verdict'] == 'agrees' for row in counted)} agree with ONNX Runtime")
    if ratios:
        text += (f"; its time over Heddle's, geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}; "
                 f"{what} where Heddle is behind: {sum(ratio < 1 for ratio in ratios)}")
    ratios = [row["openvino_ratio"] for row in counted if "openvino_ratio" in row]
    if ratios:
        text += (f". OpenVINO's time over Heddle's, geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}; "
                 f"{what} where Heddle is behind: {sum(ratio < 1 for ratio in ratios)}")
    return text + "."


def add_options(parser, name, rounds):
    parser.add_argument("--heddle", default=str(ROOT / "build/release/bin/heddle"))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--openvino", action="store_true", help="OpenVINO's times, too")
    parser.add_argument("--write", action="store_true", help=f"write bench/results/<date>_{name}.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--list", action="store_true", help="print what there is")


def write_report(args, name, title, load, text):
    """`load`: the load averages at the start."""
    method = f"""{peers.processor()}; load averages {load} at the start and {peers.load_average()} at the end.
ONNX Runtime {onnxruntime.__version__}, {args.threads} thread{"s" * (args.threads > 1)} each. Times are medians of turns of {TURN_SECONDS} s, Heddle's
between two of ONNX Runtime's; a ratio is the median of {args.rounds} rounds. A difference is the largest one over the
largest magnitude of that output. `bench/peers/{name}.py` writes this file and says how inputs are made."""
    path = ROOT / f"bench/results/{args.date}_{name}.md"
    path.write_text(f"# {title}\n\n{method}\n\n{text}\n")
    print(path)
