"""Rewrites operators whose semantics differ in PopART to equivalent ONNX nodes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp, model_of, op_class
from popgraph.dialects.onnx.annotations import all_attributes, set_attribute
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.custom import ANY_LABEL, Custom
from popgraph.dialects.onnx.expansion import replace_node, with_inputs
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.program import WeightStore
from popgraph.popart.model.limits import LAST_OPSET


def apply_popart_semantics(module: ModuleOp, weights: WeightStore, *, any_label: bool) -> None:
    """
    Rewrites nodes in place, for models of opsets that PopART supports.

    With `any_label`, an out-of-range label of `nllloss` has probability 0, as in PopART.
    """
    if model_of(module).opset_versions.get("", LAST_OPSET) > LAST_OPSET:
        return
    for op in list(module.walk()):
        if not isinstance(op, OnnxOp):
            continue
        if any_label and (op.domain, op.op_type) == (DOMAIN, "Nll"):
            set_attribute(op, ANY_LABEL, from_python(ANY_LABEL, 1, None, weights), weights)
        if op.domain:
            continue
        if op.op_type == "ConvTranspose" and op.since_version >= 11:
            _move_odd_padding(op, weights)
        elif op.op_type == "Resize" and op.since_version == 10:
            _name_coordinates(op, weights)
        elif op.op_type in NO_LENGTHS and any(op.input_values()[LENGTHS : LENGTHS + 1]):
            _run_whole_sequences(op)
        elif has_own_lengths(op):
            _detach_state(op)


NO_LENGTHS = ("GRU", "RNN")
"""Recurrences for which PopART ignores `sequence_lens`."""
LENGTHS = 4
"""Operand index of `sequence_lens`."""


STATE = 2
"""Result index of an LSTM's final cell state."""


def has_own_lengths(op: OnnxOp) -> bool:
    """Whether an LSTM has both `sequence_lens` and a used final cell state."""
    if (op.domain, op.op_type) != ("", "LSTM") or not any(op.input_values()[LENGTHS : LENGTHS + 1]):
        return False
    return bool(op.output_names[STATE : STATE + 1] and op.output_names[STATE])


def _detach_state(op: OnnxOp) -> None:
    """
    LSTM(x, lengths) -> y, h, c becomes y, h, Detach(c): no gradient flows through the cell state.
    """
    names = op.output_names
    state = op.results[sum(map(bool, names[:STATE]))]
    outputs = [f"{names[STATE]}__detached"]
    detached = Custom.make(DOMAIN, "Detach", [state], {}, outputs, [state.type], {})
    state.replace_all_uses_with(detached.results[0])
    detached.operands[0] = state
    Rewriter.insert_op(detached, InsertPoint.after(op))


def _run_whole_sequences(op: OnnxOp) -> None:
    operands = op.input_values()
    replace_node(op, with_inputs(op, [*operands[:LENGTHS], None, *operands[LENGTHS + 1 :]]))


def _text(name: str, value: str, weights: WeightStore) -> Attribute:
    return from_python(name, value, "STRING", weights)


def _move_odd_padding(op: OnnxOp, weights: WeightStore) -> None:
    """Swaps the end that gets the extra element of an odd padding derived from `output_shape`."""
    given = op.attribute_values(weights)
    if given.get("output_shape"):
        upper = given.get("auto_pad") in ("SAME_UPPER", b"SAME_UPPER")
        way = "SAME_LOWER" if upper else "SAME_UPPER"
        op.properties["auto_pad"] = _text("auto_pad", way, weights)


def _name_coordinates(op: OnnxOp, weights: WeightStore) -> None:
    """
    Resize-10, whose coordinates ONNX leaves open -> Resize-11 with PopART's coordinates.

    Coordinates are half-pixel (ONNX runtimes use asymmetric ones), and the nearest element is
    PyTorch's, unless an attribute overrides them.
    """
    given = {name: to_python(one, weights) for name, one in all_attributes(op, weights).items()}
    defaults = {
        "mode": "nearest",
        "nearest_mode": "pytorch",
        "coordinate_transformation_mode": "half_pixel",
    }
    said = {name: given.get(name, default) for name, default in defaults.items()}
    data, scales = op.input_values()
    made = op_class("Resize", 11).make(
        [data, None, scales],
        {name: from_python(name, value, "STRING", weights) for name, value in said.items()},
        {},
        op.output_names,
        [value.type for value in op.results],
        {name: value for name, value in op.attributes.items() if name not in ("outputs", "rest")},
    )
    replace_node(op, made)
