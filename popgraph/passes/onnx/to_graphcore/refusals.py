"""Collects all nodes of a graph that cannot be lowered, with their names in the model file."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from xdsl.dialects.builtin import NameLoc, TensorType
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import refusal
from popgraph.dialects.onnx.types import static_shape
from popgraph.operators.record import lowering_of
from popgraph.support.errors import (
    NeedsHostError,
    PopgraphError,
    UnsupportedError,
    combined,
)


@dataclass
class Refusals:
    """Refused nodes so far, and the values that depend on them."""

    errors: list[PopgraphError] = field(default_factory=list)
    tainted: set[SSAValue] = field(default_factory=set)
    """Results of refused nodes, and all values that depend on them."""
    thorough: bool = False
    """Whether to continue after nodes that Python must compute."""
    hosted: list[NeedsHostError] = field(default_factory=list)
    """The errors of these nodes, if `thorough`."""

    def note(self, op: OnnxOp, error: PopgraphError, known: Container[SSAValue]) -> None:
        """
        Records an error if the node causes it, not a refused input.

        `known` are the values that are computed or replaced by placeholders. A node that Python
        must compute is not refused; as the first error it is raised, so that the model is cut.
        """
        if isinstance(error, NeedsHostError):
            if not (self.errors or self.thorough):
                raise error
            if not self._read_of_refused(op):
                self.hosted.append(error)
        elif self._is_own(op, error, known):
            self.errors.append(error)
            self.errors += [one for one in unknown_inside(op) if one.where != error.where]
        self.tainted.update(op.results)

    def _is_own(self, op: OnnxOp, error: PopgraphError, known: Container[SSAValue]) -> bool:
        read = self._read_of_refused(op)
        if not read or is_unknown(op):
            return True
        return isinstance(error, UnsupportedError) and all(value in known for value in read)

    def _read_of_refused(self, op: OnnxOp) -> set[SSAValue]:
        """Tainted values that a node, or a graph inside it, reads."""
        return {value for inner in op.walk() for value in inner.operands} & self.tainted

    def check(self) -> None:
        """Raises all recorded errors as one."""
        if self.errors:
            raise combined(self.errors)


def stand_in_type(value: SSAValue) -> TensorType[Attribute] | None:
    """The type of a placeholder for a value that is not computed; None if it is unknown."""
    type_, shape = value.type, static_shape(value.type)
    if shape is None or not isinstance(type_, TensorType):
        return None
    if not element_types.is_number(type_.element_type):
        return None
    return TensorType(type_.element_type, shape)


def is_unknown(op: OnnxOp) -> bool:
    """Whether a node's operator has no lowering."""
    return lowering_of(op.domain, op.op_type) is None


def unknown_operator(op: OnnxOp) -> UnsupportedError:
    """The error for a node without a lowering, without its location."""
    why = refusal(op) if isinstance(op, Custom) else None
    if why is not None:
        return UnsupportedError(why.what, hint=why.hint)
    return UnsupportedError(
        f"the operator {operator(op)} is not supported",
        hint="use operators that `popgraph ops` lists, or remove the node",
    )


def unknown_inside(op: OnnxOp) -> Iterator[UnsupportedError]:
    """Errors for nodes without a lowering in graphs inside a node."""
    for inner in op.walk():
        if inner is not op and isinstance(inner, OnnxOp) and is_unknown(inner):
            error = unknown_operator(inner)
            yield UnsupportedError(error.what, place_of(inner), error.hint)


def operator(op: OnnxOp) -> str:
    """The versioned name of an operator: `Conv-11`, `ai.graphcore.Nll-1`."""
    prefix = f"{op.domain}." if op.domain else ""
    return f"{prefix}{op.op_type}-{op.since_version or 1}"


def place_of(op: OnnxOp) -> str:
    """
    The node by its name in the model file.

    For a node of an inlined body, this is the node that was replaced by the body.
    """
    label = op.node_name or next(iter(filter(None, op.output_names)), "")
    found = op.location.desc.data if isinstance(op.location, NameLoc) else label
    if label.startswith(f"{found}/"):
        return f"node {found!r}, which is made of {operator(op)}"
    return f"node {label!r} ({operator(op)})"
