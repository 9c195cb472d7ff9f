"""libheddle.so exports the public API and nothing that is linked into it.

usage: exports_test.py LIBRARY
"""
import subprocess
import sys
import unittest

LIBRARY = sys.argv.pop()


def exported():
    run = subprocess.run(["nm", "-D", "-C", "--defined-only", LIBRARY], capture_output=True,
                         text=True, check=True)
    # "address kind name@@HEDDLE_0"; the version's own symbol has kind A.
    lines = [line.split(" ", 2) for line in run.stdout.splitlines()]
    return [name.rsplit("@@", 1) for _, kind, name in lines if kind != "A"]


class ExportsTest(unittest.TestCase):
    def test_every_name_is_ours_and_versioned(self):
        kinds = ("typeinfo for ", "typeinfo name for ", "vtable for ", "guard variable for ",
                 "VTT for ")
        for name, version in exported():
            for kind in kinds:
                name = name.removeprefix(kind)
            # Templates print their return type first.
            self.assertRegex(name, r"^(heddle::|heddle_|.* heddle::)")
            self.assertEqual(version, "HEDDLE_0", name)

    def test_the_inner_folders_stay_inside(self):
        inner = ("heddle::ir::", "heddle::jit::", "heddle::device::", "heddle::scheduler::",
                 "heddle::memory::", "heddle::onnx_format::")
        leaked = [name for name, _ in exported()
                  if name.removeprefix("typeinfo for ").startswith(inner)]
        self.assertEqual(leaked, [])

    def test_the_errors_can_be_caught_by_a_host(self):
        names = {name for name, _ in exported()}
        self.assertIn("typeinfo for heddle::Error", names)
        self.assertIn("typeinfo for heddle::ShapeError", names)


if __name__ == "__main__":
    unittest.main()
