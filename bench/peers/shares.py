"""How evenly many threads share each model, told by one: the parts of each step run one after another on one processor, and the threads
that would have had them are followed. Where memory, or caches that threads share, limit a step, more threads gain less than this says.

usage: .cache/peers_venv/bin/python bench/peers/shares.py [--only REGEX] [--threads 4,8,16,32] [--heddle FILE]... [--write] [--list]

bench/peers/run makes that Python environment and builds the programs. With several --heddle, the command of that name of
several builds, a cell has the ratios of all, in that order.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import tempfile

import numpy as np

import graphs
import peers

TINY = {"add16", "tiny64", "silero"}  # which one thread runs
ITERATIONS = 15
ROUNDS = 3


def times(program, folder, inputs, threads, cache):
    """Microseconds of all steps on one thread and on so many."""
    command = [str(program), "bench", str(folder / "model.onnx"), "--threads", str(threads), "--shares", "--json",
               "--iterations", str(ITERATIONS)]
    for name, file in inputs.items():
        command += ["--input", f"{name}={file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"HEDDLE_CACHE_DIR": str(cache)})
    steps = json.loads(done.stdout)["steps"]
    return sum(step["us"] for step in steps), sum(step["shared_us"] for step in steps)


def measure(name, programs, threads, store):
    """By program: microseconds on one thread, and for each number of threads how much shorter the longest of their shares is."""
    folder = peers.build_row(name)
    inputs = {}
    for k, (key, array) in enumerate(graphs.read_case(folder / "case").items()):
        inputs[key] = store / f"{k}.npy"
        np.save(inputs[key], array)
    taken = {}
    for _ in range(ROUNDS):
        for k, program in enumerate(programs):
            for count in (1, *threads):
                taken.setdefault((k, count), []).append(times(program, folder, inputs, count, store / f"cache{k}"))
    found = []
    for k in range(len(programs)):
        alone = min(all_steps for all_steps, _ in taken[k, 1])
        found.append((alone, [alone / min(shared for _, shared in taken[k, count]) for count in threads]))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression of models")
    parser.add_argument("--threads", default="4,8,16,32")
    parser.add_argument("--heddle", action="append", help="the command; else that of the release build")
    parser.add_argument("--write", action="store_true", help="write bench/results/<date>_shares.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--list", action="store_true", help="print what there is")
    args = parser.parse_args()
    names = [name for name in peers.ROWS if re.search(args.only, name) and name not in TINY]
    if args.list:
        print("\n".join(names))
        return
    programs = args.heddle or [peers.BIN / "heddle"]
    threads = [int(count) for count in args.threads.split(",")]
    header = "\n".join(["| model | one thread, us | " + " | ".join(f"{count} threads" for count in threads) + " |",
                        "|---" * (2 + len(threads)) + "|"])
    load, rows = peers.load_average(), []
    print(header)
    for name in names:
        with tempfile.TemporaryDirectory() as store:
            found = measure(name, programs, threads, pathlib.Path(store))
        cells = [" -> ".join(f"{ratios[k]:.1f}" for _, ratios in found) for k in range(len(threads))]
        alone = " -> ".join(f"{time:,.0f}" for time, _ in found)
        rows.append(f"| {peers.ROWS[name][0]} | {alone} | " + " | ".join(cells) + " |")
        print(rows[-1], flush=True)
    if args.write:
        path = peers.ROOT / f"bench/results/{args.date}_shares.md"
        path.write_text(f"""# How evenly threads share each model, {args.date}

{peers.processor()}; load averages {load} at the start and {peers.load_average()} at the end. Of each step of a model the parts that
threads share ran one after another on one processor; a cell says how many times shorter than one thread's time the longest share is, summed over
the steps, medians of {ITERATIONS} runs in a process, the least of {ROUNDS} processes. What threads wait for each other is not in it, and neither is that they share memory: on more processors
than this machine has it is the most that they may gain. A thread that begins a part here finds what another would have had in its own cache in
the cache that all share, or in memory.
`bench/peers/shares.py` writes this file (`heddle bench --shares` tells it of one model).

{header}
""" + "\n".join(rows) + "\n")
        print(path)


if __name__ == "__main__":
    main()
