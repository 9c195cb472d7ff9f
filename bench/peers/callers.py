"""Threads that call one loaded model at once, as those of a server do: calls a second of all of them, how long a call
takes, and memory, through Heddle and ONNX Runtime.

usage: .cache/peers_venv/bin/python bench/peers/callers.py [--only REGEX] [--rounds N] [--seconds S] [--write] [--list]

bench/peers/run makes that Python environment and builds the programs. Each engine is loaded once, with one thread of its own or
with two, and called by 1, 2 and 4 threads, each into outputs of its own; a number is the median of rounds in which the
engines take turns. Peak memory is that of the process beyond what it had before loading, after all turns.
"""
import argparse
import contextlib
import datetime
import os
import pathlib
import re
import statistics
import tempfile

import numpy as np

import peers

ROWS = ["add16", "silero", "mlp_m1", "magika", "ocr_rec", "minilm", "conv_block"]
CALLERS = [1, 2, 4]
THREADS = [1, 2]
HEADER = """| graph | threads of the engine | callers | ONNX Runtime, calls/s | median, us | p99 | Heddle, calls/s | median, us | p99 | calls/s, Heddle's over ONNX Runtime's | p99, ONNX Runtime's over Heddle's |
|---|---|---|---|---|---|---|---|---|---|---|"""
MEMORY_HEADER = """| graph | threads of the engine | ONNX Runtime, MB | Heddle, MB |
|---|---|---|---|"""


def figures(turn):
    """Calls a second of all threads, and the median and 99th percentile of a call in microseconds."""
    samples = np.array(turn["samples_us"])
    return turn["calls"] / turn["seconds"], float(np.median(samples)), float(np.quantile(samples, 0.99))


def measure(name, commands, threads, rounds, seconds):
    """For each engine: figures by the number of callers, and megabytes."""
    folder = peers.build_row(name)
    with contextlib.ExitStack() as open_processes:
        processes = {}
        for engine, command in commands.items():
            processes[engine] = peers.Process(command, folder, threads)
            open_processes.callback(processes[engine].close)
        found = {engine: {callers: [] for callers in CALLERS} for engine in commands}
        for _ in range(rounds):
            for callers in CALLERS:
                for engine, process in processes.items():
                    found[engine][callers].append(figures(process.ask(f"callers {callers} {seconds}")))
        memory = {engine: (process.ask("memory")["peak_bytes"] - process.facts["rss_before_bytes"]) / 1e6
                  for engine, process in processes.items()}
    return {engine: {callers: [statistics.median(values) for values in zip(*of_rounds)]
                     for callers, of_rounds in by_callers.items()}
            for engine, by_callers in found.items()}, memory


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(name, threads, callers, ort, heddle):
    cells = [peers.ROWS[name][0], str(threads), str(callers), *map(number, (*ort, *heddle)),
             f"{heddle[0] / ort[0]:.2f}", f"{ort[2] / heddle[2]:.2f}"]
    return "| " + " | ".join(cells) + " |"


def report(args, load, rows, memory):
    path = peers.ROOT / f"bench/results/{args.date}_callers.md"
    body = "\n".join([HEADER, *rows, "", MEMORY_HEADER, *memory])
    path.write_text(f"""# Threads that call one model at once, {args.date}

{peers.processor()}; {os.cpu_count()} processors; load averages {load} at the start and {peers.load_average()} at the end. Medians of {args.rounds} rounds of {args.seconds} s.
Memory is the peak of the process beyond what it had before the model was loaded, weights included.
`bench/peers/callers.py` writes this file.

{body}
""")
    print(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression of graphs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--write", action="store_true", help="write bench/results/<date>_callers.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--list", action="store_true", help="print what there is")
    args = parser.parse_args()
    names = [name for name in ROWS if re.search(args.only, name)]
    if args.list:
        print("\n".join(f"{name}: {peers.ROWS[name][0]}" for name in names))
        return
    load, rows, memory = peers.load_average(), [], []
    print(HEADER)
    with tempfile.TemporaryDirectory() as cache:
        commands = {"onnxruntime": peers.onnxruntime_command(),
                    "heddle": peers.heddle_command(pathlib.Path(cache))}
        for name in names:
            for threads in THREADS:
                found, megabytes = measure(name, commands, threads, args.rounds, args.seconds)
                for callers in CALLERS:
                    rows.append(line(name, threads, callers, found["onnxruntime"][callers], found["heddle"][callers]))
                    print(rows[-1], flush=True)
                memory.append(f"| {peers.ROWS[name][0]} | {threads} | {megabytes['onnxruntime']:.1f} | {megabytes['heddle']:.1f} |")
    print("\n".join([MEMORY_HEADER, *memory]))
    if args.write:
        report(args, load, rows, memory)


if __name__ == "__main__":
    main()
