"""The protocol of protocol.h for engines that are called from Python. Not meant for rows of a few microseconds: the
interpreter's share of a call is part of what it measures, and the report says so.
"""
import argparse
import json
import pathlib
import sys
import time

import numpy as np

import graphs


def status_bytes(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def take_turn(call, seconds):
    """As take_turn in protocol.cpp."""
    shortest, warm = float("inf"), time.perf_counter()
    k = 0
    while k < 3 or time.perf_counter() - warm < 0.05 * seconds:
        start = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - start)
        if k == 0 and shortest > seconds:
            break
        k += 1
    calls = int(min(max(20e-6 / shortest, 1), 1000))
    samples, begin, processor = [], time.perf_counter(), time.process_time()
    while not samples or (len(samples) < 4000 and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) * 1e6 / calls)
    processor = (time.process_time() - processor) * 1e6 / (calls * len(samples))
    return {"samples_us": samples, "calls_per_sample": calls, "processor_us": processor}


def serve(peer):
    """`peer` has load(model, threads, options), first_call(inputs), call(), outputs() and facts()."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--case", type=pathlib.Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--option", action="append", default=[])
    args = parser.parse_args()
    inputs = graphs.read_case(args.case)
    pathlib.Path(args.model).read_bytes()
    before, start = status_bytes("VmRSS"), time.perf_counter()
    peer.load(args.model, args.threads, dict(option.split("=", 1) for option in args.option))
    loaded = time.perf_counter()
    peer.first_call(inputs)
    facts = peer.facts() | {"load_ms": (loaded - start) * 1e3, "rss_before_bytes": before,
                            "first_call_ms": (time.perf_counter() - loaded) * 1e3}
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "end":
            return
        if command == "turn":
            reply = take_turn(peer.call, float(argument))
        elif command == "memory":
            reply = {"peak_bytes": status_bytes("VmHWM"), "anonymous_bytes": status_bytes("RssAnon")}
        else:
            outputs = peer.outputs()
            graphs.write_case(pathlib.Path(argument),
                              {name: np.asarray(value) for name, value in outputs.items()})
            reply = {"outputs": len(outputs)}
        print(json.dumps(reply), flush=True)
