"""The table that the GPU suite writes, from what it measured."""
import math

#: Part, title, and whether rows are judged by the bytes they move.
TABLES = [("memory", "Kernels bound by memory", True), ("matmul", "bf16 products", False),
          ("weights8", "bf16 products by weights of 8 bits", False),
          ("attention", "bf16 attention", False), ("conv", "bf16 convolutions", False), ("models", "Model graphs", False),
          ("host", "Small layers", False)]
HOST_US = 5.0
COLD_MS = 2000.0
WARM_MS = 150.0


def merged(results, earlier):
    """`results` with the rows of earlier tables of the same device where it has none of that name."""
    for other in earlier:
        if other["facts"].get("device") != results["facts"].get("device"):
            raise ValueError(f"a table of {other['facts'].get('device')}, not of {results['facts'].get('device')}")
        for part, values in other["parts"].items():
            mine = results["parts"].setdefault(part, {})
            for key, value in values.items():
                mine.setdefault(key, value)
            known = {row["name"] for row in mine.get("rows", []) if "name" in row}
            mine.setdefault("rows", []).extend(
                row for row in values.get("rows", []) if "name" in row and row["name"] not in known)
        for name, facts in other["peers"].items():
            results["peers"].setdefault(name, facts)
    return results


def time_of(answer):
    return answer.get("device_us") if answer else None


def ratio(row, peer):
    """The peer's time over Heddle's; None if either has none."""
    theirs, ours = time_of(row["peers"].get(peer)), time_of(row.get("heddle"))
    return theirs / ours if theirs and ours else None


def best_torch(row):
    """PyTorch's fastest way to run the case; None: it has none."""
    timed = {name: time_of(answer) for name, answer in row["peers"].items() if name.startswith("torch ") and time_of(answer)}
    return min(timed, key=timed.get, default=None)


def copy_share(row, bandwidth):
    ours = time_of(row.get("heddle"))
    return row["bytes"] / (ours * 1e-6) / bandwidth if ours and bandwidth else None


def copy_speed(row):
    """The time of a copy of as many bytes over Heddle's; None: not measured."""
    ours = time_of(row.get("heddle"))
    return row["copy_us"] / ours if ours and row.get("copy_us") else None


def geomean(numbers):
    numbers = [number for number in numbers if number]
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if numbers else None


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def line(row):
    """A case on one line, while the suite runs."""
    ours = row["heddle"]
    text = ours.get("error") or f"{ours['device_us']:.1f} us"
    peers = ", ".join(f"{name} {ratio(row, name):.2f}x" for name in row["peers"] if ratio(row, name))
    return f"{row['name']}: {text}" + (f" ({peers})" if peers else "")


def _agreement(row):
    if "error" in row["heddle"]:
        return row["heddle"]["error"].splitlines()[0][:80]
    off = row["heddle"].get("disagreement")
    if off is None:
        return "not compared"
    return f"{off:.1g}" + ("" if off <= row["tolerance"] else " WRONG")


def _table(title, rows, bandwidth, by_bytes, names_best):
    """@param names_best  a column says which of PyTorch's ways was the fastest"""
    peers = sorted({name for row in rows for name, answer in row["peers"].items() if time_of(answer)})
    measures = ["of copy", "copy as large"] if by_bytes else ["TFLOP/s"]
    heads = ["case", "us", *measures, "host us", *peers, *(["PyTorch's best"] if names_best else []), "off by"]
    lines = [f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        ours = time_of(row["heddle"])
        measured = [number(copy_share(row, bandwidth), "{:.0%}"), number(copy_speed(row))] if by_bytes else [
            number(row["flops"] / (ours * 1e6) if ours else None, "{:.1f}")]
        cells = [row["name"], number(ours, "{:.1f}"), *measured, number(row["heddle"].get("host_us"), "{:.1f}"),
                 *(number(ratio(row, name)) for name in peers)]
        if names_best:
            best = best_torch(row)
            cells.append(f"{number(ratio(row, best))} {best.removeprefix('torch ')}" if best else "")
        cells.append(_agreement(row))
        lines.append("| " + " | ".join(cells) + " |")
    means = [geomean(ratio(row, name) for row in rows) for name in peers]
    if names_best:
        means.append(geomean(ratio(row, best_torch(row)) for row in rows))
    lines.append("| geometric mean | | " + "| " * len(measures) + "| " + "".join(f"{number(mean)} | " for mean in means) + "|")
    return lines + [""]


def _shares(rows, bandwidth):
    return [share for share in (copy_share(row, bandwidth) for row in rows) if share]


def _targets(results):
    """Figure, target, what was measured, and whether that meets it; None: not measured."""
    parts = {name: part.get("rows", []) for name, part in results["parts"].items()}
    bandwidth = results["parts"].get("copy", {}).get("bytes_per_second")
    shares = _shares(parts.get("memory", []), bandwidth)
    speeds = [speed for speed in map(copy_speed, parts.get("memory", [])) if speed]
    products = [ratio(row, "torch eager") for row in parts.get("matmul", [])]
    attention = [ratio(row, best_torch(row)) for row in parts.get("attention", [])]
    models = [ratio(row, "torch max-autotune") for row in parts.get("models", [])]
    host = [row["heddle"].get("host_us") for row in parts.get("host", [])]
    start = parts.get("start", [])
    least = [("memory-bound kernels, share of the copy bandwidth, least of all", 0.92, min(shares, default=None)),
             ("memory-bound kernels, speed over a copy of as many bytes, least of all", 0.92, min(speeds, default=None)),
             ("bf16 products, speed over cuBLASLt's by PyTorch, geometric mean", 0.95, geomean(products)),
             ("attention, speed over the best of PyTorch's kernels, geometric mean", 0.80, geomean(attention)),
             ("model graphs, speed over max-autotune, geometric mean", 1.0, geomean(models))]
    most = [("host time of a cached call, us", HOST_US, max((us for us in host if us), default=None)),
            ("12-layer encoder, cold, ms", COLD_MS, start[0]["cold_ms"] if start else None),
            ("12-layer encoder, kernels on disk, ms", WARM_MS, start[0]["warm_ms"] if start else None)]
    rows = [(name, f"at least {target}", value, value is not None and value >= target)
            for name, target, value in least]
    return rows + [(name, f"at most {target:g}", value, value is not None and value <= target)
                   for name, target, value in most]


def _tests(part):
    rows = part.get("rows", [])
    passed = sum(row["passed"] for row in rows)
    skipped = sum(len(row["skipped"]) for row in rows)
    failed = [f"{row['name']}.{test}" for row in rows for test in row["failed"]]
    lines = ["## Tests", "", f"{passed} passed, {len(failed)} failed, {skipped} skipped in {len(rows)} suites.", ""]
    return lines + [f"- failed: {name}" for name in failed] + ([""] if failed else [])


def _sanitizer(part):
    lines = ["## compute-sanitizer", ""]
    if "absent" in part:
        return lines + [f"Not run: {part['absent']}.", ""]
    return lines + [f"- {row['name']}: {row['summary']}" for row in part.get("rows", [])] + [""]


def markdown(results):
    facts, bandwidth = results["facts"], results["parts"].get("copy", {}).get("bytes_per_second")
    lines = [f"# GPU suite, {facts.get('device', 'no device')}, {results['date']}", ""]
    if results["tiny"]:
        lines += ["At tiny sizes: that the suite runs, and no figure of any device.", ""]
    peers = "; ".join(value.get("version") or value.get("missing", name) for name, value in results["peers"].items())
    lines += [f"{facts.get('arch', '?')}, {facts.get('multiprocessors', '?')} multiprocessors, "
              f"{facts.get('compiler', '?')}, driver {facts.get('nvidia_smi', '?')}; peers: {peers or 'none'}; tree {results['bundle'].get('commit', '?')}. "
              "Times are the device's, medians; ratios are a peer's time over Heddle's in this run, so more than 1 is "
              "ahead. `scripts/gpu_bundle` and `run_gpu_suite` make this table.", ""]
    if bandwidth:
        lines += [f"Copy bandwidth, bytes read and written: {bandwidth / 1e9:.0f} GB/s. Of small tensors a copy, too, has less: "
                  "\"copy as large\" is the time of one that moves as many bytes over Heddle's.", ""]
    lines += ["## Targets", "", "| figure | target | measured | met |", "|---|---|---|---|"]
    for name, target, value, met in _targets(results):
        verdict = "not measured" if value is None or results["tiny"] else "yes" if met else "no"
        lines.append(f"| {name} | {target} | {number(value, '{:.3g}')} | {verdict} |")
    lines.append("")
    for part, title, by_bytes in TABLES:
        rows = results["parts"].get(part, {}).get("rows")
        if rows:
            lines += _table(title, rows, bandwidth, by_bytes, part == "attention")
    if "tests" in results["parts"]:
        lines += _tests(results["parts"]["tests"])
    if "sanitizer" in results["parts"]:
        lines += _sanitizer(results["parts"]["sanitizer"])
    for key, title in (("failures", "Failures"), ("unfinished", "Left for want of time")):
        if results[key]:
            lines += [f"## {title}", ""] + [f"- {text}" for text in results[key]] + [""]
    return "\n".join(lines)
