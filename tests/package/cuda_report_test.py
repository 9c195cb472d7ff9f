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


if __name__ == "__main__":
    unittest.main()
