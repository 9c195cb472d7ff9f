"""Cases of ops.py: models of ai.onnx.ml, as scikit-learn, LightGBM and XGBoost are converted to."""
import numpy as np

from op_models import one, whole

FEATURES = 28


def grown(random, splits, depth):
    """A tree whose leaves are split one after the other, any of them: feature, threshold and two nodes of each split; a
    node below has its number, a leaf -1 - its own."""
    nodes, leaves = [], [(None, 0, 0)]  # where a leaf hangs, and its depth
    while len(nodes) < splits:
        open_leaves = [k for k, (_, _, level) in enumerate(leaves) if level < depth]
        if not open_leaves:
            break
        above, side, level = leaves.pop(open_leaves[random.integers(len(open_leaves))])
        if above is not None:
            nodes[above][2 + side] = len(nodes)
        nodes.append([int(random.integers(FEATURES)), float(random.standard_normal()), None, None])
        leaves += [(len(nodes) - 1, 0, level + 1), (len(nodes) - 1, 1, level + 1)]
    for number, (above, side, _) in enumerate(leaves):
        nodes[above][2 + side] = -1 - number
    return nodes, len(leaves)


def attributes_of(random, kind, trees, splits, depth, targets=1):
    """Of TreeEnsembleRegressor ("target") or TreeEnsembleClassifier ("class"); tree k is of target k % targets."""
    columns = {name: [] for name in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
                                     "nodes_truenodeids", "nodes_falsenodeids", f"{kind}_treeids", f"{kind}_nodeids",
                                     f"{kind}_ids", f"{kind}_weights")}

    def add(prefix, **values):
        for name, value in values.items():
            columns[f"{prefix}_{name}"].append(value)

    for tree in range(trees):
        nodes, leaves = grown(random, splits, depth)
        number = lambda k: k if k >= 0 else len(nodes) - 1 - k
        for k, (feature, threshold, yes, no) in enumerate(nodes):
            add("nodes", treeids=tree, nodeids=k, featureids=feature, values=threshold, modes="BRANCH_LEQ",
                truenodeids=number(yes), falsenodeids=number(no))
        for leaf in range(leaves):
            k = len(nodes) + leaf
            add("nodes", treeids=tree, nodeids=k, featureids=0, values=0.0, modes="LEAF", truenodeids=0, falsenodeids=0)
            add(kind, treeids=tree, nodeids=k, ids=tree % targets, weights=float(random.standard_normal() * 0.1))
    return columns


def regressor(rows, trees, splits, depth):
    return lambda op: op("ai.onnx.ml.TreeEnsembleRegressor", (rows, FEATURES), n_targets=1,
                         **attributes_of(np.random.default_rng(trees), "target", trees, splits, depth))


def classifier(rows, trees, splits, depth, classes):
    """The scores alone: of labels a difference of a last bit may make others."""
    return lambda op: op("ai.onnx.ml.TreeEnsembleRegressor", (rows, FEATURES), n_targets=classes, post_transform="SOFTMAX",
                         **attributes_of(np.random.default_rng(trees), "target", trees, splits, depth, classes))


def support_vectors(rows, kind):
    random = np.random.default_rng(0)
    vectors = [float(x) for x in random.standard_normal(200 * FEATURES)]
    return one("ai.onnx.ml.SVMRegressor", (rows, FEATURES), kernel_type=kind, kernel_params=[0.03, 0.5, 2.0],
               support_vectors=vectors, coefficients=[float(x) for x in random.standard_normal(200)], n_supports=200,
               rho=[0.1])


def linear(rows):
    random = np.random.default_rng(0)
    return lambda op: op("ai.onnx.ml.LinearRegressor",
                         op("ai.onnx.ml.Scaler", (rows, FEATURES), offset=[0.5] * FEATURES, scale=[2.0] * FEATURES),
                         coefficients=[float(x) for x in random.standard_normal(FEATURES)], intercepts=[0.5])


CLASSICAL = {
    **{f"boosted_{rows}_rows": regressor(rows, 100, 30, 12) for rows in (1, 256)},
    **{f"boosted_depth_6_{rows}_rows": regressor(rows, 100, 63, 6) for rows in (1, 256)},
    **{f"boosted_5_classes_{rows}_rows": classifier(rows, 250, 30, 12, 5) for rows in (1, 256)},
    **{f"forest_{rows}_rows": regressor(rows, 50, 600, 20) for rows in (1, 256)},
    **{f"linear_{rows}_rows": linear(rows) for rows in (1, 256)},
    **{f"support_vectors_{kind.lower()}": support_vectors(64, kind) for kind in ("RBF", "POLY")},
    "one_hot_encoder": one("ai.onnx.ml.OneHotEncoder", whole(12, 256, 8), cats_int64s=list(range(10))),
}
FAMILIES = {"classical": CLASSICAL}
