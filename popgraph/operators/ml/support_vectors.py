"""SVMClassifier and SVMRegressor: kernels, pairwise votes, and coupled probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER
from popgraph.operators.arithmetic import cast
from popgraph.operators.ml.scores import (
    F32,
    NAMES,
    TRANSFORMS,
    best,
    constant,
    labels_of,
    pair_of,
    reals,
    rows_of,
    transform_of,
    transformed,
    two_columns,
)
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import ML, Lowered, chooses, lowers
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

LEAST_SHARE = 1e-7
"""Pairwise probabilities are clamped to [1e-7, 1 - 1e-7], as in libsvm."""
SWEEPS = 100
"""libsvm's maximal number of sweeps; then it takes the current probabilities."""
TOLERANCE = 0.005
"""libsvm's tolerance of convergence, divided by the number of classes."""


def _matrix(node: Node, name: str, rows: int) -> Array:
    found = reals(node, name)
    if not rows or not found.size or found.size % rows:
        raise TypeMismatchError(
            f"`{name}` of {node.op.op_type} has {found.size} elements for {rows} rows",
            hint="give every row the same number of elements",
        )
    return found.reshape(rows, -1)


# Kernels


def _kernels(node: Node, rows: SSAValue, vectors: Array, kind: str) -> SSAValue:
    """The kernel of each sample and vector, [samples, vectors]."""
    if vectors.shape[1] != shape_of(rows)[1]:
        raise TypeMismatchError(
            f"the vectors of {node.op.op_type} have {vectors.shape[1]} features, "
            f"but its input has {shape_of(rows)[1]}",
            hint="give the features that the model was trained with",
        )
    gamma, shift, degree = (*node.reals("kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        return _radial(node, rows, vectors, gamma)
    products: Operand = gc.MatMulOp(rows, constant(node, vectors.T, rows))
    if kind == "LINEAR":
        return SSAValue.get(products)
    scaled = gc.MulOp(products, constant(node, gamma, rows))
    moved = gc.AddOp(scaled, constant(node, shift, rows))
    if kind == "POLY":
        return gc.PowOp(moved, constant(node, degree, rows)).result
    if kind == "SIGMOID":
        return gc.TanhOp(moved).result
    raise node.unsupported(f"the kernel {kind!r}", "use LINEAR, POLY, RBF or SIGMOID")


def _radial(node: Node, rows: SSAValue, vectors: Array, gamma: float) -> SSAValue:
    """`exp(-gamma * |x - v|^2)`, by differences: |x|^2 + |v|^2 - 2xv would cancel."""
    samples, width = shape_of(rows)
    column = gc.ReshapeOp(rows, shape=(samples, 1, width))
    differences = gc.SubOp(column, constant(node, vectors[None], rows))
    squares = gc.MulOp(differences, differences)
    distances = gc.ReduceSumOp(squares, axes=[2], keepdims=False)
    return gc.ExpOp(gc.MulOp(distances, constant(node, -gamma, rows))).result


# The operators

chooses(
    "SVMClassifier",
    "SVMRegressor",
    domain=ML,
    kernel_type=("LINEAR", "POLY", "RBF", "SIGMOID"),
    post_transform=TRANSFORMS,
)


@lowers("SVMRegressor", domain=ML)
def svm_regressor(node: Node) -> Lowered:
    """A weighted sum of kernels plus rho; with `one_class`, its sign."""
    rows = rows_of(node)
    count = node.integer("n_supports")
    weights = reals(node, "coefficients")
    kind = node.text("kernel_type", "LINEAR")
    if count:
        kernels = _kernels(node, rows, _matrix(node, "support_vectors", count), kind)
    else:
        kernels = _kernels(node, rows, np.eye(shape_of(rows)[1], dtype=np.float32), "LINEAR")
    if len(weights) != shape_of(kernels)[1]:
        raise TypeMismatchError(
            f"SVMRegressor has {len(weights)} coefficients for {shape_of(kernels)[1]} vectors",
            hint="give one per support vector, or one per feature if there are no vectors",
        )
    scores: SSAValue = gc.MatMulOp(kernels, constant(node, weights[:, None], rows)).result
    rho = reals(node, "rho")
    if rho.size:
        scores = gc.AddOp(scores, constant(node, rho[0], rows)).result
    if node.integer("one_class"):
        above = gc.CompareOp(scores, constant(node, 0, rows), predicate="gt")
        one, other = (constant(node, number, rows) for number in (1, -1))
        scores = gc.WhereOp(above, one, other).result
    return cast(transformed(node, scores), F32)


@lowers("SVMClassifier", domain=ML)
def svm_classifier(node: Node) -> Lowered:
    rows = cast(rows_of(node), F32)
    counts = node.integers("vectors_per_class")
    labels = node.integers("classlabels_ints") or node.texts(NAMES)
    classes = len(labels) or max(1, len(counts))
    return (_by_votes if counts else _by_products)(node, rows, classes)


def _by_products(node: Node, rows: SSAValue, classes: int) -> Lowered:
    """A linear score per class, for a model without support vectors."""
    products = _kernels(node, rows, _matrix(node, "coefficients", classes), "LINEAR")
    shift = constant(node, reals(node, "rho")[:1].sum(), rows)
    scores = gc.AddOp(products, shift).result
    return [labels_of(node, best(scores), classes, "classlabels_ints"), transformed(node, scores)]


def _by_votes(node: Node, rows: SSAValue, classes: int) -> Lowered:
    """One-versus-one classification: every pair of classes votes for one of them."""
    counts = node.integers("vectors_per_class")
    if len(counts) != classes:
        raise TypeMismatchError(
            f"SVMClassifier has vectors of {len(counts)} classes, but {classes} labels",
            hint="give one element of `vectors_per_class` per class",
        )
    vectors = _matrix(node, "support_vectors", sum(counts))
    kernels = _kernels(node, rows, vectors, node.text("kernel_type", "LINEAR"))
    pairs = list(combinations(range(classes), 2))
    rho = reals(node, "rho")
    if len(rho) != len(pairs):
        raise TypeMismatchError(
            f"`rho` of SVMClassifier has {len(rho)} elements for {len(pairs)} pairs of classes",
            hint="give one per pair",
        )
    weights = _pair_weights(node, counts, pairs)
    scores = gc.AddOp(
        gc.MatMulOp(kernels, constant(node, weights, rows)), constant(node, rho, rows)
    ).result
    places = best(_votes(node, scores, classes, pairs))
    if node.reals("prob_a"):
        final = transformed(node, _probabilities(node, scores, classes, pairs))
    elif classes == 2:
        # As in onnxruntime: any post transform completes the score to 1, none negates it.
        final = pair_of(node, scores, is_share=transform_of(node) != "NONE")
    else:
        final = transformed(node, scores)
    return [labels_of(node, places, classes, "classlabels_ints"), final]


def _pair_weights(node: Node, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """
    The weight of each vector in each pair's score, [vectors, pairs].

    `coefficients` is libsvm's layout, [classes - 1, vectors]: a vector's weights against the other
    classes.
    """
    total = sum(counts)
    rows = _matrix(node, "coefficients", len(counts) - 1)
    if rows.shape[1] != total:
        raise TypeMismatchError(
            f"SVMClassifier has {rows.size} coefficients for {total} vectors "
            f"of {len(counts)} classes",
            hint="give one for each vector and each class except its own",
        )
    ends = np.cumsum([0, *counts])
    weights = np.zeros((total, len(pairs)), np.float32)
    for column, (one, other) in enumerate(pairs):
        first, second = slice(*ends[one : one + 2]), slice(*ends[other : other + 2])
        weights[first, column] = rows[other - 1, first]
        weights[second, column] = rows[one, second]
    return weights


def _votes(
    node: Node, scores: SSAValue, classes: int, pairs: Sequence[tuple[int, int]]
) -> SSAValue:
    """The number of votes for each class, as one matmul."""
    zero = constant(node, 0, scores)
    first = cast(gc.CompareOp(scores, zero, predicate="gt"), dtype_of(scores))
    table = np.zeros((2, len(pairs), classes), np.float32)
    for column, pair in enumerate(pairs):
        table[(0, 1), column, pair] = 1
    gains = constant(node, table[0] - table[1], scores)
    return gc.AddOp(gc.MatMulOp(first, gains), constant(node, table[1].sum(0), scores)).result


# Probabilities of classes, coupled from pairwise ones like in libsvm


def _probabilities(
    node: Node, scores: SSAValue, classes: int, pairs: Sequence[tuple[int, int]]
) -> SSAValue:
    """The probability of each class, [samples, classes], from the scores of pairs."""
    scale, shift = reals(node, "prob_a"), reals(node, "prob_b")
    if not len(scale) == len(shift) == len(pairs):
        raise TypeMismatchError(
            f"`prob_a` and `prob_b` of SVMClassifier have {len(scale)} and {len(shift)} elements "
            f"for {len(pairs)} pairs of classes",
            hint="give one of each per pair",
        )
    logit = gc.AddOp(gc.MulOp(scores, constant(node, scale, scores)), constant(node, shift, scores))
    low, high = (constant(node, one, scores) for one in (LEAST_SHARE, 1 - LEAST_SHARE))
    share = gc.MinOp(gc.MaxOp(gc.SigmoidOp(gc.NegOp(logit)), low), high)
    one = constant(node, 1, scores)
    both = two_columns(share, gc.SubOp(one, share))  # P(i | i or j), then P(j | i or j)
    nothing = gc.BroadcastOp(constant(node, 0, scores), shape=(shape_of(scores)[0], 1))
    table = two_columns(both, nothing)
    places = np.full((classes, classes), 2 * len(pairs))
    for column, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = column, len(pairs) + column
    shares = gc.GatherOp(table, node.literal(places.astype(np.uint64)), axis=1)
    return _coupled(node, shares.result, classes)


def _coupled(node: Node, shares: SSAValue, classes: int) -> SSAValue:
    """The best fit to pairwise probabilities, by libsvm's iteration (Wu, Lin, Weng, 2004)."""
    transposed = gc.TransposeOp(shares, perm=[0, 2, 1])
    squares = gc.ReduceSumOp(gc.MulOp(shares, shares), axes=[1], keepdims=True)
    own = constant(node, np.eye(classes)[None], shares)
    form = gc.SubOp(gc.MulOp(own, squares), gc.MulOp(shares, transposed)).result
    samples = shape_of(shares)[0]
    start = constant(node, np.full((samples, classes), 1 / classes), shares)
    return _swept(node, form, start, classes)


def _swept(node: Node, form: SSAValue, start: SSAValue, classes: int) -> SSAValue:
    """A loop of sweeps; converged samples stay, and the loop ends when all have converged."""
    samples = shape_of(start)[0]
    done = gc.BroadcastOp(node.literal(np.array(False)), shape=(samples, 1)).result
    block = Block(arg_types=[NUMBER, start.type, done.type, form.type])
    _, before, was_done, quadratic = block.args
    with ImplicitBuilder(block):
        after, is_done = _sweep(node, quadratic, before, was_done, classes)
        left = gc.ReduceMaxOp(cast(gc.NotOp(is_done), F32), axes=[0, 1], keepdims=False)
        go = gc.CompareOp(left, node.literal(np.array(0, np.float32)), predicate="gt")
        YieldOp([go.result, after, is_done])
    loop = gc.LoopOp(
        max(SWEEPS, classes),
        Region(block),
        carried=[start, done],
        captured=[form],
        go=node.literal(np.array(True)),
    )
    return loop.finals[0]


def _sweep(
    node: Node, form: SSAValue, shares: SSAValue, was_done: SSAValue, classes: int
) -> tuple[SSAValue, SSAValue]:
    """One sweep over all classes, and the mask of samples that had converged before it."""
    samples = shape_of(shares)[0]
    wide = gc.MulOp(form, gc.ReshapeOp(shares, shape=(samples, 1, classes)))
    slopes: SSAValue = gc.ReduceSumOp(wide, axes=[2], keepdims=False).result
    mean: SSAValue = gc.ReduceSumOp(gc.MulOp(shares, slopes), axes=[1], keepdims=True).result
    error = gc.ReduceMaxOp(gc.AbsOp(gc.SubOp(slopes, mean)), axes=[1], keepdims=True)
    near = gc.CompareOp(error, constant(node, TOLERANCE / classes, shares), "lt")
    is_done = gc.OrOp(was_done, near).result
    one, two = (constant(node, number, shares) for number in (1, 2))
    moved = shares
    for at in range(classes):
        row = gc.ReshapeOp(sliced(form, {1: (at, 1, 1)}), shape=(samples, classes))
        own, slope = sliced(row.result, {1: (at, 1, 1)}), sliced(slopes, {1: (at, 1, 1)})
        step = gc.DivOp(gc.SubOp(mean, slope), own)
        whole = gc.AddOp(one, step)
        growth = gc.MulOp(step, gc.AddOp(gc.MulOp(step, own), gc.MulOp(two, slope)))
        mean = gc.DivOp(gc.AddOp(mean, growth), gc.MulOp(whole, whole)).result
        slopes = gc.DivOp(gc.AddOp(slopes, gc.MulOp(step, row)), whole).result
        place = constant(node, np.eye(classes)[at : at + 1], shares)
        moved = gc.DivOp(gc.AddOp(moved, gc.MulOp(step, place)), whole).result
    return gc.WhereOp(is_done, shares, moved).result, is_done
