"""The bundle of the GPU suite: that it holds what it needs, and runs on the simulated device from a bare folder.

usage: gpu_suite_test.py BUILD      (a build folder of the preset minimal; a skip, 77, where its programs are not built)
"""
import contextlib
import enum
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/gpu"))
import cases  # noqa: E402
import report  # noqa: E402
import samples  # noqa: E402
import suite  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/minimal"
#: Those of scripts/gpu_bundle.
PROGRAMS = ["heddle_gpu_measure", "tests_device", "tests_cuda", "tests_jit", "tests_fuzz"]
BARE = {"PATH": "/usr/bin:/bin"}


def results_of(out):
    (path,) = out.glob("*_gpu_*.json")
    return json.loads(path.read_text()), path.with_suffix(".md").read_text(), path


def runs(process):
    """Whether it is there, and no zombie that waits to be reaped."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def end(process):
    if runs(process):
        os.kill(process, signal.SIGKILL)


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-gpu-bundle-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        packed = cls.folder / "packed"
        subprocess.run([sys.executable, ROOT / "scripts/pack_gpu_bundle.py", BUILD, packed, *PROGRAMS], check=True)
        cls.bundle = cls.folder / "elsewhere"
        packed.rename(cls.bundle)

    def run_suite(self, name, *arguments, bundle=None):
        out = self.folder / name
        ran = subprocess.run([(bundle or self.bundle) / "run_gpu_suite", "--out", out, "--device", "cuda-sim", *arguments],
                             env={**BARE, "TMPDIR": str(self.folder)}, cwd="/", stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        return ran.returncode, out, ran.stdout

    def test_lists_its_files(self):
        manifest = json.loads((self.bundle / "MANIFEST.json").read_text())
        files = {str(path.relative_to(self.bundle)) for path in self.bundle.rglob("*") if path.is_file()}
        self.assertEqual(set(manifest["files"]) | {"MANIFEST.json"}, files)
        for name in ["run_gpu_suite", "LICENSE", "suite/suite.py", "suite/peer_torch.py", "suite/peer_jax.py",
                     "lib/libheddle_cuda_sim.so", "cuda_sim/tests/cuda_sim/kernel_shim.h",
                     *(f"bin/{program}" for program in PROGRAMS)]:
            self.assertIn(name, files)
        self.assertLess(manifest["bytes"], 64 << 20)
        self.assertRegex(manifest["glibc"], r"^2\.\d+$")

    def test_packs_the_programs_that_the_script_does(self):
        script = (ROOT / "scripts/gpu_bundle").read_text()
        self.assertIn(f"programs=({' '.join(PROGRAMS)})", script)

    def test_needs_only_glibc_of_the_machine(self):
        hosts_own = ("linux-vdso", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "/lib64/ld-linux")
        for program in PROGRAMS:
            loaded = subprocess.run([self.bundle / "bin" / program], stdout=subprocess.PIPE, text=True,
                                    env={"LD_TRACE_LOADED_OBJECTS": "1"}).stdout.splitlines()
            self.assertGreater(len(loaded), 4)
            for line in loaded:
                name, _, path = line.strip().partition(" => ")
                if not name.startswith(hosts_own):
                    self.assertTrue(path.startswith(str(self.bundle)), line)

    def test_runs_end_to_end(self):
        code, out, text = self.run_suite("all", "--parts", "copy,tests,matmul,weights8,attention,conv,host,start", "--suites",
                                         "^CudaDevice[.]", "--budget", "200")
        self.assertEqual(code, 0, text)
        results, markdown, _ = results_of(out)
        self.assertEqual((results["failures"], results["unfinished"]), ([], []))
        self.assertEqual(results["facts"]["device"], "heddle simulated device")
        names = [row["name"] for row in results["parts"]["matmul"]["rows"]]
        self.assertEqual(names, ["matmul_1x32x48", "matmul_20x33x40"])
        for part in ("matmul", "weights8", "attention", "conv", "host"):
            for row in results["parts"][part]["rows"]:
                self.assertEqual(row["heddle"]["evaluator_steps"], 0)
                self.assertEqual(row["compared_with"], "reference")
                self.assertLessEqual(row["heddle"]["disagreement"], row["tolerance"])
                self.assertEqual(row["peers"]["torch eager"], {"error": "not asked for"})
        (tests,) = results["parts"]["tests"]["rows"]
        self.assertEqual((tests["name"], tests["failed"], tests["skipped"]), ("tests_device", [], []))
        self.assertGreater(tests["passed"], 8)
        self.assertGreater(results["parts"]["start"]["rows"][0]["kernels"], 3)
        self.assertIn("that the suite runs, and no figure of any device", markdown)
        self.assertNotIn("| yes |", markdown)

    def test_memory_is_held_to_a_copy_as_large(self):
        code, out, text = self.run_suite("memory", "--parts", "memory", "--cases", "^(softmax_f32|column_sum_bf16)_", "--budget", "60")
        self.assertEqual(code, 0, text)
        results, markdown, _ = results_of(out)
        rows = results["parts"]["memory"]["rows"]
        self.assertEqual([row["name"] for row in rows], ["softmax_f32_tiny", "column_sum_bf16_tiny"])
        self.assertTrue(all(row["copy_us"] > 0 for row in rows), rows)
        self.assertIn("| of copy | copy as large |", markdown)

    def test_a_part_that_fails_does_not_stop_the_others(self):
        broken = self.folder / "broken"
        shutil.copytree(self.bundle, broken)
        program = broken / "bin/tests_device"
        program.write_text("#!/bin/sh\nif [ $1 = --gtest_list_tests ]; then echo Suite.; echo '  One'; "
                           "else echo bad luck; exit 3; fi\n")
        code, out, text = self.run_suite("broken_out", "--parts", "tests,copy", "--suites", "Suite", bundle=broken)
        self.assertEqual(code, 1, text)
        results, markdown, _ = results_of(out)
        self.assertIn("tests_device Suite.One: exit 3: bad luck", results["failures"])
        self.assertEqual(len(results["failures"]), 1)
        self.assertGreater(results["parts"]["copy"]["bytes_per_second"], 0)
        self.assertIn("tests_device Suite.One: exit 3: bad luck", markdown)

    def test_a_crash_costs_the_test_that_it_was_in(self):
        crashing = self.folder / "crashing"
        shutil.copytree(self.bundle, crashing)
        program = crashing / "bin/tests_device"
        program.write_text("""#!/usr/bin/python3
import json, sys
if sys.argv[1] == "--gtest_list_tests":
    print("Running main() from somewhere\\nSuite.\\n  One\\n  Two  # of two\\n  Three\\n  Four")
    sys.exit()
report = []
for name in sys.argv[1].partition("=")[2].split(":"):
    print(f"[ RUN      ] {name}", flush=True)
    if name == "Suite.Two":
        sys.exit(139)
    print(f"[  FAILED  ] {name} (0 ms)" if name == "Suite.One" else f"[       OK ] {name} (0 ms)", flush=True)
    report.append({"name": name.split(".")[1], "status": "RUN", "result": "COMPLETED"})
json.dump({"testsuites": [{"name": "Suite", "testsuite": report}]}, open(sys.argv[2].partition(":")[2], "w"))
""")
        code, out, text = self.run_suite("crashing_out", "--parts", "tests", "--suites", "Suite", bundle=crashing)
        self.assertEqual(code, 1, text)
        (row,) = results_of(out)[0]["parts"]["tests"]["rows"]
        self.assertEqual(row, {"name": "tests_device", "passed": 2, "failed": ["Suite.Two", "Suite.One"], "skipped": []})

    def test_want_of_time_is_told_and_what_was_measured_is_kept(self):
        code, out, text = self.run_suite("short", "--parts", "copy,models", "--budget", "3")
        self.assertEqual(code, 3, text)
        results, _, path = results_of(out)
        self.assertTrue(any("resnet50" in name for name in results["unfinished"]), results["unfinished"])
        self.assertEqual(results["failures"], [])
        code, out, text = self.run_suite("merged", "--parts", "attention", "--merge", path)
        self.assertEqual(code, 0, text)
        self.assertEqual(results_of(out)[0]["parts"]["copy"], results["parts"]["copy"])

    def test_what_runs_out_of_time_is_ended_with_all_it_started(self):
        stuck = self.folder / "stuck"
        shutil.copytree(self.bundle, stuck)
        program = stuck / "bin/tests_device"
        program.write_text("#!/bin/sh\n[ $1 = --gtest_list_tests ] && echo Suite. && echo '  One' && exit\n"
                           "(while :; do mkdir -p $TMPDIR/kernels; : > $TMPDIR/kernels/$$; done) >/dev/null 2>&1 &\n"
                           f"echo $! > {self.folder}/writer\nwait\n")
        code, out, text = self.run_suite("stuck_out", "--parts", "tests", "--suites", "Suite", "--budget", "2",
                                         bundle=stuck)
        self.assertEqual(code, 3, text)
        self.assertIn("tests_device: 1 tests: tests_device: not done after", text)
        writer = int((self.folder / "writer").read_text())
        self.addCleanup(end, writer)
        self.assertFalse(runs(writer))
        self.assertEqual(list(self.folder.glob("heddle-gpu-*")), [])

    def test_wrong_usage(self):
        self.assertEqual(self.run_suite("usage", "--parts", "everything")[0], 2)


def row(name, ours, peers, tolerance=1e-2, off=1e-3):
    return {"name": name, "bytes": 1000, "flops": 2000, "tolerance": tolerance,
            "heddle": {"device_us": ours, "host_us": 3.0, "disagreement": off},
            "peers": {name: {"device_us": us} if us else {"error": "no"} for name, us in peers.items()}}


class ReportTest(unittest.TestCase):
    def document(self, **parts):
        return {"date": "2001-02-03", "tiny": False, "facts": {"device": "D"}, "bundle": {}, "peers": {},
                "parts": parts, "failures": [], "unfinished": []}

    def test_the_sanitizer_looks_at_tests_that_there_are(self):
        sources = "".join(path.read_text() for path in (ROOT / "tests/cuda").glob("*_test.cpp"))
        graphs = (ROOT / "tests/jit/cuda_graph_cases.h").read_text()
        for pattern in {one for patterns in suite.SANITIZED.values() for one in patterns}:
            test, _, graph = pattern.replace("*", "").partition("/")
            self.assertIn(f"TEST({test.replace('.', ', ')})" if "." in test else f"TEST_P({test}, ", sources)
            self.assertTrue(not graph or f"graph @{graph}(" in graphs, pattern)

    def test_ratios_and_shares(self):
        one = row("a", 2.0, {"torch eager": 3.0, "jax jit": None})
        self.assertEqual(report.ratio(one, "torch eager"), 1.5)
        self.assertIsNone(report.ratio(one, "jax jit"))
        self.assertAlmostEqual(report.copy_share(one, 1e9), 0.5)
        self.assertIsNone(report.copy_speed(one))
        self.assertAlmostEqual(report.copy_speed({**one, "copy_us": 1.8}), 0.9)
        self.assertAlmostEqual(report.geomean([2.0, None, 8.0]), 4.0)

    def test_targets_are_met_missed_or_not_measured(self):
        text = report.markdown(self.document(
            copy={"bytes_per_second": 1e9}, memory={"rows": [row("a", 1.05, {}), row("b", 2.0, {})]},
            models={"rows": [row("m", 1.0, {"torch max-autotune": 1.2})]}))
        self.assertIn("least of all | at least 0.92 | 0.5 | no |", text)
        self.assertIn("speed over max-autotune, geometric mean | at least 1.0 | 1.2 | yes |", text)
        self.assertIn("| host time of a cached call, us | at most 5 |  | not measured |", text)

    def test_attention_is_held_to_the_best_of_pytorchs_kernels(self):
        one = row("a", 2.0, {"torch eager": 3.0, "torch flash": 1.0, "torch cudnn": None, "jax jit": 0.5})
        self.assertEqual(report.best_torch(one), "torch flash")
        self.assertIsNone(report.best_torch(row("a", 2.0, {"torch math": None})))
        text = report.markdown(self.document(attention={"rows": [one, row("b", 1.0, {"torch eager": 2.0})]}))
        self.assertIn("the best of PyTorch's kernels, geometric mean | at least 0.8 | 1 | yes |", text)
        self.assertIn("| 0.50 flash |", text)
        self.assertIn("| 2.00 eager |", text)
        self.assertEqual(len({line.count("|") for line in text.split("## bf16 attention")[1].strip().splitlines()[2:]}), 1)

    def test_a_wrong_answer_is_marked(self):
        text = report.markdown(self.document(host={"rows": [row("a", 1.0, {}, 1e-3, 0.5)]}))
        self.assertIn("0.5 WRONG", text)

    def test_tables_of_two_devices_are_not_merged(self):
        other = self.document()
        other["facts"] = {"device": "E"}
        with self.assertRaises(ValueError):
            report.merged(self.document(), [other])

    def test_disagreement(self):
        self.assertEqual(samples.disagreement([1.0, math.nan], [1.0, math.nan]), 0)
        self.assertEqual(samples.disagreement([1.0, 2.0], [1.0, math.nan]), math.inf)
        self.assertEqual(samples.disagreement([1.0], [1.0, 2.0]), math.inf)
        self.assertAlmostEqual(samples.disagreement([1.0, 4.1], [1.0, 4.0]), 0.1 / 8)


class PeerTest(unittest.TestCase):
    """PyTorch's part, with a stand-in for the functions that it is asked for."""

    def test_a_mode_names_the_kernel_of_attention(self):
        asked = []

        class Backend(enum.Enum):
            FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, MATH = range(4)

        @contextlib.contextmanager
        def sdpa_kernel(backend):
            asked.append(backend)
            yield

        torch, attention = types.ModuleType("torch"), types.ModuleType("torch.nn.attention")
        for name in ("float32", "bfloat16", "float16", "int64", "int32", "int8"):
            setattr(torch, name, name)
        attention.SDPBackend, attention.sdpa_kernel = Backend, sdpa_kernel
        stand_ins = {"torch": torch, "torch.nn": types.ModuleType("torch.nn"),
                     "torch.nn.functional": types.ModuleType("torch.nn.functional"), "torch.nn.attention": attention}
        torch.nn = stand_ins["torch.nn"]
        torch.nn.functional, torch.nn.attention = stand_ins["torch.nn.functional"], attention
        with unittest.mock.patch.dict(sys.modules, stand_ins):
            import peer_torch
            modes = [mode for case in cases.attention_cases(tiny=True) for mode in case.modes]
            for mode in modes:
                with peer_torch.kernel_of(mode):
                    pass
        names = ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"]
        self.assertEqual([backend.name for backend in asked], 2 * names)
        self.assertEqual(modes, 2 * ["eager", *peer_torch.ATTENTION])


if __name__ == "__main__":
    if not all((BUILD / "bin" / name).exists() for name in PROGRAMS):
        print(f"{BUILD} has not {' and '.join(PROGRAMS)}")
        sys.exit(77)
    unittest.main()
