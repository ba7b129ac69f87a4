"""Operators without a gradient, and why each has none."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from popgraph.dialects.onnx import SCHEMAS
from popgraph.passes.onnx.operator_ways import Row, Way, rows

STEPS = "between its jumps the result does not move: the gradient is zero"
INTEGERS = "the result is rounded to integers; with `straight_through`, gradients pass it"
STRUCTURE = "its inputs decide a structure, and are known when the model is compiled"
HOSTED = "Python computes it, and models with such nodes are not trained"

DRAWN = "the result is drawn"
DETACHED = "that is its meaning"
ZERO = frozenset((STEPS, INTEGERS, DRAWN, DETACHED))
"""Reasons for which the gradient is zero: it is there, and moves nothing."""

REASONS: Mapping[str, str] = {
    name: why
    for names, why in (
        ("Floor Ceil Round Sign Hardmax ai.graphcore.NearbyInt ai.graphcore.Round", STEPS),
        ("ai.onnx.ml.Binarizer ai.onnx.ml.TreeEnsemble", STEPS),
        ("ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor", STEPS),
        ("ai.onnx.ml.LabelEncoder ai.onnx.ml.OneHotEncoder", "it compares its input with keys"),
        ("QuantizeLinear QLinearConv QLinearMatMul com.microsoft.QuantizeLinear", INTEGERS),
        ("com.microsoft.QGemm com.microsoft.QLinearAdd com.microsoft.QLinearConcat", INTEGERS),
        ("com.microsoft.QLinearGlobalAveragePool com.microsoft.QLinearLeakyRelu", INTEGERS),
        ("com.microsoft.QLinearMul com.microsoft.QLinearSigmoid", INTEGERS),
        ("com.microsoft.QLinearSoftmax com.microsoft.QLinearWhere", INTEGERS),
        ("com.microsoft.QLinearConv com.microsoft.QLinearAveragePool", INTEGERS),
        ("com.microsoft.DynamicQuantizeLSTM", INTEGERS),
        ("com.microsoft.NhwcMaxPool com.microsoft.MatMulInteger16", "it takes integers"),
        ("com.microsoft.MurmurHash3 com.microsoft.NGramHashMapping", "it hashes integers"),
        ("com.microsoft.VarlenNGramHashMapping", "it hashes integers"),
        ("com.microsoft.BifurcationDetector com.microsoft.GatherPacked", "it takes integers"),
        ("com.microsoft.DynamicTimeWarping com.microsoft.GreedySearch", HOSTED),
        ("com.microsoft.Unique", "data decide how many elements its result has"),
        ("Bernoulli RandomNormalLike RandomUniformLike", DRAWN),
        ("Range MelWeightMatrix com.microsoft.Range", STRUCTURE),
        ("BitCast", "it is about the bits of numbers, which have no slope"),
        ("EyeLike", "only the shape of its input counts"),
        ("ai.graphcore.Detach", DETACHED),
        ("ai.graphcore.BitwiseAnd ai.graphcore.BitwiseNot", "it takes integers"),
        ("ai.graphcore.BitwiseOr ai.graphcore.BitwiseXor", "it takes integers"),
        ("ai.graphcore.BitwiseXnor", "it takes integers"),
        ("ai.graphcore.Bucketize", "it compares its input with boundaries"),
        ("ai.graphcore.Init", "it has no input"),
        ("ai.graphcore.CopyVarUpdate", "it writes a variable"),
    )
    for name in names.split()
}


class Flow(StrEnum):
    """Whether an operator has a gradient."""

    ALL = "by all inputs that can have one"
    SOME = "by some of its inputs"
    ZERO = "zero"
    """Nothing that training could follow: the result does not move with the input."""
    NONE = "none"


MOVES = "yes"
"""The slope of a result that moves with an input."""


def flows(slopes: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Flow, str]]:
    """Of every operator that is computed, the gradient and why it is no more; by its title."""
    latest = {row.title: row for row in rows()}
    return {
        title: (flow(row, slopes.get(title, {})), reason(row))
        for title, row in latest.items()
        if row.way != Way.REMOVED or title in slopes
    }


def flow(row: Row, slopes: Mapping[str, str]) -> Flow:
    """Whether an operator has a gradient, by what was measured of its inputs."""
    if MOVES in slopes.values():
        return Flow.ALL if set(slopes.values()) == {MOVES} else Flow.SOME
    why = reason(row)
    if why:
        return Flow.ZERO if slopes or why in ZERO else Flow.NONE
    return Flow.ALL


def reason(row: Row) -> str:
    """Why an operator has no gradient; nothing for one that has."""
    known = REASONS.get(row.title)
    if known is not None:
        return known
    if not _is_of_floats(row):
        return "it takes or gives no floats"
    match row.way:
        case Way.BOUNDED if row.title == "Compress":
            return "data decide its size; where its condition is constant, it is a Gather"
        case Way.BOUNDED:
            return "data decide its size, and models with such nodes are not trained"
        case Way.HOST:
            return HOSTED
        case Way.NONE:
            return "it is not computed yet"
        case Way.REMOVED:
            return "ONNX has removed it from this version"
        case _:
            return ""


FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")


def _is_of_floats(row: Row) -> bool:
    """Whether it takes floats and gives some, of sequences too, as its latest schema says."""
    known = [one for one in SCHEMAS if (one.domain, one.name) == (row.domain, row.name)]
    if not known or row.name == "If":
        return True
    schema = max(known, key=lambda one: one.since_version)
    return all(
        any(name in text for one in formals for text in one.types for name in FLOATS)
        for formals in (schema.inputs, schema.outputs)
    )
