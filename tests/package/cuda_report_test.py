"""What scripts/cuda_report reads out of the assembler's words, and the occupancy that it works out."""
import importlib.machinery
import importlib.util
import pathlib
import unittest

PATH = pathlib.Path(__file__).resolve().parents[2] / "scripts/cuda_report"
LOADER = importlib.machinery.SourceFileLoader("cuda_report", str(PATH))
cuda_report = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_report", LOADER))
LOADER.exec_module(cuda_report)

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'g' for 'sm_90a'
ptxas info    : Function properties for g
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for helper
ptxas         .     99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
ptxas info    : Function properties for f
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 128 bytes smem
"""


class CudaReportTest(unittest.TestCase):
    def test_each_kernel_has_its_own_numbers(self):
        self.assertEqual(cuda_report.parse(LOG), {
            "g": {"registers": 255, "spills": 20, "stack": 16, "shared": 0},
            "f": {"registers": 10, "spills": 0, "stack": 0, "shared": 128}})

    def test_occupancy_is_bound_by_registers_threads_blocks_and_shared_memory(self):
        def share(registers, shared, threads, arch="sm_90a"):
            return cuda_report.occupancy({"registers": registers, "shared": shared}, threads, arch)
        self.assertEqual(share(32, 0, 256), 1.0)
        self.assertEqual(share(33, 0, 256), 0.75)   # 40 a thread: 6 blocks
        self.assertEqual(share(255, 0, 256), 0.125)  # 256 a thread: one block
        self.assertEqual(share(16, 0, 32), 0.5)      # 32 blocks are the most
        self.assertEqual(share(16, 100 << 10, 256, "sm_90a"), 0.25)
        self.assertEqual(share(16, 100 << 10, 256, "sm_80"), 0.125)

    @staticmethod
    def page(version, *spills):
        def row(name, numbers):
            found = {arch: {"registers": 32, "spills": number, "stack": 0, "shared": 0}
                     for arch, number in zip(cuda_report.ARCHS, numbers)}
            return name, ("__launch_bounds__(128)", found)
        return cuda_report.page_of(dict(row(f"k{k}", numbers) for k, numbers in enumerate(spills)), version, "2001-02-03")[1]

    def test_spills_are_read_out_of_a_report(self):
        self.assertEqual(cuda_report.spills_of(self.page("nvrtc 13.0", (0, 8, 0), (4, 16, 0))),
                         ("nvrtc 13.0", {"sm_80": (1, 4), "sm_90a": (2, 24), "sm_100": (0, 0)}))

    def test_more_spills_than_the_report_says_are_told(self):
        page = self.page("nvrtc 13.0", (0, 8, 0), (4, 16, 0))
        def told(*spills, version="nvrtc 13.0"):
            return cuda_report.grown(page, cuda_report.spills_of(self.page(version, *spills)))
        self.assertEqual(told((0, 8, 0), (4, 16, 0), (0, 0, 0)), [])
        self.assertEqual(told((0, 8, 0)), [])
        self.assertEqual(told((0, 8, 1), (4, 16, 0)), ["sm_100: 1 kernels spill 1 bytes, the report says 0 and 0"])
        self.assertEqual(told((0, 8, 0), (5, 16, 0)), ["sm_80: 1 kernels spill 5 bytes, the report says 1 and 4"])
        self.assertEqual(told((9, 9, 9), version="nvrtc 13.1"), [])

    def test_a_share_of_the_compiles_takes_each_text_and_each_architecture(self):
        kept = {f"k{k}": "" for k in range(8)}
        self.assertEqual(len(cuda_report.jobs_of(kept, ["a", "b", "c", "d"], 1)), 32)
        jobs = cuda_report.jobs_of(kept, ["a", "b", "c", "d"], 4)
        self.assertEqual(len(jobs), 8)
        self.assertEqual({name for name, _, _ in jobs}, set(kept))
        self.assertEqual({arch for _, _, arch in jobs}, {"a", "b", "c", "d"})

    def test_products_by_warpgroups_are_of_one_architecture(self):
        name = "heddle_matmul_0123_wgmma_64x128x64"
        self.assertEqual(cuda_report.jobs_of({name: ""}, cuda_report.CHECKED_ARCHS, 1), [(name, "", "sm_90a")])
        numbers = {"registers": 200, "spills": 8, "stack": 0, "shared": 0}
        _, page = cuda_report.page_of({name: ("", {"sm_90a": numbers})}, "nvrtc 13.0", "2001-02-03")
        self.assertEqual(cuda_report.spills_of(page)[1], {"sm_80": (0, 0), "sm_90a": (1, 8), "sm_100": (0, 0)})


if __name__ == "__main__":
    unittest.main()
