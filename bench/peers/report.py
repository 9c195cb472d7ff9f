"""What peers.py measured, as a line on the terminal, a JSON document, a Markdown table and an SVG picture."""
import html
import json
import math
import pathlib
import statistics

NAMES = {"heddle": "Heddle", "onnxruntime": "ONNX Runtime", "onnxruntime_tuned": "ONNX Runtime, tuned",
         "openvino": "OpenVINO", "jax": "JAX", "iree": "IREE", "torch": "torch.compile"}
# Other modes of Heddle, which are nobody's peers, and rows that are others in 8 bits.
MODES = {"heddle_bf16": "operands in bf16", "heddle_append": "caches appended to in place"}
IN_BYTES = {"mlp_int8_m32": "mlp_m32", "mlp_int8_m1": "mlp_m1", "minilm_int8": "minilm"}
# Multiply-add slots that one element takes: a cheap operation one half of them, a transcendental function its
# polynomial, range reduction and reconstruction.
CHEAP_FLOPS, TRANSCENDENTAL_FLOPS = 1, 24


def ran(row, threads):
    """The records of peers that ran, by name."""
    return {name: record for name, record in row["threads"][threads].items()
            if "error" not in record}


def ratio(row, threads, peer, measure="round_medians_us"):
    """How many times as long as Heddle `peer` takes: the median over rounds of the ratio within a round.

    `measure` may be "round_processor_us" instead: processor time, which other programs lengthen less.
    """
    records = ran(row, threads)
    if peer not in records or "heddle" not in records:
        return None
    pairs = zip(records[peer][measure], records["heddle"][measure])
    return statistics.median(theirs / ours for theirs, ours in pairs)


def right_ratios(row, threads, measure="round_medians_us"):
    """The ratio of each peer that ran and agrees, by name."""
    ratios = {name: ratio(row, threads, name, measure) for name, record in ran(row, threads).items()
              if name != "heddle" and name not in MODES and record["agrees"]}
    return {name: value for name, value in ratios.items() if value is not None}


def best_peer(row, threads, measure="round_medians_us"):
    """Name and ratio of the fastest peer whose outputs are right; (None, None) without any."""
    ratios = right_ratios(row, threads, measure)
    if not ratios:
        return None, None
    name = min(ratios, key=ratios.get)
    return name, ratios[name]


def copy_rate(limits, size):
    """Bytes a second of the smallest measured copy that moves at least `size` bytes."""
    copies = {int(key): value for key, value in limits["copy_bytes_per_second"].items()}
    fitting = [key for key in copies if key >= size] or [max(copies)]
    return copies[min(fitting)]


def floor_us(cost, limits, threads):
    """The time that arithmetic and memory traffic leave, whichever is longer; None where the costs are not counted.

    Threads multiply the rate of arithmetic; bytes move at one thread's rate times the threads.
    """
    if "flops" not in cost:
        return None
    flops = (cost["flops"] + CHEAP_FLOPS * cost["cheap"] +
             TRANSCENDENTAL_FLOPS * cost["transcendental"])
    moved = cost["input_bytes"] + cost["output_bytes"] + cost["weight_bytes"]
    return max(flops / (limits["fma_gflops"] * 1e9), moved / copy_rate(limits, moved)) * 1e6 / threads


def microseconds(value):
    if value is None:
        return ""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def line(row, threads):
    parts = [f"{row['name']:14s} {threads} thread(s)"]
    for name, record in row["threads"][threads].items():
        if "error" in record:
            parts.append(f"{name}: {record['error']}")
            continue
        agreement = "" if record["agrees"] else f" DISAGREES {record['disagreement']:.1e}"
        parts.append(f"{name} {microseconds(record['median_us'])} us{agreement}")
    name, value = best_peer(row, threads)
    if name:
        _, processor = best_peer(row, threads, "round_processor_us")
        parts.append(f"ratio {value:.2f} to {name}, {processor:.2f} in processor time")
    return "  ".join(parts)


def steady_table(document, threads):
    """Steady calls: the times of each peer, the ratio to the best of them, the fraction of the floor."""
    peers = [name for name in NAMES
             if any(name in row["threads"].get(threads, {}) for row in document["rows"])]
    lines = [f"## Steady calls, {threads} thread{'s' if threads != '1' else ''}", "",
             "| graph | " + " | ".join(NAMES[name] for name in peers) +
             " | p99 of Heddle | best peer over Heddle | the same in processor time | floor | floor over processor time |",
             "|---|" + "---|" * (len(peers) + 5)]
    for row in document["rows"]:
        if threads not in row["threads"]:
            continue
        cells = [cell(row["threads"][threads].get(name)) for name in peers]
        ours = row["threads"][threads].get("heddle", {})
        name, value = best_peer(row, threads)
        _, processor = best_peer(row, threads, "round_processor_us")
        floor = floor_us(row["cost"], document["limits"], int(threads))
        share = ""
        if floor and "processor_us" in ours:
            share = f"{100 * floor * int(threads) / ours['processor_us']:.0f} %"
        cells += [microseconds(ours.get("p99_us")), f"{value:.2f}" if value else "",
                  f"{processor:.2f}" if processor else "", microseconds(floor), share]
        lines.append(f"| {row['title']} | " + " | ".join(cells) + " |")
    return lines + [""]


def cell(record):
    if record is None:
        return ""
    if "error" in record:
        return "fails"
    return microseconds(record["median_us"]) + ("" if record["agrees"] else " (wrong)")


def modes_table(document):
    """What other modes of Heddle make of a graph, and graphs in 8 bits of those in f32: a ratio of our own times."""
    by_name = {row["name"]: row for row in document["rows"]}
    lines = []
    for row in document["rows"]:
        for threads in row["threads"]:
            records = ran(row, threads)
            for name, title in MODES.items():
                value = ratio(row, threads, name)
                if value:
                    lines.append(mode_line(row, title, threads, records["heddle"], records[name], 1 / value))
            whole = by_name.get(IN_BYTES.get(row["name"]), {"threads": {}})
            others = ran(whole, threads) if threads in whole["threads"] else {}
            if "heddle" in others and "heddle" in records:
                value = others["heddle"]["median_us"] / records["heddle"]["median_us"]
                lines.append(mode_line(whole, "8 bits, quantised dynamically", threads, others["heddle"],
                                       records["heddle"], value))
    head = ["## Fewer bits, against Heddle's own f32", "",
            "| graph | mode | threads | f32 | mode's time | times as fast | worst error, as a share of the largest result |",
            "|---|---|---|---|---|---|---|"]
    return [*head, *lines, ""] if lines else []


def mode_line(row, title, threads, ours, mode, value):
    # Of a graph in 8 bits, the error against that same graph in f64.
    wrong = "" if mode["agrees"] else " (wrong)"
    return (f"| {row['title']} | {title} | {threads} | {microseconds(ours['median_us'])} | "
            f"{microseconds(mode['median_us'])} | {value:.2f} | {mode['disagreement']:.1e}{wrong} |")


def start_table(document, threads):
    """From model file to first answer, and memory."""
    lines = [f"## First answers and memory, {threads} thread{'s' if threads != '1' else ''}", "",
             "A start with nothing cached, and the median of three with kernels on disk.", "",
             "| graph | peer | load, ms | first call, ms | of it compiling | load and first call, kernels on disk, ms "
             "| peak memory, MB | worst error |", "|---|---|---|---|---|---|---|---|"]
    for row in document["rows"]:
        for name, record in ran(row, threads).items() if threads in row["threads"] else ():
            if name in MODES:
                continue
            compiling = record["compile_ms"]
            lines.append(
                f"| {row['title']} | {NAMES[name]} | {record['load_ms']:.1f} | "
                f"{record['first_call_ms']:.1f} | {'' if compiling is None else f'{compiling:.1f}'} | "
                f"{record['warm_start_ms']:.1f} | {record['peak_bytes'] / 1e6:.0f} | "
                f"{record['disagreement']:.1e} |")
    return lines + [""]


def plan_table(document):
    """Intermediates in Heddle's plans, beside the least that any placing in the same order needs."""
    lines = ["## Memory of intermediates in Heddle's plans", "",
             "The least is the largest sum of what is live at once in the order that Heddle chose, and in the model's own order.", "",
             "| graph | planned, bytes | the least | planned over it | the least in the model's order |",
             "|---|---|---|---|---|"]
    for row in document["rows"]:
        plan = row.get("plan")
        if plan is None:
            continue
        peak, least = plan["peak_bytes"], plan["lower_bound_bytes"]
        over = f"{peak / least:.4f}" if least else ""
        lines.append(f"| {row['title']} | {peak:,} | {least:,} | {over} | {plan['given_lower_bound_bytes']:,} |")
    return lines + [""]


def failures(document):
    lines = []
    for row in document["rows"]:
        for threads, records in row["threads"].items():
            lines += [f"- {row['title']}, {(NAMES | MODES)[name]}, {threads} thread(s): {record['error']}"
                      for name, record in records.items() if "error" in record]
    return ["## Failures", "", *lines, ""] if lines else []


def versions(document):
    found = {name: record["version"] for row in document["rows"]
             for records in row["threads"].values() for name, record in records.items()
             if "error" not in record and name not in MODES}
    return ", ".join(f"{NAMES[name]} {version}" for name, version in found.items()
                     if name not in ("heddle", "onnxruntime_tuned"))


def markdown(document):
    rates = document["limits"]["copy_bytes_per_second"]
    lines = [
        f"# Heddle and its peers, {document['date']}", "",
        f"{document['processor']}; {document['processors']} processors; load averages "
        f"{document['load_at_start']} at the start and {document['load_at_end']} at the end. {versions(document)}.",
        f"Times are medians in microseconds over {document['rounds']} rounds in which every engine had a turn of "
        f"{document['seconds']} s; a ratio is the median over",
        "rounds of the ratio within a round. Processor time is that of all threads, those that wait spinning included. Each engine runs in a process of its own; inputs and outputs are the caller's"
        " memory. \"Tuned\" is ONNX",
        "Runtime without its skip-layer-norm fusion. All but Heddle and ONNX Runtime are called from Python, which costs"
        " some microseconds a",
        "call (some thirty with torch). JAX and torch run the ONNX graph translated to their own ops"
        " (`bench/peers/onnx_function.py`), IREE imports it; a",
        "peer whose outputs are wrong is marked and is nobody's best peer. The floor is the",
        f"longer of arithmetic at {document['limits']['fma_gflops']:.0f} GFLOP/s a thread (a cheap operation on an element"
        f" counts as {CHEAP_FLOPS}, a transcendental as {TRANSCENDENTAL_FLOPS}) and",
        "inputs, outputs and weights at the rate of a copy of as many bytes "
        f"({rates['262144'] / 1e9:.0f} GB/s for 256 KiB, {rates['4194304'] / 1e9:.0f} for 4 MiB, "
        f"{rates['268435456'] / 1e9:.0f} for 256 MiB, a thread).",
        "`bench/peers/run` writes this file.", ""]
    threads = sorted({key for row in document["rows"] for key in row["threads"]}, key=int)
    for key in threads:
        lines += steady_table(document, key)
    lines += modes_table(document)
    for key in threads[:1]:
        lines += start_table(document, key)
    lines += plan_table(document)
    return "\n".join(lines + failures(document))


# The picture: a bar a row, as long as the best peer's processor time over Heddle's, and a mark for each peer's.

BAR_HEIGHT, GAP, LEFT, RIGHT, WIDTH, TOP = 14, 6, 395, 190, 980, 66
SCALE = (0.5, 1, 2, 4, 8, 16)
# Colours that remain apart for the colour-blind, and shapes for print: as paths around 0, 0.
MARKS = {"onnxruntime": ("#0072b2", "M-4 -4H4V4H-4Z"), "onnxruntime_tuned": ("#56b4e9", "M-4 -4H4V4H-4Z"),
         "openvino": ("#e69f00", "M0 -5L5 4H-5Z"), "jax": ("#009e73", "M0 -5L5 0L0 5L-5 0Z"),
         "iree": ("#cc79a7", "M0 5L5 -4H-5Z"),
         "torch": ("#d55e00", "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z")}


def position(value):
    """Where a ratio lies on the scale, which is logarithmic; what is beyond its ends is drawn at them."""
    value = min(max(value, SCALE[0]), SCALE[-1])
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / SCALE[0]) / math.log(SCALE[-1] / SCALE[0])


def mark(peer, x, y):
    colour, path = MARKS[peer]
    return (f'<path d="{path}" transform="translate({x:.1f} {y:.1f})" fill="{colour}" stroke="#fff" '
            f'stroke-width="0.7"><title>{NAMES[peer]}</title></path>')


def picture_row(row, threads, measure, top):
    """Title, the bar from 1 to the best peer, a mark for each peer, the best one's name and ratio."""
    best, value = best_peer(row, threads, measure)
    left, right = sorted((position(1), position(value)))
    middle = top + BAR_HEIGHT / 2
    parts = [f'<text x="{LEFT - 8}" y="{top + 11}" class="t">{html.escape(row["title"])}</text>',
             f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{BAR_HEIGHT}" '
             f'fill="{"#bfe3cf" if value >= 1 else "#f6c9b5"}"/>']
    ratios = right_ratios(row, threads, measure)
    parts += [mark(peer, position(ratios[peer]), middle) for peer in MARKS if peer in ratios and peer != best]
    parts.append(mark(best, position(value), middle))
    parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{top + 11}" class="{"n" if value >= 1 else "w"}">'
                 f'{value:.2f} {NAMES[best]}</text>')
    return parts


def legend(peers):
    parts, x = [], LEFT
    for peer in peers:
        parts.append(mark(peer, x, 35))
        parts.append(f'<text x="{x + 8}" y="39" class="n">{NAMES[peer]}</text>')
        x += 24 + 6.1 * len(NAMES[peer])
    return parts


def svg(document, threads="1"):
    measure = "round_processor_us"
    rows = [row for row in document["rows"] if threads in row["threads"] and
            best_peer(row, threads, measure)[0]]
    height = TOP + len(rows) * (BAR_HEIGHT + GAP) + 4
    seen = {name for row in rows for name in right_ratios(row, threads, measure)}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
             "<style>text{font:12px sans-serif;fill:#333}.n{font-size:11px}.t{text-anchor:end}"
             ".m{font-size:11px;text-anchor:middle}.w{font-size:11px;font-weight:bold;fill:#a22}</style>",
             f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
             f'<text x="10" y="18">Processor time of each peer over Heddle\'s, '
             f'{"one thread" if threads == "1" else threads + " threads"}, {document["date"]}; '
             'right of the line Heddle is faster; the bar and the figure are the best peer\'s</text>',
             *legend([peer for peer in MARKS if peer in seen])]
    for value in SCALE:
        x = position(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 4}" '
                     f'stroke="{"#333" if value == 1 else "#ddd"}"/>'
                     f'<text x="{x:.1f}" y="{TOP - 10}" class="m">{value:g}x</text>')
    for k, row in enumerate(rows):
        parts += picture_row(row, threads, measure, TOP + k * (BAR_HEIGHT + GAP))
    return "\n".join(parts + ["</svg>"]) + "\n"


def write(document, folder, picture=True):
    folder = pathlib.Path(folder)
    stem = f"{document['date']}_peers"
    (folder / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / f"{stem}.md").write_text(markdown(document))
    if picture:
        (folder / "peers.svg").write_text(svg(document))
    print(folder / f"{stem}.md")
