"""Networks of timm, torchvision, transformers and diffusers, with random weights, exported by PyTorch and run through
Heddle and ONNX Runtime, on one thread or --threads: same outputs, and which is faster.

usage: PYTHON bench/peers/architectures.py [--only REGEX] [--exporter dynamo|torchscript] [--other-sizes | --batch N] [--variant NAME]
                                           [--heddle PATH] [--rounds N] [--threads N] [--openvino] [--no-times] [--write] [--list]

PYTHON has torch, torchvision, timm, transformers, diffusers, onnxscript and onnxruntime from PyPI (6 GB; nothing is fetched while
it runs), and openvino for --openvino. The exporter `dynamo` keeps the sizes of the inputs, `torchscript` leaves the axes open
that a network names; where none is asked for, dynamo exports, and torchscript what it cannot. --other-sizes runs models of
torchscript at sizes they were not exported with, --batch with so many inputs at once; where ONNX Runtime does not, a network does
not count. --variant takes networks through one of ONNX Runtime's tools first; outputs then may differ by as much as its own do
from those of the network as it was exported, or 0.02. Models, inputs and ONNX Runtime's outputs are left in
.cache/architectures/EXPORTER/NETWORK, a case for `heddle verify`.
"""
import argparse
import contextlib
import io
import json
import re
import warnings

import numpy as np
import torch

import peers
from architecture_models import NETWORKS, NOISY
from model_variants import VARIANTS, tolerance
from op_models import saturation_note
from single_models import MEASURED, ROOT, RULES, add_options, compare, measured, one_line, summary, write_report

EXPORTERS = ["dynamo", "torchscript"]
CASES = ROOT / ".cache/architectures"
TOLERANCE = 2e-3
HEADER = f"""| network | exporter | MB | {MEASURED}|
|---|---|---|{RULES}"""


class Positional(torch.nn.Module):
    """Calls a model with named tensors, given by position, and returns the tensors of its result, each once."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors):
        found = self.model(**dict(zip(self.names, tensors)))
        return tuple({id(leaf): leaf for leaf in leaves(found) if isinstance(leaf, torch.Tensor)}.values())


def leaves(value):
    if isinstance(value, dict) or hasattr(value, "items"):
        value = [value[key] for key in value]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif value is not None:
        yield value


def vary(model):
    """Gives numbers of channels that start alike, such as norms', values of their own: branches that start as 0 would add nothing."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.dim() == 1 and tensor.numel() > 1 and tensor.is_floating_point() and tensor.min() == tensor.max():
            if tensor[0] == 0 and not name.endswith("weight"):
                tensor.normal_(0, 0.1)
            else:
                tensor.uniform_(0.5, 1.5)


def export(network, exporter, path):
    torch.manual_seed(1)
    model, inputs, open_axes = network()
    model.eval()
    with torch.no_grad():
        vary(model)
    names = list(inputs)
    wrapped = Positional(model, names)
    path.parent.mkdir(parents=True, exist_ok=True)
    silent = io.StringIO()
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        warnings.simplefilter("ignore")
        options = {"input_names": names, "dynamo": exporter == "dynamo"}
        if exporter == "torchscript":
            options["dynamic_axes"] = {name: {axis: f"{name}_{axis}" for axis in axes}
                                       for name, axes in open_axes.items()}
        torch.onnx.export(wrapped, tuple(inputs.values()), str(path), **options)
    return {name: tensor.numpy() for name, tensor in inputs.items()}, open_axes


def exported(name, network, exporters):
    """What exported it, the model's path, its inputs and its open axes; what was exported before is taken."""
    folders = {exporter: CASES / exporter / (name + "_model") for exporter in exporters}
    there = [exporter for exporter, folder in folders.items() if (folder / "axes.json").exists()]
    for exporter in there or exporters:
        folder = folders[exporter]
        try:
            if not there:
                inputs, open_axes = export(network, exporter, folder / "model.onnx")
                np.savez(folder / "inputs.npz", **inputs)
                (folder / "axes.json").write_text(json.dumps(open_axes))
            inputs = dict(np.load(folder / "inputs.npz"))
            return exporter, folder / "model.onnx", inputs, json.loads((folder / "axes.json").read_text())
        except Exception as error:  # of PyTorch's exporters
            last = error
    raise last


def at_other_sizes(inputs, open_axes):
    """Batches twice as large; sequences seven elements shorter, and pictures 32."""
    changed = dict(inputs)
    for name, axes in open_axes.items():
        for axis in axes:
            array = changed[name]
            if axis == 0:
                changed[name] = np.concatenate([array, array])
            elif array.shape[axis] > 1:
                less = 32 if array.ndim == 4 and array.shape[axis] >= 64 else 7
                changed[name] = array.take(range(array.shape[axis] - less), axis)
    return changed


def in_batch(inputs, open_axes, batch):
    """The first axis so many times as large, where it is open, each time with other elements."""
    def repeated(array):
        return np.concatenate([np.roll(array, k, axis=-1) for k in range(batch)])

    return {name: repeated(array) if 0 in open_axes.get(name, []) else array for name, array in inputs.items()}


def in_form(variant, path, inputs):
    """The path of a model as one of ONNX Runtime's tools makes it, and what its outputs may be off by."""
    changed = path.parent.with_name(path.parent.name.removesuffix("_model") + f"_{variant}_model") / "model.onnx"
    changed.parent.mkdir(exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):
        VARIANTS[variant](str(path), str(changed), inputs)
    return changed, tolerance(path, changed, inputs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--exporter", choices=EXPORTERS)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--other-sizes", action="store_true")
    sizes.add_argument("--batch", type=int, help="times networks of torchscript with so many of their inputs at once")
    parser.add_argument("--variant", choices=VARIANTS)
    add_options(parser, "architectures", rounds=3)
    args = parser.parse_args()
    chosen = {name: network for name, network in NETWORKS.items() if re.search(args.only, name)}
    if args.list:
        print("\n".join(chosen))
        return
    rows, load = [], peers.load_average()
    print(HEADER)
    for name, network in chosen.items():
        row = {"network": name}
        rows.append(row)
        if name in NOISY:
            row["verdict"] = "not counted: " + NOISY[name]
            print(line(row), flush=True)
            continue
        exporters = ["torchscript"] if args.other_sizes or args.batch else [args.exporter] if args.exporter else EXPORTERS
        try:
            row["exporter"], path, inputs, open_axes = exported(name, network, exporters)
        except Exception as error:  # the network does not count
            row["verdict"] = "not counted, exporter: " + one_line(error)
            print(line(row), flush=True)
            continue
        if args.other_sizes:
            inputs = at_other_sizes(inputs, open_axes)
        elif args.batch:
            inputs = in_batch(inputs, open_axes, args.batch)
        folder, allowed = CASES / row["exporter"] / name, TOLERANCE
        if args.variant:
            folder = folder.with_name(f"{name}_{args.variant}")
            try:
                path, allowed = in_form(args.variant, path, inputs)
            except Exception as error:  # of the tools or ONNX Runtime: the network does not count
                row["verdict"] = "not counted, tool: " + one_line(error)
                print(line(row), flush=True)
                continue
        row["megabytes"] = sum(file.stat().st_size for file in path.parent.glob("model.onnx*")) / 1e6
        compare(row, args, folder, path, lambda: inputs, lambda output: allowed)
        print(line(row), flush=True)
    print(summary(rows, "networks"))
    if args.write:
        notes = saturation_note() if args.variant else []
        text = "\n\n".join([summary(rows, "networks"), *notes, "\n".join([HEADER, *map(line, rows)])])
        form = f" in the form {args.variant}" if args.variant else ""
        form += f" in batches of {args.batch}" if args.batch else ""
        which = (f"_{args.variant}" if args.variant else "") + (f"_batch{args.batch}" if args.batch else "")
        write_report(args, "architectures" + which,
                     f"Networks exported by PyTorch{form}, {args.date}", load, text)


def line(row):
    megabytes = f"{row['megabytes']:.1f}" if "megabytes" in row else ""
    return f"| {row['network']} | {row.get('exporter', '')} | {megabytes} | {measured(row)} |"


if __name__ == "__main__":
    main()
