#!/usr/bin/env python3
"""Writes what ONNX Runtime gives for ops of ai.onnx.ml: tests/onnx/classical_cases.zip, in the ONNX backend-test layout.

usage: make_classical_cases.py      (needs: pip install onnxruntime onnx numpy)
"""

import pathlib

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from make_contrib_cases import Cases, floats

FEATURES, ROWS = 6, 9
random = numpy.random.default_rng(1)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def rows(nan=False, dtype=numpy.float32):
    """Half of the numbers are whole, which thresholds are too."""
    x = random.standard_normal((ROWS, FEATURES)) * 2
    x = numpy.where(random.random(x.shape) < 0.5, numpy.round(x), x)
    if nan:
        x[random.random(x.shape) < 0.2] = numpy.nan
    return x.astype(dtype)


class Trees:
    """Attributes of random trees of at most `depth` levels."""

    def __init__(self, kind, count, depth, targets, modes=("BRANCH_LEQ",), one_target=False, tracks=False, positive=False):
        self.kind, self.modes, self.tracks, self.positive = kind, modes, tracks, positive
        self.nodes = {name: [] for name in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
            "missing_value_tracks_true")}
        self.leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
        for tree in range(count):
            self.targets = [tree % targets] if one_target else range(targets)
            self.next = 0
            self.grow(tree, depth)

    def grow(self, tree, depth):
        number, self.next = self.next, self.next + 1
        is_leaf = depth == 0 or (number > 0 and random.random() < 0.25)
        place = len(self.nodes["treeids"])
        mode = "LEAF" if is_leaf else str(random.choice(self.modes))
        for name, value in (
            ("treeids", tree), ("nodeids", number), ("featureids", int(random.integers(FEATURES))),
            ("values", float(numpy.round(random.standard_normal() * 1.5))), ("modes", mode), ("truenodeids", 0),
            ("falsenodeids", 0), ("missing_value_tracks_true", int(self.tracks and random.random() < 0.5))
        ):
            self.nodes[name].append(value)
        if is_leaf:
            for target in self.targets:
                weight = random.random() if self.positive else random.standard_normal()
                for name, value in (("treeids", tree), ("nodeids", number), ("ids", target), ("weights", float(weight))):
                    self.leaves[name].append(value)
        else:
            self.nodes["truenodeids"][place] = self.grow(tree, depth - 1)
            self.nodes["falsenodeids"][place] = self.grow(tree, depth - 1)
        return number

    def attributes(self):
        result = {f"nodes_{name}": values for name, values in self.nodes.items()}
        result.update({f"{self.kind}_{name}": values for name, values in self.leaves.items()})
        if not self.tracks:
            del result["nodes_missing_value_tracks_true"]
        return result


def regressors(cases):
    def add(case, trees, x, **attributes):
        cases.add("tree_regressor_" + case, "TreeEnsembleRegressor", [x], 1, domain="ai.onnx.ml", version=3,
                  **trees.attributes(), **attributes)

    add("one", Trees("target", 5, 3, 1), rows(), n_targets=1)
    add("fixed_sizes", Trees("target", 40, 4, 1), rows(), n_targets=1, symbolic=False)
    add("base", Trees("target", 5, 3, 1), rows(), n_targets=1, base_values=[0.5])
    add("nan", Trees("target", 20, 4, 1), rows(nan=True), n_targets=1)
    for mode in MODES:
        add(mode.lower(), Trees("target", 20, 4, 1, [mode]), rows(), n_targets=1)
    add("all_modes", Trees("target", 40, 4, 1, MODES), rows(), n_targets=1)
    add("tracks", Trees("target", 20, 4, 1, ["BRANCH_LEQ"], tracks=True), rows(nan=True), n_targets=1)
    add("targets", Trees("target", 12, 3, 3), rows(), n_targets=3, base_values=[0.5, -1.0, 0.25])
    add("own_targets", Trees("target", 12, 3, 3, one_target=True), rows(), n_targets=3)
    add("uneven_targets", Trees("target", 13, 3, 3, one_target=True), rows(), n_targets=3)
    add("unused_target", Trees("target", 4, 3, 2), rows(), n_targets=3)
    add("many_depths", Trees("target", 120, 9, 1), rows(), n_targets=1)
    for how in ("AVERAGE", "MIN", "MAX"):
        add(how.lower(), Trees("target", 12, 3, 2), rows(), n_targets=2, aggregate_function=how)
    for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        add(transform.lower(), Trees("target", 6, 3, 3), rows(), n_targets=3, post_transform=transform)
    add("probit", Trees("target", 1, 3, 1, positive=True), rows(), n_targets=1, post_transform="PROBIT")
    add("of_f64", Trees("target", 6, 3, 1), rows(dtype=numpy.float64), n_targets=1)


def classifiers(cases):
    def add(case, trees, labels, x=None, **attributes):
        cases.add("tree_classifier_" + case, "TreeEnsembleClassifier", [rows() if x is None else x], 2,
                  domain="ai.onnx.ml", version=3, integer_outputs=(0,), integer=TensorProto.INT64,
                  classlabels_int64s=labels, **trees.attributes(), **attributes)

    add("three", Trees("class", 10, 3, 3, positive=True), [7, 3, 5])
    add("three_softmax", Trees("class", 9, 3, 3, one_target=True), [0, 1, 2], post_transform="SOFTMAX")
    add("three_logistic_base", Trees("class", 9, 3, 3), [0, 1, 2], post_transform="LOGISTIC", base_values=[0.1, 0.2, -0.3])
    add("one_of_two", Trees("class", 10, 3, 1), [0, 1])
    add("one_of_two_logistic", Trees("class", 10, 3, 1), [0, 1], post_transform="LOGISTIC", base_values=[0.3])
    add("probabilities", Trees("class", 1, 3, 1, positive=True), [2, 3])
    add("nan", Trees("class", 10, 4, 3, MODES), [0, 1, 2], rows(nan=True))


def tree_ensembles(cases):
    """Of whole numbers: ONNX Runtime cuts others before it looks for them among members."""
    def tensor(name, numbers, dtype):
        return numpy_helper.from_array(numpy.array(numbers, dtype), name)

    def add(case, x, dtype, **attributes):
        cases.add("tree_ensemble_" + case, "TreeEnsemble", [x], 1, domain="ai.onnx.ml", version=5, dtype=dtype, **attributes)

    for name, dtype, kind in (("f32", numpy.float32, TensorProto.FLOAT), ("f64", numpy.float64, TensorProto.DOUBLE)):
        add(f"members_{name}", numpy.round(rows(dtype=dtype)), kind, n_targets=2, aggregate_function=1, post_transform=0, tree_roots=[0, 2],
            nodes_featureids=[0, 1, 2], nodes_modes=tensor("modes", [6, 0, 6], numpy.uint8),
            nodes_splits=tensor("splits", [0, 0.5, 0], dtype), nodes_truenodeids=[1, 0, 2], nodes_trueleafs=[0, 1, 1],
            nodes_falsenodeids=[3, 1, 0], nodes_falseleafs=[1, 1, 1], leaf_targetids=[0, 1, 0, 1],
            leaf_weights=tensor("weights", [1.5, -2, 0.25, 4], dtype),
            membership_values=tensor("members", [1, -1, 2, numpy.nan, 0, numpy.nan], dtype))


def others(cases):
    def add(case, op, inputs, outputs=1, **more):
        cases.add("ml_" + case, op, inputs, outputs, domain="ai.onnx.ml", version=2, **more)

    ones = numpy.array
    add("scaler", "Scaler", [rows()], offset=[float(k) for k in range(FEATURES)], scale=[0.5 * k for k in range(FEATURES)])
    add("scaler_one", "Scaler", [rows()], offset=[1.0], scale=[2.0])
    add("binarizer", "Binarizer", [rows()], threshold=0.25)
    for norm in ("MAX", "L1", "L2"):
        add("normalizer_" + norm.lower(), "Normalizer", [rows()], norm=norm)
    add("imputer", "Imputer", [rows(nan=True)], imputed_value_floats=[float(k) for k in range(FEATURES)],
        replaced_value_float=float("nan"))
    add("imputer_number", "Imputer", [rows()], imputed_value_floats=[7.5], replaced_value_float=1.0)
    add("features", "ArrayFeatureExtractor", [rows(), ones([4, 0, 2], numpy.int64)])
    add("vectorizer", "FeatureVectorizer", [rows(), rows()], inputdimensions=[FEATURES, FEATURES], symbolic=False)
    add("one_hot", "OneHotEncoder", [ones([[1, 3], [2, 9]], numpy.int64)], cats_int64s=[1, 2, 3])
    add("labels", "LabelEncoder", [ones([3, 1, 8, 2], numpy.int64)], keys_int64s=[1, 2, 3], values_floats=[0.5, 1.5, -2.0],
        default_float=9.0)
    add("labels_of_floats", "LabelEncoder", [ones([0.5, numpy.nan, 8, 2], numpy.float32)],
        keys_floats=[0.5, float("nan"), 2.0], values_int64s=[5, 6, 7], default_int64=-3, integer_outputs=(0,),
        integer=TensorProto.INT64)
    numbers = [float(x) for x in floats(3 * FEATURES)]
    add("linear_regressor", "LinearRegressor", [rows()], coefficients=numbers, intercepts=[0.1, 0.2, 0.3], targets=3)
    add("linear_regressor_one", "LinearRegressor", [rows()], coefficients=numbers[:FEATURES])
    labelled = {"outputs": 2, "integer_outputs": (0,), "integer": TensorProto.INT64}
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        add("linear_classifier_" + transform.lower(), "LinearClassifier", [rows()], coefficients=numbers,
            intercepts=[0.1, 0.2, 0.3], classlabels_ints=[4, 5, 6], post_transform=transform, multi_class=1, **labelled)
        if transform != "SOFTMAX":
            add("linear_classifier_one_" + transform.lower(), "LinearClassifier", [rows()], coefficients=numbers[:FEATURES],
                intercepts=[0.1], classlabels_ints=[4, 5], post_transform=transform, **labelled)
    vectors = [float(x) for x in floats(4 * FEATURES)]
    for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        add("svm_" + kind.lower(), "SVMRegressor", [rows()], kernel_type=kind, kernel_params=[0.2, 0.5, 2.0],
            support_vectors=vectors, coefficients=[0.5, -1.0, 2.0, 0.25], n_supports=4, rho=[0.3])
    add("svm_of_one_class", "SVMRegressor", [rows()], kernel_type="RBF", kernel_params=[0.2, 0.5, 2.0],
        support_vectors=vectors, coefficients=[0.5, -1.0, 2.0, 0.25], n_supports=4, rho=[0.3], one_class=1)
    add("svm_weights", "SVMRegressor", [rows()], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0],
        coefficients=numbers[:FEATURES], rho=[0.3])


def support_vectors(cases):
    def add(case, counts, pairs, **attributes):
        vectors, classes = sum(counts), len(counts)
        cases.add(
            "svm_classifier_" + case, "SVMClassifier", [rows()], 2, domain="ai.onnx.ml", version=1, integer_outputs=(0,),
            integer=TensorProto.INT64, classlabels_ints=list(range(5, 5 + classes)), kernel_params=[0.2, 0.5, 2.0],
            support_vectors=[float(x) for x in floats(vectors * FEATURES)], vectors_per_class=counts,
            coefficients=[float(x) for x in floats((classes - 1) * vectors)], rho=[float(x) for x in floats(pairs)], **attributes)

    for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        add(kind.lower(), [3, 2, 4, 1], 6, kernel_type=kind)
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        add("three_" + transform.lower(), [3, 2, 4], 3, kernel_type="RBF", post_transform=transform)
        add("two_" + transform.lower(), [3, 4], 1, kernel_type="RBF", post_transform=transform)
    for counts in ([3, 4], [3, 2, 4], [3, 1, 2, 4, 2]):
        pairs = len(counts) * (len(counts) - 1) // 2
        add(f"probabilities_{len(counts)}", counts, pairs, kernel_type="RBF", prob_a=[-1 - float(x) for x in abs(floats(pairs))],
            prob_b=[float(x) for x in floats(pairs)])


def texts(cases):
    """Strings, and maps, which are expected as the tensor of their values."""
    def words(*strings):
        return numpy.array(strings, dtype=object)

    def add(case, nodes, inputs, results, constants=(), version=3):
        """`results`: name to element type, or to the keys of maps."""
        def info(name, what):
            if not isinstance(what, list):
                return helper.make_tensor_value_info(name, what, None)
            key = TensorProto.STRING if isinstance(what[0], str) else TensorProto.INT64
            value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
            return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_map_type_proto(key, value)))

        def given(name, x):
            kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
            return helper.make_tensor_value_info(name, kind, [f"{name}_{k}" for k in range(x.ndim)])

        graph = helper.make_graph(
            nodes, case, [given(name, x) for name, x in inputs.items()], [info(*result) for result in results.items()],
            [helper.make_tensor(name, TensorProto.STRING, x.shape, [s.encode() for s in x.ravel()]) for name, x in constants])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        arrays = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)
        cases.write(f"text_{case}/model.onnx", model)
        for k, array in enumerate(arrays):
            if isinstance(array, list):
                arrays[k] = numpy.array([[row[key] for key in results[list(results)[k]]] for row in array], numpy.float32)
        for stem, all_arrays in (("input", list(inputs.values())), ("output", arrays)):
            for k, array in enumerate(all_arrays):
                path = f"text_{case}/test_data_set_0/{stem}_{k}.pb"
                cases.write(path, numpy_helper.from_array(array).SerializeToString())

    def ml(op, inputs, outputs, **attributes):
        return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)

    numbers = [float(x) for x in floats(3 * FEATURES)]
    text, real, whole = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64
    for labels in (["setosa", "versicolor", "virginica"], [7, 3, 5]):
        kind = text if isinstance(labels[0], str) else whole
        name = "strings" if kind == text else "numbers"
        labelled = {"classlabels_strings" if kind == text else "classlabels_ints": labels}
        zipped = {"classlabels_strings" if kind == text else "classlabels_int64s": labels}
        add("classifier_with_maps_of_" + name, [
            ml("LinearClassifier", ["x"], ["label", "scores"], coefficients=numbers, intercepts=[0.1, 0.2, 0.3], **labelled),
            ml("Normalizer", ["scores"], ["shares"], norm="L1"),
            ml("ZipMap", ["shares"], ["maps"], **zipped)], {"x": rows()}, {"label": kind, "maps": labels})
    trees = Trees("class", 10, 3, 3, positive=True).attributes()
    add("trees", [ml("TreeEnsembleClassifier", ["x"], ["label", "scores"], classlabels_strings=["b", "a", "c"], **trees)],
        {"x": rows()}, {"label": text, "scores": real})
    add("labels_by_number", [
        helper.make_node("ArgMax", ["x"], ["class"], axis=1, keepdims=0),
        ml("ArrayFeatureExtractor", ["names", "class"], ["picked"]),
        helper.make_node("Cast", ["picked"], ["same"], to=text),
        helper.make_node("Reshape", ["same", "sizes"], ["label"])],
        {"x": rows()[:, :3].copy(), "sizes": numpy.array([-1], numpy.int64)}, {"label": text},
        [("names", words("no", "yes", "maybe"))])
    colours = words("red", "blue", "", "violet", "red", "Blue").reshape(3, 2)
    add("categories", [
        ml("OneHotEncoder", ["x"], ["hot"], cats_strings=["blue", "red", "green"]),
        ml("LabelEncoder", ["x"], ["number"], keys_strings=["red", "blue"], values_floats=[0.5, -1.5], default_float=9.0),
        ml("LabelEncoder", ["x"], ["other"], keys_strings=["red", "blue"], values_strings=["rot", "blau"]),
        ml("LabelEncoder", ["x"], ["place"], keys_strings=["", "red"], values_int64s=[4, 6], default_int64=-3)],
        {"x": colours}, {"hot": real, "number": real, "other": text, "place": whole})
    add("moved", [
        helper.make_node("Transpose", ["x"], ["turned"]),
        helper.make_node("Concat", ["turned", "y"], ["joined"], axis=1),
        helper.make_node("Gather", ["joined", "i"], ["gathered"], axis=1),
        helper.make_node("Equal", ["turned", "y"], ["equal"]),
        helper.make_node("Equal", ["x", "red"], ["is_red"]),
        helper.make_node("Where", ["is_red", "x", "red"], ["chosen"]),
        helper.make_node("Identity", ["joined"], ["same"])],
        {"x": colours, "y": words("red", "blue", "green", "", "violet", "blue").reshape(2, 3), "i": numpy.array([4, 0], numpy.int64)},
        {"gathered": text, "equal": TensorProto.BOOL, "is_red": TensorProto.BOOL, "chosen": text, "same": text},
        [("red", words("red"))])
    classes = {"classes_strings": ["red", "blue", ""], "default_int64": -7, "default_string": "none"}
    add("labels_of_version_1", [ml("LabelEncoder", ["x"], ["i"], **classes), ml("LabelEncoder", ["k"], ["y"], **classes)],
        {"x": colours, "k": numpy.array([2, 0, 5, -1], numpy.int64)}, {"i": whole, "y": text}, version=1)
    pairs = {"cats_strings": ["red", "blue"], "cats_int64s": [5, -2]}
    add("category_mapper", [ml("CategoryMapper", ["x"], ["i"], **pairs), ml("CategoryMapper", ["k"], ["y"], default_string="", **pairs)],
        {"x": colours, "k": numpy.array([5, -2, 0], numpy.int64)}, {"i": whole, "y": text}, version=1)
    grams = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 2, "ngram_counts": [0, 3, 7], "ngram_indexes": [4, 0, 1, 6, 2, 3],
             "pool_strings": ["red", "blue", "", "red", "red", "red", "blue", "red", "blue", "red"]}
    words_of = lambda *sizes: words(*random.choice(["red", "blue", "", "green"], sizes).ravel()).reshape(sizes)
    for mode in ("TF", "IDF", "TFIDF"):
        add("ngrams_" + mode.lower(), [helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode=mode, weights=[0.5, 2.0, 1.5, 3.0, 0.25, 4.0], **grams)],
            {"x": words_of(4, 9)}, {"y": real})
    add("ngrams_of_few", [helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", **grams)], {"x": words_of(2)}, {"y": real})
    add("numbers_to_labels", [ml("LabelEncoder", ["x"], ["y"], keys_int64s=[1, 2], values_strings=["one", "two"], default_string="many")],
        {"x": numpy.array([2, 1, 5], numpy.int64)}, {"y": text})


def main():
    cases = Cases(pathlib.Path(__file__).parent / "classical_cases.zip")
    for family in (regressors, classifiers, tree_ensembles, others, support_vectors, texts):
        family(cases)
    cases.file.close()


if __name__ == "__main__":
    main()
