"""TreeEnsemble operators: every sample descends all trees at once, one branch per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.ml.forests import Ensemble, Forest, numbers_of, of_lists, of_tensors
from popgraph.operators.ml.scores import (
    F32,
    NAMES,
    TRANSFORMS,
    best,
    computed_in,
    constant,
    labels_of,
    one_column,
    pair_of,
    rows_of,
    transformed,
    two_columns,
)
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import ML, STEPS, Lowered, chooses, lowers, without_gradient
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

U64 = dtypes.BY_NAME["u64"]
U64_TYPE = element_types.BY_NAME["u64"]
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""The aggregate functions, in TreeEnsemble's numbering."""


def _leaves_reached(node: Node, rows: SSAValue, forest: Forest) -> SSAValue:
    """The index of the leaf that each sample reaches in each tree, [samples, trees], in u64."""
    samples, width = shape_of(rows)
    if forest.branches and not 0 <= forest.features.min() <= forest.features.max() < width:
        raise TypeMismatchError(
            f"a branch of {node.op.op_type} reads feature {int(forest.features.max())}, "
            f"but the input has {width}",
            hint="give the features that the model was trained with",
        )
    shape = (samples, len(forest.roots))
    place: SSAValue = gc.BroadcastOp(_whole(node, forest.roots), shape=shape).result
    if forest.depth:
        place = _walked(node, rows, forest, place)
    return gc.SubOp(place, _whole(node, forest.branches)).result


def _walked(node: Node, rows: SSAValue, forest: Forest, place: SSAValue) -> SSAValue:
    """
    The row of each sample's leaf in each tree, after `depth` steps.

    A leaf is a row that leads to itself, so that shallower trees need no test for the end.
    """
    samples, width = shape_of(rows)
    own = np.arange(forest.branches, forest.branches + forest.leaves)
    zeros = np.zeros(forest.leaves, np.int64)
    ways = np.concatenate([forest.following, np.stack([own, own], axis=1)])
    bounds = np.concatenate([forest.thresholds, zeros.astype(forest.thresholds.dtype)])
    flat = reshaped(rows, (samples * width,))
    features = _whole(node, np.concatenate([forest.features, zeros]))
    thresholds, following = node.literal(bounds), _whole(node, ways.reshape(-1))
    differ = bool(forest.missing.any()) and not forest.missing.all()
    flags = np.concatenate([forest.missing, zeros.astype(bool)])
    missing = node.literal(flags) if differ else None
    counted = gc.CastOp(gc.IotaOp(shape=(samples, 1), axis=0, dtype=I64), to=U64_TYPE)
    first = gc.BroadcastOp(gc.MulOp(counted, _whole(node, width)), shape=shape_of(place))
    for _ in range(forest.depth):
        x = gc.GatherOp(flat, gc.AddOp(first, gc.GatherOp(features, place, axis=0)), axis=0)
        threshold = gc.GatherOp(thresholds, place, axis=0)
        answer: Operand = gc.CompareOp(x, threshold, predicate="le")
        if missing is not None:
            known = gc.GatherOp(missing, place, axis=0)
            answer = gc.OrOp(answer, gc.AndOp(gc.IsNanOp(x), known))
        elif forest.missing.all():
            answer = gc.OrOp(answer, gc.IsNanOp(x))
        no = gc.WhereOp(answer, _whole(node, 0), _whole(node, 1))
        two = gc.MulOp(place, _whole(node, 2))
        place = gc.GatherOp(following, gc.AddOp(two, no), axis=0).result
    return place


def _whole(node: Node, places: Array | int) -> SSAValue:
    return node.literal(np.asarray(places).astype(np.uint64))


MERGES: dict[str, tuple[np.ufunc, float, type[gc.ReduceMaxOp | gc.ReduceMinOp]]] = {
    "MAX": (np.maximum, -np.inf, gc.ReduceMaxOp),
    "MIN": (np.minimum, np.inf, gc.ReduceMinOp),
}


def _scores(node: Node, ensemble: Ensemble, reached: SSAValue, aggregate: str = "SUM") -> SSAValue:
    """The aggregated weights of leaves without base values, [samples, targets]; 0 if none."""
    dtype = computed_in(node).numpy
    merge, neutral, reduce = MERGES.get(aggregate, (np.add, 0, gc.ReduceSumOp))
    table = np.full((ensemble.forest.leaves, ensemble.count), neutral, dtype)
    merge.at(table, (ensemble.leaves, ensemble.targets), ensemble.weights.astype(dtype))
    found = reduce(_looked_up(node, table, reached), axes=[1], keepdims=False)
    if aggregate == "SUM":
        return found.result
    if aggregate == "AVERAGE":
        trees = node.literal(np.array(len(ensemble.forest.roots), dtype))
        return gc.DivOp(found, trees).result
    none = gc.CompareOp(found, node.literal(np.array(neutral, dtype)), predicate="eq")
    return gc.WhereOp(none, node.literal(np.array(0, dtype)), found).result


def _looked_up(node: Node, table: Array, reached: SSAValue) -> SSAValue:
    """The row of `table` for each reached leaf, [samples, trees, targets]."""
    if table.shape[1] > 1:
        return gc.GatherOp(node.literal(table), reached, axis=0).result
    found = gc.GatherOp(node.literal(table[:, 0]), reached, axis=0)
    return gc.ReshapeOp(found, shape=(*shape_of(reached), 1)).result


# The operators


without_gradient("TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", STEPS, domain=ML)
chooses("TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=ML, post_transform=TRANSFORMS)
chooses("TreeEnsembleRegressor", domain=ML, aggregate_function=("SUM", "AVERAGE", "MIN", "MAX"))


@lowers("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: Node) -> Lowered:
    rows = rows_of(node)
    ensemble = of_lists(node, "target", "target_ids", node.integer("n_targets", 1))
    aggregate = node.text("aggregate_function", "SUM")
    reached = _leaves_reached(node, rows, ensemble.forest)
    scores = _scores(node, ensemble, reached, aggregate)
    base = numbers_of(node, "base_values")
    if base.size:
        if base.size not in (1, ensemble.count):
            raise TypeMismatchError(
                f"TreeEnsembleRegressor has {base.size} base values for {ensemble.count} targets",
                hint="give one for each target, or none",
            )
        scores = gc.AddOp(scores, constant(node, base, rows)).result
    return cast(transformed(node, scores), F32)


def _chosen(node: Node, name: str, default: int, words: Sequence[str]) -> str:
    """The word for an enumerated integer attribute."""
    number = node.integer(name, default)
    if not 0 <= number < len(words):
        numbered = ", ".join(f"{place} ({word})" for place, word in enumerate(words))
        raise TypeMismatchError(f"`{name}` is {number}", hint=f"use one of {numbered}")
    return words[number]


@lowers("TreeEnsemble", domain=ML)
def tree_ensemble(node: Node) -> Lowered:
    aggregate = _chosen(node, "aggregate_function", 1, AGGREGATES)
    ensemble, rows = of_tensors(node), rows_of(node)
    reached = _leaves_reached(node, rows, ensemble.forest)
    scores = _scores(node, ensemble, reached, aggregate)
    transform = _chosen(node, "post_transform", 0, TRANSFORMS)
    return cast(transformed(node, scores, transform), node.dtype)


@lowers("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: Node) -> Lowered:
    """The class of the largest sum; with leaves for only one of two classes, see `_of_two`."""
    rows = rows_of(node)
    count = len(node.integers("classlabels_int64s") or node.texts(NAMES))
    count = count or 1 + max(node.integers("class_ids"), default=0)
    ensemble = of_lists(node, "class", "class_ids", count)
    base = numbers_of(node, "base_values")
    if count == 2 and len(set(node.integers("class_ids"))) == 1:
        return _of_two(node, ensemble, rows, base)
    reached = _leaves_reached(node, rows, ensemble.forest)
    scores = decisive = _scores(node, ensemble, reached)
    if base.size:
        if base.size != count:
            raise TypeMismatchError(
                f"TreeEnsembleClassifier has {base.size} base values for {count} classes",
                hint="give one for each class, or none",
            )
        scores = decisive = gc.AddOp(scores, constant(node, base, rows)).result
    elif _may_lack_scores(ensemble):
        decisive = _where_scored(node, ensemble, reached, scores)
    final = cast(transformed(node, scores), F32)
    return [labels_of(node, best(decisive), count, "classlabels_int64s"), final]


def _may_lack_scores(ensemble: Ensemble) -> bool:
    """Whether a class without any reached leaf (sum 0) could win over negative sums."""
    return bool(np.any(np.less(ensemble.weights, 0))) and bool(
        len(ensemble.weights) < ensemble.count * ensemble.forest.leaves
    )


def _where_scored(node: Node, ensemble: Ensemble, reached: SSAValue, scores: SSAValue) -> SSAValue:
    """The sums of classes with reached leaves; -inf for other classes."""
    table = np.zeros((ensemble.forest.leaves, ensemble.count), dtype_of(scores).numpy)
    table[ensemble.leaves, ensemble.targets] = 1
    found = gc.ReduceMaxOp(_looked_up(node, table, reached), axes=[1], keepdims=False)
    is_some = gc.CompareOp(found, constant(node, 0, scores), predicate="gt")
    return gc.WhereOp(is_some, scores, constant(node, -np.inf, scores)).result


def _of_two(node: Node, ensemble: Ensemble, rows: SSAValue, base: Array) -> Lowered:
    """
    Chooses between two classes by the sum of one: above 0, or above 0.5 if it is a probability.

    As in onnxruntime, the sum of the first class alone counts as that of the positive class.
    """
    is_second = bool((ensemble.targets == 1).any())
    if base.size > 1 - is_second:
        raise node.unsupported(
            f"base values for {base.size} of two classes, with leaves of the "
            f"{'second' if is_second else 'first'} one only",
            "give one base value, and let the leaves have class 0",
        )
    reached = _leaves_reached(node, rows, ensemble.forest)
    sums = _scores(node, ensemble, reached)
    first, score = (SSAValue.get(sliced(sums, {1: (at, 1, 1)})) for at in (0, int(is_second)))
    if base.size:
        score = gc.AddOp(score, constant(node, base[0], rows)).result
    is_share = bool(np.all(np.greater_equal(ensemble.weights, 0)))
    bound = constant(node, 0.5 if is_share else 0, rows)
    above = cast(gc.CompareOp(one_column(score), bound, predicate="gt"), U64)
    if is_second:
        final = transformed(node, two_columns(first, score))
    else:
        final = pair_of(node, score, is_share)
    return [labels_of(node, above, 2, "classlabels_int64s"), cast(final, F32)]
