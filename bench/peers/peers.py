"""Runs graphs through Heddle and its peers, in turns, and writes what came out.

usage: bench/peers/run [--rows NAME,...] [--peers NAME,...] [--threads 1,2] [--rounds N] [--seconds S]
                       [--date YYYY-MM-DD] [--no-picture] [--list]

Every peer is a process of its own that holds one model (protocol.h). In each round every peer of a row has one turn of
S seconds, Heddle's place among them changing from round to round, so that whatever else the machine does hits all. Outputs
are compared first. Results go to bench/results/<date>_peers.json and .md, the picture to bench/results/peers.svg.
"""
import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import graphs
import real_models
import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = ROOT / ".cache/peers"
BIN = pathlib.Path(os.environ.get("HEDDLE_BENCH_BIN", ROOT / "build/release/bin"))
ROWS = graphs.GRAPHS | real_models.REAL_MODELS
# Peers that are called from Python, and the modules that each needs.
PYTHON_PEERS = {"openvino": ["openvino"], "jax": ["jax", "jaxlib"], "iree": ["iree.compiler", "iree.runtime"],
                "torch": ["torch"]}
# Ways to run Heddle that are not its default, each beside that on some rows: the option that asks for it, the rows, and how far off
# results may be (None: as by default).
BF16_ROWS = ["mlp_m32", "mlp_m1", "bert_layer", "minilm_random", "minilm", "conv_block", "resnet50", "nsfw", "yolo"]
CACHES = "append=" + ",".join(f"{name}_{layer}" for layer in range(2) for name in ("keys", "values"))
MODES = {"heddle_bf16": ("pass=bf16-products", BF16_ROWS, 3e-2),
         "heddle_append": (CACHES, ["decoder", "decoder_4bit"], None)}
SETTLE_SECONDS = 0.01  # between turns: workers that spin after a call have gone to sleep by then


def installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def onnxruntime_command(*settings):
    import onnxruntime
    folder = pathlib.Path(onnxruntime.__file__).parent / "capi"
    library = next(folder.glob("libonnxruntime.so*"))
    options = [f"library={library}", *settings]
    return [str(BIN / "peer_onnxruntime")] + [x for o in options for x in ("--option", o)]


def python_command(name, *settings):
    script = str(pathlib.Path(__file__).parent / f"{name}_peer.py")
    return [sys.executable, script] + [x for setting in settings for x in ("--option", setting)]


def heddle_command(cache_dir, *settings):
    options = [f"cache_dir={cache_dir}", *settings]
    return [str(BIN / "peer_heddle")] + [x for option in options for x in ("--option", option)]


def peer_commands(cache_dir):
    """Command lines by peer, of those that are installed. Heddle is first, then its other modes."""
    commands = {"heddle": heddle_command(cache_dir)}
    for name, (option, _, _) in MODES.items():
        commands[name] = heddle_command(cache_dir, option)
    if installed("onnxruntime"):
        commands["onnxruntime"] = onnxruntime_command()
        commands["onnxruntime_tuned"] = onnxruntime_command(
            "optimization.disable_specified_optimizers=SkipLayerNormFusion")
    for name, modules in PYTHON_PEERS.items():
        if all(map(installed, modules)):
            # Of these, JAX and torch keep what they compiled on disk when told where.
            settings = [f"cache_dir={cache_dir}/{name}"] if name in ("jax", "torch") else []
            commands[name] = python_command(name, *settings)
    return commands


class Process:
    """A peer that holds a row's model. Raises RuntimeError with the last line it wrote when it dies."""

    def __init__(self, command, folder, threads, model=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command + ["--model", str(model or folder / "model.onnx"), "--case", str(folder / "case"),
                       "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.facts = self.reply()

    def reply(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        told = self.errors.read().strip().splitlines() or ["no message"]
        raise RuntimeError(f"exit {self.process.returncode}: {told[-1]}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.reply()

    def outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ask(f"outputs {folder}")
            return graphs.read_case(pathlib.Path(folder))

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def disagreement(got, wanted):
    """The least r with |got - wanted| <= r |wanted| + r max |wanted| for all elements of all outputs."""
    worst = 0.0
    for mine, reference in zip(got.values(), wanted.values(), strict=True):
        if mine.shape != reference.shape:
            raise RuntimeError(f"an output has sizes {mine.shape}, wanted {reference.shape}")
        reference = reference.astype(np.float64)
        scale = np.abs(reference) + np.abs(reference).max(initial=0)
        difference = np.abs(mine.astype(np.float64) - reference)
        if np.isnan(difference).any():
            return float("inf")
        worst = max(worst, float((difference / np.maximum(scale, 1e-30)).max(initial=0)))
    return worst


def machine_limits():
    run = subprocess.run([str(BIN / "peer_limits")], check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def first_starts(command, folder, threads, model=None):
    """What processes tell that start one after the other: one with nothing cached on disk, then the median of three with
    what it left, by the time to their first answer."""
    with tempfile.TemporaryDirectory() as empty:
        facts = []
        for _ in range(4):
            process = Process([re.sub("(?i)^cache_dir=.*", lambda found: found[0][:10] + empty, part)
                               for part in command], folder, threads, model)
            process.close()
            facts.append(process.facts)
        warm = sorted(facts[1:], key=lambda told: told["load_ms"] + told["first_call_ms"])
        return facts[0], warm[1]


def planned_memory(folder, cache_dir):
    """What Heddle's plan says of its intermediates, and the least that the order of the model would need."""
    plans = {}
    for order in ("smallest", "given"):
        process = Process(heddle_command(cache_dir, f"order={order}"), folder, 1)
        process.close()
        plans[order] = process.facts["plan"]
    return plans["smallest"] | {"given_lower_bound_bytes": plans["given"]["lower_bound_bytes"]}


def measure(folder, commands, threads, rounds, seconds, cold):
    """One row: a record for each peer, in the order of `commands`; one that failed holds `error`.

    `cold`: whether a start without anything cached on disk is measured too.
    """
    records, processes = {}, {}
    with contextlib.ExitStack() as open_processes:
        for name, command in commands.items():
            try:
                cold_facts, warm_facts = (first_starts(command, folder, threads) if cold
                                          else ({}, {}))
                processes[name] = process = Process(command, folder, threads)
                open_processes.callback(process.close)
                records[name] = {"cold": cold_facts, "warm": warm_facts, "facts": process.facts,
                                 "samples_us": [],
                                 "round_medians_us": [], "round_processor_us": []}
            except RuntimeError as error:
                records[name] = {"error": str(error)}
        compare_outputs(folder, processes, records)
        take_turns(processes, records, rounds, seconds)
        for name, process in processes.items():
            records[name]["memory"] = process.ask("memory")
    return {name: summary(record) for name, record in records.items()}


def compare_outputs(folder, processes, records):
    tolerance = json.loads((folder / "cost.json").read_text())["tolerance"]
    wanted = folder / "wanted"
    reference = graphs.read_case(wanted) if wanted.exists() else None
    order = sorted(processes, key=lambda name: name != "onnxruntime")
    for name in order:
        outputs = processes[name].outputs()
        reference = reference or outputs
        error = disagreement(outputs, reference)
        records[name]["disagreement"] = error
        records[name]["agrees"] = error <= (name in MODES and MODES[name][2] or tolerance)


def take_turns(processes, records, rounds, seconds):
    names = list(processes)
    for k in range(rounds):
        for name in names[k % len(names):] + names[:k % len(names)]:
            turn = processes[name].ask(f"turn {seconds}")
            records[name]["samples_us"] += turn["samples_us"]
            records[name]["round_medians_us"].append(statistics.median(turn["samples_us"]))
            records[name]["round_processor_us"].append(turn["processor_us"])
            records[name]["calls_per_sample"] = turn["calls_per_sample"]
            time.sleep(SETTLE_SECONDS)


def summary(record):
    if "error" in record:
        return record
    samples = np.array(record.pop("samples_us"))
    cold, warm = record.pop("cold"), record.pop("warm")
    facts, memory = record.pop("facts"), record.pop("memory")
    return record | {
        "version": facts["version"],
        "median_us": float(np.median(samples)),
        "processor_us": statistics.median(record["round_processor_us"]),
        "p99_us": float(np.quantile(samples, 0.99)),
        "least_us": float(samples.min()),
        "samples": len(samples),
        "load_ms": cold.get("load_ms"),
        "first_call_ms": cold.get("first_call_ms"),
        "compile_ms": cold.get("compile_ms"),
        "warm_start_ms": warm["load_ms"] + warm["first_call_ms"] if warm else None,
        "peak_bytes": memory["peak_bytes"] - facts["rss_before_bytes"],
        "kernels": facts.get("kernels"),
    }


def build_row(name):
    """The folder of a row, made at first use."""
    folder = STORE / name
    if not (folder / "cost.json").exists():
        build = ROWS[name][1]
        if name in graphs.GRAPHS:
            build().save(folder)
        else:
            build(folder)
    return folder


def load_average():
    return [round(x, 1) for x in os.getloadavg()]


def processor():
    facts = dict(line.split(":", 1) for line in
                 pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return (f"{facts.get('model name', 'unknown')}, family {facts.get('cpu family', '?')}, "
            f"model {facts.get('model', '?')}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--peers", default="")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--no-picture", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    unknown = [name for name in args.rows.split(",") if name not in ROWS]
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    return args


def chosen_peers(args, cache_dir):
    commands = peer_commands(cache_dir)
    wanted = args.peers.split(",") if args.peers else list(commands)
    missing = [name for name in wanted if name not in commands]
    if missing:
        raise SystemExit(f"peers: {missing[0]} is not installed; there are {', '.join(commands)}")
    return {name: commands[name] for name in wanted}


def taking_part(commands, row):
    return {name: command for name, command in commands.items() if name not in MODES or row in MODES[name][1]}


def main():
    args = arguments()
    if args.list:
        print("\n".join(f"{name:16s} {title}" for name, (title, _) in ROWS.items()))
        return
    document = {"date": args.date, "processor": processor(), "processors": os.cpu_count(),
                "load_at_start": load_average(), "rounds": args.rounds, "seconds": args.seconds,
                "limits": machine_limits(), "rows": []}
    with tempfile.TemporaryDirectory() as cache_dir:
        commands = chosen_peers(args, cache_dir)
        for name in args.rows.split(","):
            folder = build_row(name)
            row = {"name": name, "title": ROWS[name][0],
                   "cost": json.loads((folder / "cost.json").read_text()), "threads": {}}
            for threads in args.threads.split(","):
                # Start-up does not depend on threads; compilers take minutes over it.
                cold = threads == min(args.threads.split(","), key=int)
                row["threads"][threads] = measure(folder, taking_part(commands, name), int(threads), args.rounds,
                                                  args.seconds, cold)
                print(report.line(row, threads), flush=True)
            if "heddle" in commands:
                row["plan"] = planned_memory(folder, cache_dir)
            document["rows"].append(row)
    document["load_at_end"] = load_average()
    report.write(document, ROOT / "bench/results", picture=not args.no_picture)


if __name__ == "__main__":
    main()
