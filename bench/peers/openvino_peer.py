"""OpenVINO: reads ONNX itself; a compiled model and one request whose inputs are the caller's memory."""
import openvino

import python_peer


class OpenVinoPeer:
    def load(self, model, threads, options):
        core = openvino.Core()
        # f32 as the others compute; the latency hint is meant for one request at a time.
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
        self.core, self.settings = core, settings | options
        self.model = core.read_model(model)

    def first_call(self, inputs):
        # Sizes are known before the compile, as OpenVINO advises; it may then plan all memory.
        self.model.reshape({name: list(value.shape) for name, value in inputs.items()})
        self.compiled = self.core.compile_model(self.model, "CPU", self.settings)
        self.request = self.compiled.create_infer_request()
        for name, value in inputs.items():
            self.request.set_tensor(name, openvino.Tensor(value, shared_memory=True))
        self.call()

    def call(self):
        self.request.infer()

    def outputs(self):
        return {port.get_any_name(): self.request.get_tensor(port).data.copy()
                for port in self.compiled.outputs}

    def facts(self):
        return {"version": openvino.__version__}


if __name__ == "__main__":
    python_peer.serve(OpenVinoPeer())
