"""IREE: its own importer for ONNX, compiled for this processor; synchronous on one thread, its task system on more."""
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import onnx
from iree.compiler.tools import CompilerToolError, compile_file
import iree.compiler.version
import iree.runtime

import onnx_function
import python_peer

# Products on packed tiles are three times as fast as without; some kernels of MiniLM want more stack than is allowed.
COMPILE = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling",
           "--iree-llvmcpu-stack-allocation-limit=131072"]
# What the importer's conversions begin at; older models are brought there by onnx itself.
OPSET = 17


def sized(model, inputs):
    """The model for inputs of these sizes, choices among them made."""
    chosen = {name for name, value in inputs.items() if value.ndim == 0 and value.dtype.kind == "i"}
    graph = model.graph
    for value in [value for value in graph.input]:
        if value.name in chosen:
            graph.initializer.append(onnx.numpy_helper.from_array(inputs[value.name], value.name))
            graph.input.remove(value)
        elif value.name in inputs:
            element = value.type.tensor_type.elem_type
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, element, inputs[value.name].shape))
    if next(entry.version for entry in model.opset_import if not entry.domain) < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


class IreePeer:
    def load(self, model, threads, options):
        self.threads = threads
        self.model = onnx_function.fold_batch_norms(onnx.load(model))

    def compile(self, inputs):
        """The program's bytes. Raises RuntimeError with the first line that the importer or compiler said is wrong."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            onnx.save(sized(self.model, inputs), str(folder / "model.onnx"))
            run = subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", str(folder / "model.onnx"),
                                  "-o", str(folder / "model.mlir")], text=True, capture_output=True)
            if run.returncode:
                raise RuntimeError(f"import: {run.stderr.strip().splitlines()[-1]}")
            try:
                return compile_file(str(folder / "model.mlir"), input_type="onnx", target_backends=["llvm-cpu"],
                                    extra_args=COMPILE)
            except CompilerToolError as error:
                wrong = [line for line in str(error).splitlines() if "error:" in line]
                raise RuntimeError(textwrap.shorten((wrong or ["error: no message"])[0].partition("error: ")[2], 160))

    def first_call(self, inputs):
        program = self.compile(inputs)
        driver = "local-sync"
        if self.threads > 1:
            driver = "local-task"
            iree.runtime.flags.parse_flags(f"--task_topology_group_count={self.threads}")
        config = iree.runtime.Config(driver)
        instance = config.vm_instance
        module = iree.runtime.VmModule.copy_buffer(instance, program)
        context = iree.runtime.SystemContext(config=config, vm_modules=[module])
        self.function = context.modules[module.name][self.model.graph.name]
        self.keep = config, context
        given = [value.name for value in self.model.graph.input if value.name in inputs]
        self.inputs = [iree.runtime.asdevicearray(config.device, inputs[name]) for name in given]
        self.names = [output.name for output in self.model.graph.output]
        self.call()

    def call(self):
        self.results = self.function(*self.inputs)

    def outputs(self):
        results = self.results if isinstance(self.results, (tuple, list)) else [self.results]
        return {name: value.to_host() for name, value in zip(self.names, results)}

    def facts(self):
        return {"version": iree.compiler.version.VERSION}


if __name__ == "__main__":
    python_peer.serve(IreePeer())
