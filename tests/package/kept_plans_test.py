"""Tests of the public library pass on plans that an earlier process left on disk. The other tests check plans
(HEDDLE_CHECK_PLANS), which are then made anew.

usage: kept_plans_test.py PROGRAM...
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = sys.argv[1:]


def run(program, cache):
    environment = {name: value for name, value in os.environ.items() if name != "HEDDLE_CHECK_PLANS"}
    return subprocess.run([program, "--gtest_brief=1"], capture_output=True, text=True,
                          env=environment | {"HEDDLE_CACHE_DIR": cache})


def plans(cache):
    return {file for file in pathlib.Path(cache).glob("*.hdk") if file.read_bytes()[48:].startswith(b"plan of ")}


class KeptPlansTest(unittest.TestCase):
    def test_the_second_process_agrees(self):
        for program in PROGRAMS:
            with self.subTest(program), tempfile.TemporaryDirectory() as cache:
                inodes = []
                for _ in range(2):
                    done = run(program, cache)
                    self.assertEqual(done.returncode, 0, done.stdout[-3000:])
                    inodes.append({file.name: file.stat().st_ino for file in plans(cache)})
                self.assertGreater(len(inodes[0]), 20)
                # What is found is not written anew.
                self.assertEqual(inodes[1], inodes[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
