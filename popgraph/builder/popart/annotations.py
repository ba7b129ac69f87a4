"""PopART's node attributes, and the contexts that set them for a stretch of calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.opset.enums import PopartEnum, RecomputeType
from popgraph.builder.opset.exceptions import as_popart_errors, popart_exception
from popgraph.builder.popart.pattern_names import OTHERS, PRE_ALIAS
from popgraph.dialects.onnx.annotations import (
    DITHERING,
    EXCLUDED,
    GROUP,
    IPU,
    LOCATION,
    MEMORY,
    PARTIALS,
    PHASE,
    PRIORITY,
    RECOMPUTE,
    STAGE,
    all_attributes,
    set_attribute,
)
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.op import OnnxOp, to_python
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import WeightStore

NodeIds = str | Sequence[str] | set[str]


class Location(Protocol):
    """Where an IPU keeps a tensor; sessions have the class."""

    def serialize(self) -> list[int]:
        """The numbers of which the note consists."""


_LOCATION_NUMBERS = 6
"""Storage, tiles that load, tiles that store, sharding, kind and size of the group: 0 for each."""


class Annotations(ABC):
    """
    The part of a builder that annotates nodes.

    A node is addressed by the ids of its outputs. The same methods, called without ids, are
    context managers: every node made inside gets the annotation.
    """

    weights: WeightStore

    def __init__(self) -> None:
        self._current: dict[str, object] = {}

    @abstractmethod
    def value_of(self, id: str) -> SSAValue:
        """The value of a tensor id."""

    # any attribute

    def addNodeAttribute(
        self, attributeName: str, attributeValue: object, nodeOutputNames: NodeIds
    ) -> None:
        op = self._node_of(nodeOutputNames)
        self._add(op, attributeName, attributeValue)

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: NodeIds) -> None:
        op = self._node_of(nodeOutputNames)
        self._attribute(op, attributeName)
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

    getInt64NodeAttribute = getNodeAttribute
    getInt64VectorNodeAttribute = getNodeAttribute
    getFloatNodeAttribute = getNodeAttribute
    getFloatVectorNodeAttribute = getNodeAttribute
    getStringNodeAttribute = getNodeAttribute
    getStringVectorNodeAttribute = getNodeAttribute

    def _node_of(self, ids: NodeIds) -> OnnxOp:
        names = [ids] if isinstance(ids, str) else list(ids)
        for name in names:
            owner = self.value_of(name).owner
            if isinstance(owner, OnnxOp):
                return owner
        raise popart_exception(f"Could not find a node with outputs {', '.join(names)}")

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
        number = int(value) if isinstance(value, PopartEnum) else value
        kind = None
        if isinstance(op, SchemaOp) and isinstance(value, list | tuple) and not value:
            kind = op.KINDS.get(name)  # an empty list does not say of what
        self._set(op, name, from_python(name, number, kind, self.weights))

    def _set(self, op: OnnxOp, name: str, value: Attribute) -> None:
        with as_popart_errors():
            set_attribute(op, name, value, self.weights)

    # annotations for a stretch of calls

    def annotate(self, op: OnnxOp) -> None:
        """Puts what the open contexts say on a new node."""
        for name, value in self._current.items():
            if isinstance(value, PopartEnum):
                value = int(value)
            self._set(op, name, from_python(name, value, None, self.weights))

    @contextmanager
    def _during(self, values: Mapping[str, object]) -> Iterator[None]:
        before = dict(self._current)
        self._current |= values
        try:
            yield
        finally:
            self._current = before

    def _note(self, name: str, args: Sequence[Any], value: Any) -> Any:
        """`f(ids, value)` annotates nodes, `f(value)` is a context manager."""
        if len(args) == 2:
            ids, value = args
        elif len(args) == 1 and isinstance(args[0], str | list | set | tuple):
            ids = args[0]
        else:
            return self._during({name: args[0] if args else value})
        nodes = map(self._node_of, [ids] if isinstance(ids, str) else ids)
        for op in dict.fromkeys(nodes):
            self._add(op, name, value)
        return None

    def virtualGraph(self, *args: Any, value: int = 0) -> Any:
        """On which IPU nodes run."""
        return self._note(IPU, args, value)

    def executionPhase(self, *args: Any, value: int = 0) -> Any:
        return self._note(PHASE, args, value)

    def pipelineStage(self, *args: Any, value: int = 0) -> Any:
        return self._note(STAGE, args, value)

    def schedulePriority(self, value: float) -> Any:
        return self._note(PRIORITY, (), float(value))

    def outputTensorLocation(self, *args: Any, value: Location | None = None) -> Any:
        """Where an IPU keeps what nodes compute; by default on the chip."""
        located = bool(args) and hasattr(args[-1], "serialize")
        given = args[-1] if located else value
        numbers = [0] * _LOCATION_NUMBERS if given is None else given.serialize()
        ids = args[:-1] if located else args
        if ids:
            return self._note(LOCATION, (*ids, numbers), None)
        return self._during({LOCATION: numbers})

    def commGroup(self, type: int = 0, groupSize: int = 0) -> Any:
        """Which replicas work together on nodes that are collective."""
        return self._during({GROUP: [int(type), groupSize]})

    def recomputeOutput(self, *args: Any, value: RecomputeType = RecomputeType.Undefined) -> Any:
        return self._note(RECOMPUTE, args, value)

    def recomputeOutputInBackwardPass(
        self, nodeOutputNames: NodeIds, value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        self._note(RECOMPUTE, (nodeOutputNames, value), value)

    def getRecomputeOutputInBackwardPass(self, nodeOutputNames: NodeIds) -> bool:
        held = self._held(self._node_of(nodeOutputNames)).get(RECOMPUTE)
        return held is not None and to_python(held, self.weights) == int(RecomputeType.Recompute)

    def outlineAttributes(self, values: Mapping[str, object]) -> Any:
        pairs = [f"{key}={value}" for key, value in values.items()]
        return self._during({"__outline": [*self._outline(), *pairs]})

    def _outline(self) -> list[str]:
        held = self._current.get("__outline", [])
        assert isinstance(held, list)
        return held

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
            raise popart_exception(f"{words} not set in current scope")
        return int(self._current[name])  # type: ignore[call-overload,no-any-return]

    def hasVirtualGraph(self) -> bool:
        return IPU in self._current

    def hasPipelineStage(self) -> bool:
        return STAGE in self._current

    def hasExecutionPhase(self) -> bool:
        return PHASE in self._current

    # hints for one node

    def setAvailableMemoryProportion(
        self, nodeOutputNames: NodeIds, availableMemoryProportion: float
    ) -> None:
        if not 0 < availableMemoryProportion <= 1:
            raise popart_exception(
                "availableMemoryProportion must be in (0,1], "
                f"but was set to {availableMemoryProportion}"
            )
        self._note(MEMORY, (nodeOutputNames, float(availableMemoryProportion)), None)

    def setPartialsType(self, nodeOutputName: NodeIds, partialsType: str) -> None:
        if partialsType.upper() not in ("HALF", "FLOAT"):
            raise popart_exception(f"Unknown partials type {partialsType}; HALF or FLOAT")
        self._note(PARTIALS, (nodeOutputName, partialsType.upper()), None)

    def getPartialsType(self, nodeOutputName: NodeIds) -> str:
        held = self._held(self._node_of(nodeOutputName)).get(PARTIALS)
        return "FLOAT" if held is None else str(to_python(held, self.weights))

    def setEnableConvDithering(self, nodeOutputName: NodeIds, enableConvDithering: int) -> None:
        self._note(DITHERING, (nodeOutputName, int(enableConvDithering)), None)

    def setSerializeMatMul(
        self, nodeOutputName: NodeIds, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        modes = ("input_channels", "reducing_dim", "output_channels", "none")
        if mode not in modes:
            raise popart_exception(f"Unknown mode '{mode}'; one of {', '.join(modes)}")
        self._note("__serialize_matmul_mode", (nodeOutputName, mode), None)
        self._note("__serialize_matmul_factor", (nodeOutputName, factor), None)
        self._note("__serialize_matmul_precision", (nodeOutputName, int(keep_precision)), None)

    def excludePatterns(self, nodeOutputName: NodeIds, patternNames: Sequence[str]) -> None:
        for name in patternNames:
            if name not in PRE_ALIAS | OTHERS:
                raise popart_exception(
                    f"Invalid pattern name '{name}'", "excludePatterns", "see PopART's `Patterns`"
                )
        self._note(EXCLUDED, (nodeOutputName, list(patternNames)), None)

    def setInplacePreferences(self, nodeOutputName: NodeIds, prefs: Mapping[str, float]) -> None:
        self._note("__inplace_op_names", (nodeOutputName, list(prefs)), None)
        self._note("__inplace_op_priorities", (nodeOutputName, list(prefs.values())), None)
