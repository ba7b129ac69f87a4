"""A session's model as a graph of operators: what PopART has before gradients and patterns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from popgraph.builder.opset.enums import RecomputeType, TileSet
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.annotations import (
    EXCLUDED,
    IN_PLACE,
    IN_PLACE_PRIORITIES,
    IPU,
    LOCATION,
    PHASE,
    PRIORITY,
    RECOMPUTE,
    STAGE,
    all_attributes,
    notes_in,
    set_attribute,
)
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.op import Body, to_python
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.session.model import SessionModel
from popgraph.session.popart_ir.canonical import canonicalise
from popgraph.session.popart_ir.folding import is_folded
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings
from popgraph.support.arrays import Array

MAIN = "maingraph"

_TILE_SET = "__tile_set"
_UNNAMED = "BuilderGraph"
"""What the names of graphs begin with that nobody named."""

_READ_AS_ATTRIBUTES = {
    "Reshape": {1},
    "Slice": {1, 2, 3, 4},
    "Expand": {1},
    "Tile": {1},
    "TopK": {1},
    "Pad": {1, 2},
    "Upsample": {1},
    "Resize": {1, 2, 3},
    "Squeeze": {1},
    "Unsqueeze": {1},
    "Clip": {1, 2},
    "CumSum": {1},
    "Split": {1},
    "ReduceSum": {1},
}
"""Inputs that PopART makes attributes of."""

_NUMBERS = {"Slice": ("", "_starts", "_ends", "_axes", "_steps")}
"""How PopART calls the attributes that it makes of inputs, by index, where patterns read them."""

_OTHER_TYPES = {"Squeeze": "Reshape", "Unsqueeze": "Reshape"}
"""Operators that are others as soon as they are read."""


@dataclass(frozen=True)
class Places:
    """Which of the user's notes count."""

    ipus: bool = False
    stages: bool = False
    phases: bool = False


class ForwardReader:
    """Reads the graphs of a model; those that operators call are added under their own names."""

    def __init__(
        self, model: SessionModel, *, constant: bool, anchors: Collection[str], places: Places
    ) -> None:
        self._weights: WeightStore = model.weights
        self._constant, self._places = constant, places
        self._anchors = set(anchors)
        self._initializers = model.weight_names
        self.called: dict[str, OpGraph] = {}
        self._literals: set[str] = set()
        """Tensors that are constants of the model itself, or computed of such."""
        module = model.module.clone()
        graph = model_of(module).graph
        for op in graph.nodes:
            _tell_hidden_size(op, self._weights)
        infer_shapes(module, self._weights)
        name = graph.graph_name.text
        self.main = OpGraph(MAIN if not name or name.startswith(_UNNAMED) else name)
        self.main.kept = self._anchors
        self._read(self.main, graph, "", {})

    def _read(
        self, graph: OpGraph, body: Body, scope: str, outer: Mapping[SSAValue, str]
    ) -> list[str]:
        """Reads a body; the names of outer tensors that it uses."""
        ids: dict[SSAValue, str] = {}
        captured: list[str] = []
        for name, argument in zip(body.input_names, body.block.args, strict=True):
            known = name in self._initializers and not scope
            ids[argument] = self._add(graph, scope + name, argument, self._kind(known, scope))
            graph.inputs.append(scope + name)
        for op in body.block.ops:
            if isinstance(op, OnnxOp):
                self._operator(graph, op, scope, ids, outer, captured)
            elif isinstance(op, Initializer):
                kind = Kind.CONSTANT if scope else self._kind(True, scope)
                ids[op.result] = self._add(graph, scope + op.value_name.text, op.result, kind)
        if scope:
            graph.results = [ids[value] for value in body.yielded if value in ids]
        canonicalise(graph)
        self._fold(graph)
        return captured

    def _kind(self, initializer: bool, scope: str) -> Kind:
        if scope:
            return Kind.COMPUTED
        if not initializer:
            return Kind.STREAM
        return Kind.CONSTANT if self._constant else Kind.VARIABLE

    def _add(self, graph: OpGraph, id: str, value: SSAValue, kind: Kind) -> str:
        info = _info(value) or TensorInfo("FLOAT", [])
        return graph.add_tensor(id, info, kind)

    def _operator(
        self,
        graph: OpGraph,
        op: OnnxOp,
        scope: str,
        ids: dict[SSAValue, str],
        outer: Mapping[SSAValue, str],
        captured: list[str],
    ) -> None:
        outputs = {}
        for index, (name, value) in enumerate(
            zip(op.output_names, op.output_values(), strict=False)
        ):
            if name and value is not None:
                constant = op.op_type == "Constant"
                kind = Kind.CONSTANT if constant else Kind.COMPUTED
                ids[value] = outputs[index] = self._add(graph, scope + name, value, kind)
        if op.op_type == "Constant":
            self._literals.update(outputs.values())
            return
        inputs = {}
        for index, value in enumerate(op.input_values()):
            if value is not None:
                inputs[index] = self._id(graph, value, scope, ids, outer, captured)
        called = self._bodies(graph, op, {**outer, **ids}, inputs)
        graph.add(
            Op(
                _OTHER_TYPES.get(op.op_type, op.op_type),
                _without(inputs, _READ_AS_ATTRIBUTES.get(op.op_type, set())),
                outputs,
                self._attributes(op),
                self._settings(op),
                called,
            )
        )

    def _id(
        self,
        graph: OpGraph,
        value: SSAValue,
        scope: str,
        ids: dict[SSAValue, str],
        outer: Mapping[SSAValue, str],
        captured: list[str],
    ) -> str:
        """The name of a value here; one of a graph around this becomes an input."""
        if value not in ids:
            captured.append(outer[value])
            ids[value] = self._add(graph, scope + outer[value], value, Kind.COMPUTED)
            graph.inputs.append(ids[value])
        return ids[value]

    def _bodies(
        self, graph: OpGraph, op: OnnxOp, around: Mapping[SSAValue, str], inputs: dict[int, str]
    ) -> tuple[str, ...]:
        """Reads the graphs that an operator calls, whose outer tensors become its inputs."""
        names = []
        for held in op.graphs().values():
            for body in held:
                name = self._fresh_name(body.graph_name.text or f"{op.op_type}_body")
                self.called[name] = OpGraph(name)
                for id in self._read(self.called[name], body, f"{name}/", around):
                    if id not in inputs.values():
                        inputs[max(inputs, default=-1) + 1] = id
                names.append(name)
        return tuple(names)

    def _fresh_name(self, name: str) -> str:
        taken, count = name, 0
        while taken in self.called or taken == self.main.name:
            count += 1
            taken = f"{name}_{count}"
        return taken

    def _attributes(self, op: OnnxOp) -> dict[str, object]:
        """A node's own attributes and the notes that PopART shows."""
        found = {
            name: value
            for name, value in op.attribute_values(self._weights).items()
            if not isinstance(value, Graph) and name not in op.graphs() and name not in _SETTINGS
        }
        for name, value in notes_in(op, self._weights).items():
            if name not in _SETTINGS:
                found[name] = to_python(value, self._weights)
        for name, operand in zip(_NUMBERS.get(op.op_type, ()), op.input_values(), strict=False):
            array = None if operand is None or not name else self._known(operand)
            if array is not None:
                found[name] = array.tolist()
        return found

    def _known(self, value: SSAValue) -> Array | None:
        """The elements of a constant or of a weight."""
        owner = value.owner
        if isinstance(owner, Initializer):
            return owner.array(self._weights)
        if isinstance(owner, OnnxOp) and owner.op_type == "Constant":
            held = owner.attribute_values(self._weights).get("value")
            return None if held is None else np.asarray(held)
        return None

    def _settings(self, op: OnnxOp) -> Settings:
        notes = {
            name: to_python(value, self._weights)
            for name, value in all_attributes(op, self._weights).items()
            if name in _SETTINGS
        }
        outline = _texts(notes.get("__outline"))
        return Settings(
            op.node_name,
            _number(notes.get(IPU)) if self._places.ipus else None,
            _number(notes.get(STAGE)) if self._places.stages else None,
            _number(notes.get(PHASE)) if self._places.phases else None,
            RecomputeType(_number(notes.get(RECOMPUTE)) or 0),
            _real(notes.get(PRIORITY)),
            excluded=frozenset(_texts(notes.get(EXCLUDED))),
            inplace=dict(
                zip(
                    _texts(notes.get(IN_PLACE)),
                    _reals(notes.get(IN_PLACE_PRIORITIES)),
                    strict=False,
                )
            ),
            tiles=TileSet(_number(notes.get(_TILE_SET)) or 0),
            location=_numbers(notes.get(LOCATION)),
            outline=dict(one.split("=", 1) for one in outline if "=" in one),
        )

    def _fold(self, graph: OpGraph) -> None:
        """Drops what is constant, unless it is anchored."""
        for op in list(graph.ops):
            inputs, outputs = op.inputs.values(), op.outputs.values()
            literal = op.type == "Shape" or self._literals.issuperset(inputs)
            constant = literal or all(graph.kind(id) is Kind.CONSTANT for id in inputs)
            kept = any(graph.is_protected(id) for id in outputs)
            if constant and not kept and is_folded(op.type, literal=literal):
                graph.remove(op)
                graph.kinds.update(dict.fromkeys(outputs, Kind.CONSTANT))
                self._literals.update(outputs if literal else ())


_SETTINGS = frozenset(
    [
        IPU,
        STAGE,
        PHASE,
        RECOMPUTE,
        PRIORITY,
        EXCLUDED,
        LOCATION,
        _TILE_SET,
        "__outline",
        IN_PLACE,
        IN_PLACE_PRIORITIES,
        "__debug_info_id",
    ]
)
"""Notes that are no attributes of an operator, but of how it runs."""


def _info(value: SSAValue) -> TensorInfo | None:
    shape = static_shape(value.type)
    if shape is None or not isinstance(value.type, TensorType):
        return None
    return TensorInfo(element_types.from_ir(value.type.element_type).popart, shape)


def _tell_hidden_size(op: OnnxOp, weights: WeightStore) -> None:
    """Recurrences have the size that their weights have, which inference does not look at."""
    if op.op_type in ("RNN", "GRU", "LSTM") and "hidden_size" not in op.onnx_attributes():
        recurrence = op.input_values()[2]
        known = None if recurrence is None else _info(recurrence)
        if known is not None:
            size = from_python("hidden_size", known.shape()[-1], None, weights)
            set_attribute(op, "hidden_size", size, weights)


def _without(inputs: dict[int, str], dropped: set[int]) -> dict[int, str]:
    return {index: id for index, id in inputs.items() if index not in dropped}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _numbers(value: object) -> tuple[int, ...] | None:
    return tuple(map(int, value)) if isinstance(value, Sequence) else None


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _reals(value: object) -> list[float]:
    return [_real(one) for one in value] if isinstance(value, Sequence) else []


def _texts(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [one.decode() if isinstance(one, bytes) else str(one) for one in value]
