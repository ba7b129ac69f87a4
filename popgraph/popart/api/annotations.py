"""PopART's node attributes, and the contexts that set them for a stretch of calls."""

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
"""How PopART calls the kinds of attributes."""


@runtime_checkable
class Location(Protocol):
    """Where an IPU keeps a tensor; sessions have the class."""

    def serialize(self) -> list[int]:
        """The numbers of which the note consists."""


def _forms(kind: object, default: object) -> tuple[Signature, Signature]:
    """The forms of a method that annotates nodes, and of one that is a context manager."""
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
    """The outputs of a node, as a list or alone, and one more argument: name, type, default."""
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
"""Storage, tiles that load, tiles that store, sharding, kind and size of the group: 0 for each."""

_PLACE = _forms(int, 0)
_RECOMPUTE = _forms(RecomputeType, RecomputeType.Undefined)
_LOCATIONS = _forms(Location | list[int], [0] * _LOCATION_NUMBERS)

_SERIALIZED = ("input_channels", "reducing_dim", "output_channels", "none")
"""Along what a matrix product may be cut into parts."""


@typed
class _OnTop(AbstractContextManager[None], Generic[_T]):
    """Puts an entry on a stack for as long as it is open."""

    def __init__(self, stack: list[_T], entry: _T) -> None:
        self._stack, self._entry = stack, entry

    def __enter__(self) -> None:
        self._stack.append(self._entry)

    def __exit__(self, *error: object) -> None:
        self._stack.pop()


@typed
class AttributeContextManager(_OnTop[Mapping[str, object]]):
    """Every node gets an attribute; of several contexts, the innermost counts."""

    def __init__(self, stack: list[Mapping[str, object]], name: str, value: object) -> None:
        super().__init__(stack, {name: value})


@typed
class KeyValueContextManager(_OnTop[Mapping[str, object]]):
    """Every node gets pairs `key=value` in one attribute, beside those of the contexts around."""

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
    """Every name begins with `scope/`."""


@typed
class Annotations(ABC):
    """
    The part of a builder that annotates nodes.

    A node is addressed by the ids of its outputs. The same methods, called without ids, are
    context managers: every node made inside gets the annotation.
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
        """The attributes of a node, its graphs among them."""
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
        """An attribute that must be of this kind of ONNX."""
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
        """Refuses a hint for what is not one of these operators, which PopART has words for."""
        found = self._node_of(ids).op_type
        if found not in operators:
            raise popart_exception(
                f"Builder::{call} should only be called on {words} but was given: {found}"
            )

    def _node_of(self, ids: NodeIds) -> OnnxOp:
        """The node that has these outputs, and no others."""
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
        """Gives a node an attribute that it does not have yet."""
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

    # annotations for a stretch of calls

    @property
    def _current(self) -> Mapping[str, object]:
        """What new nodes get."""
        return {name: value for one in self._open for name, value in one.items()}

    def annotate(self, op: OnnxOp) -> None:
        """Puts what the open contexts say on a new node."""
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
        """On which IPU nodes run."""
        return self._note("virtualGraph", IPU, _PLACE, args, named)

    def executionPhase(self, *args: Any, **named: Any) -> Any:
        return self._note("executionPhase", PHASE, _PLACE, args, named)

    def pipelineStage(self, *args: Any, **named: Any) -> Any:
        return self._note("pipelineStage", STAGE, _PLACE, args, named)

    def schedulePriority(self, value: float) -> AttributeContextManager:
        return self._during(PRIORITY, float(value))

    def outputTensorLocation(self, *args: Any, **named: Any) -> Any:
        """Where an IPU keeps what nodes compute; by default on the chip."""
        return self._note("outputTensorLocation", LOCATION, _LOCATIONS, args, named)

    def commGroup(self, type: int = 0, groupSize: int = 0) -> AttributeContextManager:
        """Which replicas work together on nodes that are collective."""
        return self._during(GROUP, [int(type), groupSize])

    def recomputeOutput(self, *args: Any, **named: Any) -> Any:
        return self._note("recomputeOutput", RECOMPUTE, _RECOMPUTE, args, named)

    def recomputeOutputInBackwardPass(self, *args: Any, **named: Any) -> None:
        """Whether nodes are computed again for gradients: `f(ids, value=Recompute)`."""
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
        """How much of a tile's memory nodes may take: `f(ids, availableMemoryProportion)`."""
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
    """What ONNX can hold of an argument: the number of an enumeration's member, of a location."""
    if isinstance(value, PopartEnum):
        return int(value)
    return value.serialize() if isinstance(value, Location) else value
