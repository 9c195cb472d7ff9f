"""scripts/lint finds what the include table forbids, in a small tree made for it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lint"


class LintTest(unittest.TestCase):
    def lint(self, files):
        """The findings for a tree of `files`, path to text."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            run = subprocess.run([sys.executable, LINT, "--root", root, "--no-format"],
                                 capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        self.assertEqual(run.returncode, 1 if lines[:-1] else 0, run.stderr)
        return lines[:-1]

    def test_a_tree_that_keeps_the_table_is_clean(self):
        self.assertEqual(self.lint({
            "base/check.h": "#include <memory>\n#include <string>\n",
            "base/include/heddle/error.h": "#include <stdexcept>\n",
            "engine/include/heddle/tensor.h": '#include "heddle/error.h"\n',
            "ir/graph.h": '#include "base/check.h"\n#include "heddle/error.h"\n',
            "jit/cpu/llvm/orc.cpp": '#include <llvm/IR/Module.h>\n#include "ir/graph.h"\n',
            "engine/cli/main.cpp": '#include "ir/graph.h"\n#include <heddle/tensor.h>\n',
            "examples/mlp/mlp.h": "", "examples/mlp/main.cpp": '#include <heddle/tensor.h>\n#include "mlp.h"\n',
            "tests/ir/graph_test.cpp": '#include "ir/graph.h"\n#include <heddle/tensor.h>\n',
        }), [])

    def test_a_lower_folder_may_not_see_a_higher_one(self):
        self.assertEqual(self.lint({
            "jit/nest.h": "", "ir/graph.cpp": '#include <vector>\n#include "jit/nest.h"\n'}),
            ["ir/graph.cpp:2: ir may not include jit (jit/nest.h); it sees: base"])

    def test_lower_folders_may_not_see_the_public_api(self):
        self.assertEqual(self.lint({
            "engine/include/heddle/tensor.h": "", "ir/graph.h": "#include <heddle/tensor.h>\n"}),
            ["ir/graph.h:1: ir may not include public (heddle/tensor.h); it sees: base"])

    def test_the_importer_sees_only_the_public_api(self):
        self.assertEqual(self.lint({
            "ir/graph.h": "", "engine/onnx/load.cpp": '#include "ir/graph.h"\n'}),
            ["engine/onnx/load.cpp:1: engine/onnx may not include ir (ir/graph.h); "
             "it sees: public"])

    def test_nobody_includes_tests(self):
        self.assertEqual(self.lint({
            "tests/support/random.h": "", "ir/graph.cpp": '#include "tests/support/random.h"\n'}),
            ["ir/graph.cpp:1: ir may not include tests (tests/support/random.h); it sees: base"])

    def test_llvm_stays_in_its_sources(self):
        self.assertEqual(self.lint({
            "jit/cpu/llvm/orc.h": "#include <llvm/IR/Module.h>\n",
            "engine/engine.cpp": "#include <llvm/IR/Module.h>\n"}),
            ["engine/engine.cpp:1: llvm/IR/Module.h is kept to .cpp files in: jit/cpu/llvm",
             "jit/cpu/llvm/orc.h:1: llvm/IR/Module.h is kept to .cpp files in: jit/cpu/llvm"])

    def test_cuda_headers_occur_nowhere(self):
        self.assertEqual(self.lint({"device/cuda/driver.cpp": "#include <cuda.h>\n"}),
                         ["device/cuda/driver.cpp:1: cuda.h is kept to .cpp files in: nowhere"])

    def test_public_headers_include_only_each_other_and_the_standard_library(self):
        self.assertEqual(self.lint({
            "base/check.h": "", "engine/include/heddle/tensor.h":
            '#include "base/check.h"\n#include <fmt/format.h>\n#include <cstdint>\n'}),
            ["engine/include/heddle/tensor.h:1: a public header includes only heddle/ and the "
             "standard library, not base/check.h",
             "engine/include/heddle/tensor.h:2: a public header includes only heddle/ and the "
             "standard library, not fmt/format.h"])

    def test_includes_are_written_from_the_root(self):
        self.assertEqual(self.lint({"ir/graph.h": "", "ir/graph.cpp": '#include "graph.h"\n'}),
                         ['ir/graph.cpp:1: "graph.h" is not written from the repository root'])

    def test_a_missing_header_is_named(self):
        self.assertEqual(self.lint({"ir/graph.cpp": '#include "ir/none.h"\n'}),
                         ["ir/graph.cpp:1: ir/none.h does not exist"])


if __name__ == "__main__":
    unittest.main()
