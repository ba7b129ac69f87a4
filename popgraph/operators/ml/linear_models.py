"""LinearClassifier and LinearRegressor: a matmul and an intercept."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.ml.scores import (
    F32,
    NAMES,
    TRANSFORMS,
    best,
    constant,
    labels_of,
    one_column,
    pair_of,
    reals,
    rows_of,
    transformed,
)
from popgraph.operators.node import Node
from popgraph.operators.record import ML, Lowered, chooses, lowers
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError

chooses("LinearClassifier", "LinearRegressor", domain=ML, post_transform=TRANSFORMS)


@lowers("LinearRegressor", domain=ML)
def linear_regressor(node: Node) -> Lowered:
    scores = _products(node, rows_of(node), node.integer("targets", 1))
    return cast(transformed(node, scores), F32)


@lowers("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> Lowered:
    """The class of the largest score; the sign of a single score chooses between two classes."""
    labels = node.integers("classlabels_ints") or tuple(range(len(node.texts(NAMES))))
    rows = cast(rows_of(node), F32)
    count = max(1, len(node.reals("coefficients")) // max(1, shape_of(rows)[1]))
    scores = _products(node, rows, count)
    if count > 1:
        labelled = labels_of(node, best(scores), count, "classlabels_ints")
        return [labelled, transformed(node, scores)]
    above = gc.CompareOp(one_column(scores), constant(node, 0, scores), predicate="gt")
    named = labels if len(labels) == 2 else (0, 1)
    places = cast(above, dtypes.BY_NAME["u64"])
    chosen = gc.GatherOp(node.literal(np.array(named, np.int64)), places, axis=0)
    if len(labels) == 2:
        return [chosen, pair_of(node, scores, is_share=True)]
    return [chosen, transformed(node, scores)]


def _products(node: Node, rows: SSAValue, count: int) -> SSAValue:
    """`rows @ coefficients.T + intercepts`."""
    features = shape_of(rows)[1]
    coefficients = reals(node, "coefficients")
    if len(coefficients) != count * features:
        raise TypeMismatchError(
            f"{node.op.op_type} has {len(coefficients)} coefficients "
            f"for {count} rows of {features} features",
            hint="give `coefficients` for each target or class and each feature",
        )
    matrix = constant(node, coefficients.reshape(count, features).T, rows)
    scores = gc.MatMulOp(rows, matrix)
    intercepts = reals(node, "intercepts")
    if not intercepts.size:
        return scores.result
    if len(intercepts) != count:
        raise TypeMismatchError(
            f"{node.op.op_type} has {len(intercepts)} intercepts for {count} targets or classes",
            hint="give one for each, or none",
        )
    return gc.AddOp(scores, constant(node, intercepts, rows)).result
