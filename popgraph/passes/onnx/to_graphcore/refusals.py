"""The refusals of a graph: every node that cannot be lowered, each by the name in its file."""

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
    together,
)


@dataclass
class Refusals:
    """What has been refused so far, and what follows from it."""

    errors: list[PopgraphError] = field(default_factory=list)
    tainted: set[SSAValue] = field(default_factory=set)
    """The values of nodes that were refused, and all that is computed from them."""
    thorough: bool = False
    """Whether to go on behind nodes that Python must compute."""
    hosted: list[NeedsHostError] = field(default_factory=list)
    """What was said of these, if so."""

    def note(self, op: OnnxOp, error: PopgraphError, known: Container[SSAValue]) -> None:
        """
        Remembers an error if the node is to blame for it, and not what it is given.

        `known` are the values that are computed or stood in for. A node that Python must compute
        is no refusal; its error is raised if it is the first, so that the model becomes steps.
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
        """What a node, or a graph inside it, reads of what is not computed."""
        return {value for inner in op.walk() for value in inner.operands} & self.tainted

    def check(self) -> None:
        """Raises what there is."""
        if self.errors:
            raise together(self.errors)


def stand_in_type(value: SSAValue) -> TensorType[Attribute] | None:
    """The type of what stands in for a value that nothing computes; None if it is not known."""
    type_, shape = value.type, static_shape(value.type)
    if shape is None or not isinstance(type_, TensorType):
        return None
    if not element_types.is_number(type_.element_type):
        return None
    return TensorType(type_.element_type, shape)


def is_unknown(op: OnnxOp) -> bool:
    """Whether there is no lowering for a node's operator."""
    return lowering_of(op.domain, op.op_type) is None


def unknown_operator(op: OnnxOp) -> UnsupportedError:
    """Why there is no lowering for a node, without its place."""
    why = refusal(op) if isinstance(op, Custom) else None
    if why is not None:
        return UnsupportedError(why.what, hint=why.hint)
    return UnsupportedError(
        f"the operator {operator(op)} is not supported",
        hint="`popgraph ops` lists what is; express it with those, or remove the node",
    )


def unknown_inside(op: OnnxOp) -> Iterator[UnsupportedError]:
    """The nodes in graphs inside a node for whose operators there is no lowering."""
    for inner in op.walk():
        if inner is not op and isinstance(inner, OnnxOp) and is_unknown(inner):
            error = unknown_operator(inner)
            yield UnsupportedError(error.what, place_of(inner), error.hint)


def operator(op: OnnxOp) -> str:
    """`Conv-11`, `ai.graphcore.Nll-1`."""
    prefix = f"{op.domain}." if op.domain else ""
    return f"{prefix}{op.op_type}-{op.since_version or 1}"


def place_of(op: OnnxOp) -> str:
    """
    The node as its file names it.

    Of a node that comes of a definition (a function, what a schema says), that is the node which
    was defined so.
    """
    label = op.node_name or next(iter(filter(None, op.output_names)), "")
    found = op.location.desc.data if isinstance(op.location, NameLoc) else label
    if label.startswith(f"{found}/"):
        return f"node {found!r}, which is made of {operator(op)}"
    return f"node {label!r} ({operator(op)})"
