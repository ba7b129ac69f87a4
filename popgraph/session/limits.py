"""What PopART refuses of operators although ONNX allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xdsl.ir import BlockArgument

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.dialects.onnx import Graph, OnnxOp, value_name
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes

Attributes = Mapping[str, object]

LAST_OPSET = 11
"""PopART's last version of ai.onnx; models of later ones are no PopART programs."""

HINT = "PopART does without it, and so do its sessions; `popgraph.compile` may take it"

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
ACTIVATIONS = frozenset(["Sigmoid", "Relu", "Tanh", "Gelu", "Swish", "Softmax"])
"""What PopART's RNN, GRU and LSTM may have between their products."""

OF_ITSELF = ("AveragePool", "GRU", "LSTM", "MaxPool", "RNN")
"""Operators of which a rule asks nothing but what the node itself says."""


def check_limits(graph: Graph, weights: WeightStore, opset: int) -> None:
    """Raises an error in PopART's words for the first node that PopART would not take."""
    for op in graph.nodes:
        if op.domain or not (opset <= LAST_OPSET or op.op_type in RANDOM):
            continue
        if (error := _refusal(op, weights)) is not None:
            raise error


def refusal_while_read(op: OnnxOp) -> popart_exception | None:
    """The same error for a node that ONNX does not take either, so that its graph cannot be."""
    alone = not op.domain and op.op_type in OF_ITSELF
    return _refusal(op, WeightStore()) if alone else None


def _refusal(op: OnnxOp, weights: WeightStore) -> popart_exception | None:
    """The error in PopART's words for a node that it would not take."""
    rule = _LIMITS.get(op.op_type)
    complaints = rule(op, op.attribute_values(weights)) if rule is not None else ()
    return next((_refused(one, op) for one in complaints), None)


def _refused(complaint: str, op: OnnxOp) -> popart_exception:
    """PopART's text alone, which its programs compare; notes say where, and what else to do."""
    error = popart_exception(complaint)
    error.add_note(f"  at: {op.where()}")
    error.add_note(f"  try: {HINT}")
    return error


def _id(op: OnnxOp) -> str:
    return f"ai.onnx.{op.op_type}:{op.since_version}"


def _shown(op: OnnxOp) -> str:
    """`Name (ai.onnx.Clip:11)`, without a name just the operator."""
    return f"{op.node_name} ({_id(op)})" if op.node_name else _id(op)


def _random(op: OnnxOp, given: Attributes) -> Iterator[str]:
    """PopART seeds all random operators of a session together."""
    if "seed" in op.onnx_attributes():
        yield (
            f"{_id(op)}: Optional seed attribute is not supported. "
            "Use session::setRandomSeed instead."
        )
    double = dtypes.BY_POPART["DOUBLE"]
    if given.get("dtype") == double.onnx:
        yield "The data type DOUBLE is not supported in Poplar"
    if op.op_type.endswith("Like") and "dtype" not in given and _elements(op) == double.name:
        yield f"{_id(op)} : Unsupported data type requested: {double.popart}"


def _elements(op: OnnxOp) -> str:
    """The element type of the first operand, by its name in the IR."""
    return str(getattr(op.operands[0].type, "element_type", ""))


def _hidden_size(op: OnnxOp) -> int | None:
    """What the weights of a recurrence say, as far as their type is known."""
    shape = static_shape(op.operands[2].type)
    return shape[2] if shape is not None and len(shape) == 3 else None


def _recurrent(op: OnnxOp, given: Attributes) -> Iterator[str]:
    for name in ("activation_alpha", "activation_beta", "clip"):
        if name in op.onnx_attributes():
            yield f"Attribute `{name}' of {_shown(op)} is not supported"
    if op.op_type == "RNN" and given.get("direction", "forward") not in ("forward", b"forward"):
        yield f"{_shown(op)} only supports `forward' direction"
    if (found := _hidden_size(op)) is not None and given.get("hidden_size", found) != found:
        yield (
            f"hidden_size attribute passed to {_shown(op)} ({given['hidden_size']}) does not match "
            f"hidden size calculated from recurrenceWeights tensor ({found})."
        )
    functions = given["activations"] if "activations" in op.onnx_attributes() else None
    if not isinstance(functions, list | tuple):
        return
    if op.op_type == "RNN" and len(functions) != 1:
        yield f"{_shown(op)} only supports 1 activation, {len(functions)} were specified"
    for function in functions:
        word = function.decode() if isinstance(function, bytes) else str(function)
        if word.title() not in ACTIVATIONS:
            yield f"Activation type '{word}' is not supported for {_shown(op)}"


def _max_pool(op: OnnxOp, given: Attributes) -> Iterator[str]:
    dilations = given.get("dilations") or ()
    assert isinstance(dilations, list | tuple), "the schema says so"
    if any(size != 1 for size in dilations):
        yield "Dilations of value other than 1 are currently not supported."


def _alike(op: OnnxOp, given: Attributes) -> Iterator[str]:
    """Before opset 8, sums and means do not broadcast."""
    types = {value.type for value in op.input_values() if value is not None}
    if op.since_version < 8 and len(types) > 1:
        yield f"Inputs to {_id(op)} do not all the same type & shape"


def _average_pool(op: OnnxOp, given: Attributes) -> Iterator[str]:
    if given.get("count_include_pad"):
        yield "`count_include_pad` is not supported"


def _clip(op: OnnxOp, given: Attributes) -> Iterator[str]:
    first, *bounds = op.input_values()
    for word, value in zip(("min", "max"), bounds, strict=False):
        if isinstance(value, BlockArgument) and first is not None:
            yield (
                f"Op {op.node_name}({_id(op)}), inputs=[{value_name(first)}] currently only "
                f"supports constant min/max parameters. Input '{word}' ({value_name(value)}) has "
                "no data."
            )


def _tile(op: OnnxOp, given: Attributes) -> Iterator[str]:
    repeats = op.input_values()[1]
    if isinstance(repeats, BlockArgument):
        yield f"The 'Repeats' Tensor `{value_name(repeats)}' must be of type Constant"


def _slice(op: OnnxOp, given: Attributes) -> Iterator[str]:
    for word, value in zip(("starts", "ends"), op.input_values()[1:], strict=False):
        if isinstance(value, BlockArgument):
            yield (
                f"Need the value of the {_id(op)} input '{word}' to determine the output shape, "
                "but was unable because [Tensor::getDataViaGraphTraversal] Could not work out "
                f"tensor data for {value_name(value)}."
            )


Limit = Callable[[OnnxOp, Attributes], Iterator[str]]
_LIMITS: dict[str, Limit] = {
    "AveragePool": _average_pool,
    "Clip": _clip,
    "GRU": _recurrent,
    "MaxPool": _max_pool,
    "LSTM": _recurrent,
    "Mean": _alike,
    "RNN": _recurrent,
    "Slice": _slice,
    "Sum": _alike,
    "Tile": _tile,
    **dict.fromkeys(RANDOM, _random),
}
