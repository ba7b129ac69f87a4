"""PopART's node attributes, and the context managers that set them for several nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter, Signature
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.opset.arguments import overloaded, typed
from popgraph.builder.opset.enums import PopartEnum, RecomputeType
from popgraph.dialects.onnx.annotations import (
    DITHERING,
    EXCLUDED,
    GROUP,
    IN_PLACE,
    IN_PLACE_PRIORITIES,
    IPU,
    LOCATION,
    MEMORY,
    PARTIALS,
    PHASE,
    PRIORITY,
    RECOMPUTE,
    SERIALIZED,
    SERIALIZED_FACTOR,
    SERIALIZED_PRECISION,
    STAGE,
    all_attributes,
    set_attribute,
)
from popgraph.dialects.onnx.attributeproto import from_python, kind_of_attribute
from popgraph.dialects.onnx.op import OnnxOp, to_python
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import WeightStore
from popgraph.popart.api.patterns import PATTERNS
from popgraph.popart.exceptions import as_popart_errors, popart_exception

NodeIds = str | Sequence[str] | set[str]
_T = TypeVar("_T")


_KINDS = {
    "INT": "an integer",
    "INTS": "an integer vector",
    "FLOAT": "a float",
    "FLOATS": "a float vector",
    "STRING": "a string",
    "STRINGS": "a string vector",
}
"""PopART's names for the kinds of attributes."""


@runtime_checkable
class Location(Protocol):
    """The storage location of a tensor on an IPU; sessions define the class."""

    def serialize(self) -> list[int]:
        """The location as the integers of an attribute."""


def _forms(kind: object, default: object) -> tuple[Signature, Signature]:
    """Signatures of a method that annotates nodes, and of one that is a context manager."""
    by_place = Parameter.POSITIONAL_OR_KEYWORD
    value = Parameter("value", by_place, default=default, annotation=kind)
    ids = Parameter("nodeOutputNames", by_place, annotation=NodeIds)
    return Signature([ids, value]), Signature([value])


def _of_node(
    method: str,
    more: tuple[str, object, object] | None,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> tuple[NodeIds, Any]:
    """
    The outputs of a node, as a list or a single one, and one more argument: name, type, default.
    """
    by_place = Parameter.POSITIONAL_OR_KEYWORD
    rest = []
    if more is not None:
        rest.append(Parameter(more[0], by_place, default=more[2], annotation=more[1]))
    forms = [
        Signature([Parameter(name, by_place, annotation=NodeIds), *rest])
        for name in ("nodeOutputNames", "nodeOutputName")
    ]
    found = list(overloaded(method, forms, args, named).values())
    value = found[1] if len(found) > 1 else (more[2] if more else None)
    return found[0], value


_LOCATION_NUMBERS = 6
"""Storage, load tiles, storage tiles, sharding, group kind, group size: all 0."""

_PLACE = _forms(int, 0)
_RECOMPUTE = _forms(RecomputeType, RecomputeType.Undefined)
_LOCATIONS = _forms(Location | list[int], [0] * _LOCATION_NUMBERS)

_SERIALIZED = ("input_channels", "reducing_dim", "output_channels", "none")
"""Dimensions along which a matmul may be serialized."""


@typed
class _OnTop(AbstractContextManager[None], Generic[_T]):
    """Keeps an entry on a stack while it is open."""

    def __init__(self, stack: list[_T], entry: _T) -> None:
        self._stack, self._entry = stack, entry

    def __enter__(self) -> None:
        self._stack.append(self._entry)

    def __exit__(self, *error: object) -> None:
        self._stack.pop()


@typed
class AttributeContextManager(_OnTop[Mapping[str, object]]):
    """Sets an attribute on every new node; the innermost of several contexts wins."""

    def __init__(self, stack: list[Mapping[str, object]], name: str, value: object) -> None:
        super().__init__(stack, {name: value})


@typed
class KeyValueContextManager(_OnTop[Mapping[str, object]]):
    """Adds `key=value` pairs to an attribute of every new node; nested contexts accumulate."""

    def __init__(
        self, stack: list[Mapping[str, object]], name: str, values: Mapping[str, object]
    ) -> None:
        super().__init__(stack, {name: [f"{key}={value}" for key, value in values.items()]})
        self._name = name

    def __enter__(self) -> None:
        around = next((one[self._name] for one in reversed(self._stack) if self._name in one), [])
        assert isinstance(around, list)
        own = self._entry[self._name]
        assert isinstance(own, list)
        self._stack.append({self._name: [*around, *own]})


@typed
class NameContextManager(_OnTop[str]):
    """Prefixes every name with `scope/`."""


@typed
class Annotations(ABC):
    """
    The part of a builder that annotates nodes.

    A node is addressed by the ids of its outputs. The same methods, called without ids, are context
    managers: every node added inside gets the annotation.
    """

    weights: WeightStore

    def __init__(self) -> None:
        self._open: list[Mapping[str, object]] = []

    @abstractmethod
    def value_of(self, id: str) -> SSAValue:
        """The value of a tensor id."""

    @abstractmethod
    def _has(self, id: str) -> bool:
        """Whether a tensor has this id."""

    # any attribute

    def addNodeAttribute(
        self, attributeName: str, attributeValue: object, nodeOutputNames: NodeIds
    ) -> None:
        op = self._node_of(nodeOutputNames)
        self._add(op, attributeName, attributeValue)

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> None:
        op = self._node_of(nodeOutputNames)
        if attributeName not in self._held(op):
            raise popart_exception(
                f"Cannot remove attribute {attributeName} as it does not exist.", op.where()
            )
        set_attribute(op, attributeName, None, self.weights)

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> bool:
        return attributeName in self.getAllNodeAttributeNames(nodeOutputNames)

    def getAllNodeAttributeNames(self, nodeOutputNames: NodeIds) -> list[str]:
        """The attributes of a node, including graphs."""
        op = self._node_of(nodeOutputNames)
        return sorted({*self._held(op), *op.graphs()})

    def getNodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> Any:
        """An attribute as a Python value."""
        return to_python(
            self._attribute(self._node_of(nodeOutputNames), attributeName), self.weights
        )

    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> int:
        return int(self._of_kind(attributeName, nodeOutputNames, "INT"))

    def getInt64VectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: NodeIds
    ) -> list[int]:
        return list(self._of_kind(attributeName, nodeOutputNames, "INTS"))

    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> float:
        return float(self._of_kind(attributeName, nodeOutputNames, "FLOAT"))

    def getFloatVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: NodeIds
    ) -> list[float]:
        return list(self._of_kind(attributeName, nodeOutputNames, "FLOATS"))

    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> str:
        return str(self._of_kind(attributeName, nodeOutputNames, "STRING"))

    def getStringVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: NodeIds
    ) -> list[str]:
        return list(self._of_kind(attributeName, nodeOutputNames, "STRINGS"))

    def _of_kind(self, name: str, ids: NodeIds, kind: str) -> Any:
        """An attribute, which must have this ONNX kind."""
        op = self._node_of(ids)
        if kind_of_attribute(self._attribute(op, name)) != kind:
            raise popart_exception(
                f"Attribute {name} is not {_KINDS[kind]}.",
                op.where(),
                "getNodeAttribute gives an attribute of any kind",
            )
        return self.getNodeAttribute(name, ids)

    def _check_operator(
        self, call: str, ids: NodeIds, operators: tuple[str, ...], words: str
    ) -> None:
        """Rejects a hint for other operators, with PopART's message."""
        found = self._node_of(ids).op_type
        if found not in operators:
            raise popart_exception(
                f"Builder::{call} should only be called on {words} but was given: {found}"
            )

    def _node_of(self, ids: NodeIds) -> OnnxOp:
        """The node with exactly these outputs."""
        names = [ids] if isinstance(ids, str) else list(ids)
        owner = self.value_of(names[0]).owner if names and self._has(names[0]) else None
        outputs = set(filter(None, owner.output_names)) if isinstance(owner, OnnxOp) else set()
        if not isinstance(owner, OnnxOp) or outputs != set(names):
            raise popart_exception(
                f"Could not find a node with outputs {' ,'.join(sorted(names))}. Must specify all "
                "outputs of a node",
                hint=f"name all outputs of the node: {', '.join(sorted(outputs))}"
                if outputs
                else "name all outputs of one node of this graph",
            )
        return owner

    def _held(self, op: OnnxOp) -> Mapping[str, Attribute]:
        return all_attributes(op, self.weights)

    def _attribute(self, op: OnnxOp, name: str) -> Attribute:
        held = self._held(op)
        if name not in held:
            raise popart_exception(
                f"Node does not have an attribute {name}.",
                op.where(),
                f"it has {', '.join(held) or 'none'}",
            )
        return held[name]

    def _add(self, op: OnnxOp, name: str, value: object) -> None:
        """Adds an attribute that a node does not have yet."""
        if name in self._held(op) or name in op.graphs():
            raise popart_exception(
                f"Node already has attribute {name}.", op.where(), "removeNodeAttribute comes first"
            )
        kind = None
        if isinstance(op, SchemaOp) and isinstance(value, list | tuple) and not value:
            kind = op.KINDS.get(name)  # an empty list does not say of what
        with as_popart_errors():
            self._set(op, name, from_python(name, _plain(value), kind, self.weights))

    def _set(self, op: OnnxOp, name: str, value: Attribute) -> None:
        with as_popart_errors():
            set_attribute(op, name, value, self.weights)

    # annotations of several nodes

    @property
    def _current(self) -> Mapping[str, object]:
        """The attributes of new nodes."""
        return {name: value for one in self._open for name, value in one.items()}

    def annotate(self, op: OnnxOp) -> None:
        """Sets the attributes of the open contexts on a new node."""
        for name, value in self._current.items():
            self._set(op, name, from_python(name, value, None, self.weights))

    def _during(self, name: str, value: object) -> AttributeContextManager:
        return AttributeContextManager(self._open, name, value)

    def _annotate(self, name: str, ids: NodeIds, value: object) -> None:
        self._add(self._node_of(ids), name, value)

    def _note(
        self,
        method: str,
        name: str,
        forms: Sequence[Signature],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        """`f(ids, value)` annotates a node, `f(value)` is a context manager."""
        given = overloaded(method, forms, args, named)
        value = _plain(given.get("value", forms[0].parameters["value"].default))
        if "nodeOutputNames" in given:
            return self._annotate(name, given["nodeOutputNames"], value)
        return self._during(name, value)

    def virtualGraph(self, *args: Any, **named: Any) -> Any:
        """Sets the IPU of nodes."""
        return self._note("virtualGraph", IPU, _PLACE, args, named)

    def executionPhase(self, *args: Any, **named: Any) -> Any:
        return self._note("executionPhase", PHASE, _PLACE, args, named)

    def pipelineStage(self, *args: Any, **named: Any) -> Any:
        return self._note("pipelineStage", STAGE, _PLACE, args, named)

    def schedulePriority(self, value: float) -> AttributeContextManager:
        return self._during(PRIORITY, float(value))

    def outputTensorLocation(self, *args: Any, **named: Any) -> Any:
        """Sets the storage location of nodes' results; on chip by default."""
        return self._note("outputTensorLocation", LOCATION, _LOCATIONS, args, named)

    def commGroup(self, type: int = 0, groupSize: int = 0) -> AttributeContextManager:
        """Sets the group of replicas of collective nodes."""
        return self._during(GROUP, [int(type), groupSize])

    def recomputeOutput(self, *args: Any, **named: Any) -> Any:
        return self._note("recomputeOutput", RECOMPUTE, _RECOMPUTE, args, named)

    def recomputeOutputInBackwardPass(self, *args: Any, **named: Any) -> None:
        """Sets the recomputation of nodes in the backward pass: `f(ids, value=Recompute)`."""
        given = ("value", RecomputeType, RecomputeType.Recompute)
        ids, value = _of_node("recomputeOutputInBackwardPass", given, args, named)
        self._annotate(RECOMPUTE, ids, value)

    def getRecomputeOutputInBackwardPass(self, *args: Any, **named: Any) -> bool:
        ids, _ = _of_node("getRecomputeOutputInBackwardPass", None, args, named)
        held = self._held(self._node_of(ids)).get(RECOMPUTE)
        return held is not None and to_python(held, self.weights) == int(RecomputeType.Recompute)

    def outlineAttributes(self, values: Mapping[str, object]) -> KeyValueContextManager:
        return KeyValueContextManager(self._open, "__outline", values)

    def getVirtualGraph(self, nodeOutputNames: NodeIds | None = None) -> int:
        return self._number(IPU, nodeOutputNames, "Virtual graph")

    def getPipelineStage(self) -> int:
        return self._number(STAGE, None, "Pipeline stage")

    def getExecutionPhase(self) -> int:
        return self._number(PHASE, None, "Execution phase")

    def _number(self, name: str, ids: NodeIds | None, words: str) -> int:
        if ids is not None:
            return int(self.getNodeAttribute(name, ids))
        if name not in self._current:
            raise popart_exception(f"{words} not set in current scope.")
        return int(self._current[name])  # type: ignore[call-overload,no-any-return]

    def hasVirtualGraph(self) -> bool:
        return IPU in self._current

    def hasPipelineStage(self) -> bool:
        return STAGE in self._current

    def hasExecutionPhase(self) -> bool:
        return PHASE in self._current

    # hints for one node

    def setAvailableMemoryProportion(self, *args: Any, **named: Any) -> None:
        """Sets the fraction of a tile's memory for nodes: `f(ids, availableMemoryProportion)`."""
        given = ("availableMemoryProportion", float, Parameter.empty)
        ids, proportion = _of_node("setAvailableMemoryProportion", given, args, named)
        if not 0 < proportion <= 1:
            raise popart_exception(
                "availableMemoryProportion must be in (0,1]", hint=f"it was set to {proportion}"
            )
        if self.nodeHasAttribute(MEMORY, ids):
            self.removeNodeAttribute(MEMORY, ids)
        self._annotate(MEMORY, ids, float(proportion))

    def setPartialsType(self, nodeOutputName: NodeIds, partialsType: str) -> None:
        self._check_operator(
            "setPartialsType", nodeOutputName, ("Conv", "MatMul"), "operators: Conv, MatMul;"
        )
        self._annotate(PARTIALS, nodeOutputName, partialsType)

    def getPartialsType(self, nodeOutputName: NodeIds) -> str:
        held = self._held(self._node_of(nodeOutputName)).get(PARTIALS)
        return "FLOAT" if held is None else str(to_python(held, self.weights))

    def setEnableConvDithering(self, nodeOutputName: NodeIds, enableConvDithering: int) -> None:
        if enableConvDithering not in (0, 1):
            raise popart_exception("enableConvDithering must be a bool value")
        self._check_operator("setEnableConvDithering", nodeOutputName, ("Conv",), "convolutions")
        self._annotate(DITHERING, nodeOutputName, int(enableConvDithering))

    def setSerializeMatMul(
        self, nodeOutputName: NodeIds, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        if mode not in _SERIALIZED:
            *shown, last = (f"'{one}'" for one in _SERIALIZED)
            raise popart_exception(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                f"{', '.join(shown)} or {last}"
            )
        self._annotate(SERIALIZED, nodeOutputName, mode)
        self._annotate(SERIALIZED_FACTOR, nodeOutputName, factor)
        self._annotate(SERIALIZED_PRECISION, nodeOutputName, int(keep_precision))

    def excludePatterns(self, nodeOutputName: NodeIds, patternNames: Sequence[str]) -> None:
        for name in patternNames:
            if name not in PATTERNS:
                raise popart_exception(
                    f"Invalid pattern name '{name}' in Op::excludePatterns",
                    "excludePatterns",
                    "see PopART's `Patterns`",
                )
        self._annotate(EXCLUDED, nodeOutputName, list(patternNames))

    def setInplacePreferences(self, nodeOutputName: NodeIds, prefs: Mapping[str, float]) -> None:
        self._annotate(IN_PLACE, nodeOutputName, list(prefs))
        self._annotate(IN_PLACE_PRIORITIES, nodeOutputName, list(prefs.values()))


def _plain(value: object) -> object:
    """
    Converts an argument to an ONNX attribute value: enumeration members and locations to integers.
    """
    if isinstance(value, PopartEnum):
        return int(value)
    return value.serialize() if isinstance(value, Location) else value
