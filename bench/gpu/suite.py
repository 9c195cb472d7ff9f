"""The GPU suite: tests on the machine's own driver, compute-sanitizer, figures beside those of peers on the same graphs.

usage: run_gpu_suite --out DIR [--device cuda|cuda-sim] [--budget SECONDS] [--parts NAME,...] [--peers NAME,...]
                     [--peer-device cuda|cpu] [--suites REGEX] [--cases REGEX] [--modes NAME,...] [--seconds S] [--tiny] [--merge FILE]...

Needs Python 3.8 and, for figures, a CUDA driver with NVRTC; takes of PyTorch, JAX and compute-sanitizer what is there.
Writes DIR/<date>_gpu_<device>.json and .md, anew after each case, so that what was measured is kept whatever comes; and
DIR/log.txt. Each part has its share of the budget, and what it leaves goes to those behind it.

--merge takes a table of an earlier run on the same device: its rows stand where this run has none.

Exit codes: 0 all was run and is right; 1 something failed, and the table says what; 2 wrong usage; 3 nothing failed, but
time ran out before all was run.
"""
import argparse
import concurrent.futures
import datetime
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import cases
import report
import samples
from processes import Server, Timeout, end_session

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Shares of the budget, by part.
SHARES = {"copy": 1, "tests": 20, "sanitizer": 8, "memory": 30, "matmul": 12, "weights8": 8, "attention": 4, "conv": 5,
          "models": 30, "host": 3, "start": 3}
#: Binaries of tests and the test suites of theirs that are about CUDA.
TESTS = {"tests_device": ".", "tests_cuda": ".", "tests_jit": "Cuda", "tests_fuzz": "CudaFuzz"}
#: What compute-sanitizer, which makes a program tens of times slower, looks at.
SANITIZED = {"memcheck": ["CudaEngine.AgreesWithTheEvaluator", "CudaEngine.RunsTheEncoder", "*CudaCorpus*"],
             # What shared memory is used for: products and attention with and without tensor cores, reductions, scans, sorts.
             "racecheck": ["CudaEngine.AgreesWithTheEvaluator",
                           *(f"*CudaCorpus*/{name}" for name in ("mlp", "mlp_half", "mlp_bytes", "causal", "flash", "norms",
                                                                 "reductions", "conv_product", "scans_by_blocks", "sorts"))]}
SECONDS_A_CASE = 0.3
#: Ways of PyTorch to run a case: eager mode, and with a kernel of attention of its own; compiled.
MODES = ["eager", "flash", "efficient", "cudnn", "math", "default", "max-autotune"]
TINY_SECONDS = 0.01
#: What a peer has for a case at least, and else three tenths of its part: a compile that takes long is not all there is.
LEAST_ANSWER_SECONDS = 20
#: Tests that one process runs, unless it has to stop before.
TESTS_A_PROCESS = 24
#: Processes that run tests, or compile cases, at a time: each has its own context on the device.
MOST_PROCESSES = 14


class Suite:
    def __init__(self, args, out, work):
        self.args, self.out, self.work = args, out, work
        self.tiny = args.tiny or args.device == "cuda-sim"
        self.seconds = TINY_SECONDS if self.tiny else args.seconds
        self.end = time.monotonic() + args.budget
        self.deadline = self.end
        self.log = open(out / "log.txt", "w")
        self.peers = {}
        self.lock = threading.Lock()
        self.processes = max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) - 2))
        self.environment = self.make_environment()
        self.measurer = self.server()
        self.ready = {}
        self.copies = {}
        self.memory_cases = {case.name for case in cases.memory_cases(self.tiny)}
        self.results = {"date": datetime.date.today().isoformat(), "device_kind": args.device, "tiny": self.tiny,
                        "budget_seconds": args.budget, "bundle": manifest(), "facts": {}, "peers": {},
                        "parts": {}, "failures": [], "unfinished": []}

    def make_environment(self):
        """The same for every process, whatever the caller's is."""
        environment = dict(os.environ)
        environment.update({"HEDDLE_TEST_DEVICE": self.args.device,
                            "HEDDLE_CACHE_DIR": str(self.work / "cache"), "TMPDIR": str(self.work),
                            "HEDDLE_CUDA_SIM_PATH": str(ROOT / "lib/libheddle_cuda_sim.so"),
                            "HEDDLE_CUDA_SIM_ROOT": str(ROOT / "cuda_sim"),
                            "HEDDLE_CUDA_SIM_CACHE": str(self.work / "sim_cache")})
        nvrtc = find_nvrtc()
        if "HEDDLE_NVRTC_PATH" not in environment and nvrtc:
            environment["HEDDLE_NVRTC_PATH"] = nvrtc
        return environment

    # Processes.

    def say(self, text):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, **variables):
        """@return exit code and output. @raises Timeout: the part's time is up."""
        limit = self.left()
        if limit <= 0:
            raise Timeout("no time is left")
        process = subprocess.Popen([str(word) for word in command], env={**self.environment, **variables},
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   cwd=self.work, start_new_session=True)
        try:
            text = process.communicate(timeout=limit)[0].decode(errors="replace")
        except BaseException as error:  # an interrupt, too, is not the children's own
            end_session(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise Timeout(f"{pathlib.Path(command[0]).name}: not done after {limit:.0f} s") from None
        with self.lock:
            self.log.write(f"$ {' '.join(map(str, command))}\n{text}\nexit {process.returncode}\n")
        return process.returncode, text

    def server(self):
        return Server([ROOT / "bin/heddle_gpu_measure", "serve"], self.log, self.environment, self.work)

    def measure(self, command, **options):
        """What heddle_gpu_measure answers. @raises RuntimeError with what it says went wrong."""
        return answered(self.measurer, {"command": command, **options}, self.left())

    def measure_anew(self, command, **options):
        """The same by a process that does nothing else."""
        words = [ROOT / "bin/heddle_gpu_measure", command]
        for key, value in options.items():
            words += [f"--{key}", value]
        code, text = self.run(words)
        if code != 0:
            raise RuntimeError(text.strip()[-500:] or f"exit {code}")
        return json.loads(text.strip().splitlines()[-1])

    def failed(self, what):
        self.results["failures"].append(what)
        self.say(f"FAILED {what}")

    def unfinished(self, what):
        if what in self.results["unfinished"]:
            return
        self.results["unfinished"].append(what)
        self.say(f"not run for want of time: {what}")

    def save(self):
        name = f"{self.results['date']}_gpu_{slug(self.results['facts'].get('device', self.args.device))}"
        results = report.merged(self.results, [json.loads(pathlib.Path(p).read_text()) for p in self.args.merge])
        for suffix, text in ((".json", json.dumps(results, indent=1) + "\n"), (".md", report.markdown(results))):
            (self.out / "unfinished.tmp").write_text(text)
            os.replace(self.out / "unfinished.tmp", self.out / (name + suffix))

    # Parts.

    def run_all(self, parts):
        try:
            self.results["facts"] = {**self.measure("facts", device=self.args.device), **self.driver_facts()}
        except (RuntimeError, Timeout) as error:
            self.failed(f"the device: {error}")
            self.save()
            return
        self.say(json.dumps(self.results["facts"]))
        self.peers = {name: Peer(name, self) for name in self.args.peers}
        preparer = Preparer(self, parts)
        for k, part in enumerate(parts):
            if part in cases.PARTS:
                self.settle()
            share = SHARES[part] / sum(SHARES[name] for name in parts[k:])
            self.deadline = time.monotonic() + share * (self.end - time.monotonic())
            self.answer_seconds = max(0.3 * self.left(), LEAST_ANSWER_SECONDS)
            begin = time.monotonic()
            self.say(f"== {part}, {self.left():.0f} s")
            try:
                getattr(self, part, lambda: self.case_part(part))()
            except Timeout as error:
                self.unfinished(f"{part}: {error}")
            except Exception as error:  # the parts behind it run all the same
                self.failed(f"{part}: {type(error).__name__}: {error}")
            self.results["parts"].setdefault(part, {})["seconds"] = round(time.monotonic() - begin, 1)
            self.save()
        preparer.stop()
        self.measurer.stop()
        for peer in self.peers.values():
            peer.stop()

    def settle(self):
        """Waits, as long as there is time, until nobody compiles or starts: what they do shows in times."""
        for future in self.ready.values():
            concurrent.futures.wait([future], max(self.end - time.monotonic(), 0))
        for peer in self.peers.values():
            try:
                peer.greet(self.end - time.monotonic())
            except Timeout as error:  # its cases tell
                self.say(f"{peer.name}: {error}")

    def driver_facts(self):
        tool = shutil.which("nvidia-smi")
        if tool is None or self.args.device != "cuda":
            return {}
        fields = "driver_version,power.limit,clocks.sm,clocks.mem"
        code, text = self.run([tool, f"--query-gpu={fields}", "--format=csv,noheader"])
        return {"nvidia_smi": text.strip().splitlines()[0]} if code == 0 and text.strip() else {}

    def copy(self):
        """The bandwidth that kernels bound by memory are held to: the best of a few sizes beyond any cache."""
        sizes = [1 << 16] if self.tiny else [1 << 28, 1 << 30, 1 << 32]
        rows = [self.measure("copy", device=self.args.device, bytes=size, seconds=self.seconds) for size in sizes]
        best = max(row["bytes_per_second"] for row in rows)
        self.results["parts"]["copy"] = {"rows": rows, "bytes_per_second": best}

    def tests(self):
        part = self.results["parts"]["tests"] = {"rows": []}
        chunks = []
        for binary in self.results["bundle"]["programs"]:
            path, wanted = ROOT / "bin" / binary, TESTS.get(binary)
            if wanted is None:
                continue
            tests = [test for test in listed_tests(self.run([path, "--gtest_list_tests"])[1])
                     if re.search(wanted, test) and re.search(self.args.suites, test)]
            if not tests:
                continue
            part["rows"].append({"name": binary, "passed": 0, "failed": [], "skipped": []})
            # Neighbours are alike: each process gets some of each kind.
            count = -(-len(tests) // TESTS_A_PROCESS)
            chunks += [(path, tests[k::count], part["rows"][-1]) for k in range(count)]
        with concurrent.futures.ThreadPoolExecutor(self.processes) as pool:
            for _ in pool.map(lambda chunk: self.run_tests(*chunk), chunks):
                self.save()

    def run_tests(self, path, tests, row):
        """In one process, and what a crash leaves of them in others."""
        while tests:
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                output = pathlib.Path(folder) / "tests.json"
                try:
                    code, text = self.run([path, f"--gtest_filter={':'.join(tests)}", f"--gtest_output=json:{output}"],
                                          HEDDLE_CHECK_PLANS="1", HEDDLE_AUTOTUNE="0", TMPDIR=folder)
                except Timeout as error:
                    with self.lock:
                        self.unfinished(f"{path.name}: {len(tests)} tests: {error}")
                    return
                groups = json.loads(output.read_text())["testsuites"] if output.exists() else []
            begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.MULTILINE)
            ended = set(re.findall(r"^\[(?:       OK |  FAILED  |  SKIPPED )\] ([^\s,]+)", text, re.MULTILINE))
            crashed = [test for test in begun if test not in ended] if not groups else []
            if not groups and not crashed:  # before the first one, or after the last
                crashed = tests
            with self.lock:
                for test in crashed:
                    row["failed"].append(test)
                    self.failed(f"{path.name} {test}: exit {code}: {text.strip()[-300:]}")
                if groups:
                    self.count_tests(path, groups, row)
                else:
                    row["passed"] += len(re.findall(r"^\[       OK \] ", text, re.MULTILINE))
                    for test in re.findall(r"^\[  FAILED  \] ([^\s,]+)", text, re.MULTILINE):
                        row["failed"].append(test)
                        self.failed(f"{path.name} {test}")
            if groups:
                return
            tests = [test for test in tests if test not in ended and test not in crashed]

    def count_tests(self, path, groups, row):
        for group in groups:
            for test in group["testsuite"]:
                name = f"{group['name']}.{test['name']}"
                if test.get("failures"):
                    row["failed"].append(name)
                    self.failed(f"{path.name} {name}: {test['failures'][0]['failure'][:400]}")
                elif test["result"] == "SKIPPED":
                    row["skipped"].append(name)
                elif test["status"] == "RUN":
                    row["passed"] += 1

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or next(
            iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
        part = self.results["parts"]["sanitizer"] = {"rows": []}
        if tool is None or self.args.device == "cuda-sim":
            part["absent"] = "compute-sanitizer is not on this machine" if tool is None else "no device to look at"
            return
        begin, whole = time.monotonic(), self.left()
        for k, (kind, tests) in enumerate(SANITIZED.items(), 1):
            self.deadline = begin + whole * k / len(SANITIZED)
            try:
                code, text = self.run([tool, "--tool", kind, "--error-exitcode", "99", ROOT / "bin/tests_cuda",
                                       f"--gtest_filter={':'.join(tests)}"])
            except Timeout as error:
                self.unfinished(f"{kind}: {error}")
                continue
            summary = re.findall(r"=+ ((?:ERROR|RACECHECK) SUMMARY.*)", text)
            part["rows"].append({"name": kind, "exit": code, "summary": summary[-1] if summary else "no summary"})
            if code != 0:
                self.failed(f"{kind}: exit {code}: {part['rows'][-1]['summary']}")

    def case_part(self, part):
        rows = self.results["parts"].setdefault(part, {"rows": []})["rows"]
        for case in cases_of(part, self.tiny, self.args.cases):
            if self.left() <= 0:
                self.unfinished(f"{part}: {case.name}")
                continue
            folder = self.folder_of(case)
            try:
                try:
                    self.ready[case.name].result(self.left())
                except concurrent.futures.TimeoutError:
                    raise Timeout("its kernels are not compiled") from None
                rows.append(self.measure_case(case, folder))
            except Timeout as error:
                self.unfinished(f"{case.name}: {error}")
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                self.save()

    def folder_of(self, case):
        return self.work / "cases" / case.name

    def start(self):
        """Twice in processes of their own: no kernel is on disk, then all are."""
        rows = self.results["parts"].setdefault("start", {"rows": []})["rows"]
        for case in cases_of("start", self.tiny, self.args.cases):
            folder, cache = self.folder_of(case), self.work / "start_cache"
            case.graph.write(folder, case.name, False)
            self.measure("inputs", case=folder)
            options = {"device": self.args.device, "case": folder, "out": folder / "heddle", "cache": cache,
                       "seconds": TINY_SECONDS}
            cold, warm = self.measure_anew("run", **options), self.measure_anew("run", **options)
            row = {"name": case.name, "cold_ms": cold["load_ms"] + cold["first_call_ms"],
                   "warm_ms": warm["load_ms"] + warm["first_call_ms"], "kernels": cold["kernels"], "peers": {}}
            if warm["kernels_compiled"] != 0:
                self.failed(f"{case.name}: {warm['kernels_compiled']} kernels were compiled again")
            for name, mode in self.peer_runs(case):
                row["peers"][f"{name} {mode}"] = self.ask(name, mode, folder)
            rows.append(row)
            shutil.rmtree(folder, ignore_errors=True)

    # Cases.

    def measure_case(self, case, folder):
        row = {"name": case.name, "bytes": case.graph.bytes, "flops": case.graph.flops,
               "tolerance": case.tolerance, "peers": {}}
        try:
            row["heddle"] = self.measure("run", device=self.args.device, case=folder, out=folder / "heddle",
                                         seconds=self.seconds, cache=self.work / "cache")
            if row["heddle"]["evaluator_steps"] != 0:
                self.failed(f"{case.name}: the evaluator ran {row['heddle']['evaluator_steps']} steps")
        except RuntimeError as error:
            row["heddle"] = {"error": str(error)}
            self.failed(f"{case.name}: {error}")
        if case.name in self.memory_cases:
            row["copy_us"] = self.copy_us(row["bytes"])
        for name, mode in self.peer_runs(case):
            row["peers"][f"{name} {mode}"] = self.ask(name, mode, folder)
        self.compare(case, folder, row)
        self.say(report.line(row))
        return row

    def copy_us(self, moved):
        """The time of a copy that moves as many bytes, read and written, and goes round as many tensors as cases do."""
        size = max(moved // 2 // 256 * 256, 256)
        if size not in self.copies:
            self.copies[size] = self.measure("copy", device=self.args.device, bytes=size, seconds=self.seconds)["device_us"]
        return self.copies[size]

    def peer_runs(self, case):
        for mode in case.modes:
            if mode in self.args.modes:
                yield "torch", mode
        if case.jax:
            yield "jax", "jit"

    def ask(self, name, mode, folder):
        """What a peer says of the case; an `error` where it cannot run it, is not there, or takes too long."""
        if name not in self.peers:
            return {"error": "not asked for"}
        try:
            answer = self.peers[name].ask({"case": str(folder), "out": str(folder / f"{name}_{mode}"), "mode": mode,
                                           "seconds": self.seconds}, min(self.left(), self.answer_seconds))
        except Timeout as error:
            self.unfinished(f"{json.loads((folder / 'case.json').read_text())['name']}: {name} {mode}: {error}")
            answer = {"error": str(error)}
        self.results["peers"][name] = self.peers[name].facts
        return answer

    def compare(self, case, folder, row):
        """All against PyTorch with numbers of 32 bits; without it, tiny cases against the definition."""
        judge, by = folder / "torch_exact", "torch, f32"
        if "error" in self.ask("torch", "exact", folder):
            judge, by = folder / "reference", "reference"
            if not self.tiny:
                row["compared_with"] = None
                return
            self.measure("run", device="reference", case=folder, out=judge)
        row["compared_with"] = by
        answers = [("heddle", row["heddle"], folder / "heddle")]
        answers += [(f"{key}", value, folder / key.replace(" ", "_")) for key, value in row["peers"].items()]
        for name, answer, place in answers:
            if "error" in answer:
                continue
            measure = samples.distance if case.by_norm else samples.disagreement
            answer["disagreement"] = max(
                measure(samples.read_floats(place / want.name), samples.read_floats(want))
                if (place / want.name).exists() else float("inf") for want in sorted(judge.glob("*.f32")))
            if name == "heddle" and not answer["disagreement"] <= case.tolerance:
                self.failed(f"{case.name}: {answer['disagreement']:.2g} off {by}, {case.tolerance} allowed")


class Peer:
    """A peer in a process of its own, which starts while others work."""

    START_SECONDS = 120

    def __init__(self, name, suite):
        self.name, self.suite, self.missing, self.facts = name, suite, None, {}
        script = pathlib.Path(__file__).with_name(f"peer_{name}.py")
        self.server = Server([sys.executable, "-u", script, "--device", suite.args.peer_device], suite.log,
                             suite.environment, suite.work)
        self.start()

    def start(self):
        self.server.start()
        self.greeted = False

    def greet(self, seconds):
        """Waits until it has started. @raises Timeout"""
        if self.missing:
            return
        if seconds <= 0:
            raise Timeout("no time is left")
        if self.server.process is None:
            self.start()
        if not self.greeted:
            reply = self.server.reply(min(self.START_SECONDS, seconds))
            if "error" in reply:
                self.missing = f"{self.name} is not here, or does not start: {reply['error']}"
                self.facts = {"missing": self.missing}
                return
            self.facts, self.greeted = reply, True

    def ask(self, request, seconds):
        """@raises Timeout"""
        self.greet(seconds)
        return {"error": self.missing} if self.missing else self.server.ask(request, seconds)

    def stop(self):
        self.server.stop()


class Preparer:
    """Writes cases and compiles them, on processes of its own, ahead of those who measure them."""

    def __init__(self, suite, parts):
        self.suite, self.free, self.servers = suite, [], []
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, suite.processes // 2))
        for part in parts:
            if part in cases.PARTS and part != "start":
                for case in cases_of(part, suite.tiny, suite.args.cases):
                    suite.ready[case.name] = self.pool.submit(self.prepare, case)

    def prepare(self, case):
        suite, folder = self.suite, self.suite.folder_of(case)
        case.graph.write(folder, case.name, case.rotate)
        with suite.lock:
            if not self.free:
                self.free.append(suite.server())
                self.servers.append(self.free[-1])
            server = self.free.pop()
        try:
            left = suite.end - time.monotonic()
            answered(server, {"command": "inputs", "case": folder}, left)
            # What does not compile is told by who measures it.
            server.ask({"command": "texts", "device": suite.args.device, "case": str(folder),
                        "cache": str(suite.work / "cache")}, left)
        finally:
            with suite.lock:
                self.free.append(server)

    def stop(self):
        for future in self.suite.ready.values():
            future.cancel()
        for server in self.servers:
            server.close()
        self.pool.shutdown()


def cases_of(part, tiny, wanted):
    return [case for case in cases.PARTS[part](tiny) if re.search(wanted, case.name)]


def answered(server, request, seconds):
    """@raises RuntimeError with what the answer says went wrong."""
    reply = server.ask({key: str(value) for key, value in request.items()}, seconds)
    if "error" in reply:
        raise RuntimeError(reply["error"][-500:])
    return reply


def listed_tests(listing):
    """Names in what --gtest_list_tests prints, which begins with a line of GoogleTest's own."""
    suite, tests = "", []
    for line in listing.splitlines():
        if line.startswith("  "):
            tests.append(suite + line.split()[0])
        elif line and not line.startswith("Running main"):
            suite = line.split()[0]
    return tests


def find_nvrtc():
    """The folder of libnvrtc in this Python's packages or a toolkit; None leaves it to the engine."""
    for place in sys.path:
        for found in sorted(glob.glob(f"{place}/nvidia/*/lib/libnvrtc.so.1[23]"), reverse=True):
            return str(pathlib.Path(found).parent)
    for found in sorted(glob.glob("/usr/local/cuda*/lib*/libnvrtc.so.1[23]"), reverse=True):
        return str(pathlib.Path(found).parent)
    return None


def manifest():
    path = ROOT / "MANIFEST.json"
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "files"}


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="run_gpu_suite", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cuda-sim"], default="cuda")
    parser.add_argument("--budget", type=float, default=540)
    parser.add_argument("--parts", default=",".join(SHARES))
    parser.add_argument("--peers", default=None, help="torch,jax by default; with cuda-sim none")
    parser.add_argument("--peer-device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--suites", default=".", help="tests whose full name matches")
    parser.add_argument("--cases", default=".", help="cases whose name matches")
    parser.add_argument("--modes", default=",".join(MODES), help="of PyTorch: " + ", ".join(MODES))
    parser.add_argument("--seconds", type=float, default=SECONDS_A_CASE, help="that a case is timed")
    parser.add_argument("--tiny", action="store_true", help="cases of a few elements, to try the suite out")
    parser.add_argument("--merge", action="append", default=[])
    args = parser.parse_args()
    args.parts = [name for name in args.parts.split(",") if name]
    for name in args.parts:
        if name not in SHARES:
            parser.error(f"no part {name}; there are {', '.join(SHARES)}")
    args.modes = args.modes.split(",")
    given = args.peers if args.peers is not None else "" if args.device == "cuda-sim" else "torch,jax"
    args.peers = [name for name in given.split(",") if name]
    return args


def main():
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="heddle-gpu-") as work:
        suite = Suite(args, args.out.resolve(), pathlib.Path(work))
        suite.run_all(args.parts)
    results = suite.results
    suite.say(f"{len(results['failures'])} failures, {len(results['unfinished'])} left for want of time")
    return 1 if results["failures"] else 3 if results["unfinished"] else 0


if __name__ == "__main__":
    sys.exit(main())
