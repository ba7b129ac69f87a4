"""Lowers operators of extensions to the operations that their classes define."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from xdsl.builder import ImplicitBuilder
from xdsl.ir import Attribute, Block, SSAValue

from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.graphcore.outside import outside_operation
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.record import Structural, enter, record_of
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.program import WeightStore
from popgraph.operators.node import Node
from popgraph.operators.record import (
    GRAPHCORE,
    TYPES_BY_LOWERING,
    LoweringFunction,
    as_values,
    lowering_of,
    lowers,
    structural_operands,
)
from popgraph.passes.onnx.to_graphcore.lowering import Lowering
from popgraph.passes.onnx.to_graphcore.refusals import stand_in_type
from popgraph.support import extensions
from popgraph.support.arrays import Array
from popgraph.support.errors import ExtensionError, PopgraphError, TypeMismatchError

Op = TypeVar("Op", bound=GraphcoreOp)


def add_operator(cls: type[Op]) -> type[Op]:
    """
    Registers a graphcore operation, and the ONNX operators listed in its `ONNX`.

    Attributes of a node become properties with the same names.
    """
    made = outside_operation(cls)
    for operator in made.ONNX.split():
        domain, _, name = operator.rpartition(".")
        function = partial(_lowered, made)
        function.__module__ = made.__module__
        lowers_outside(name, domain=domain)(function)
    return made


def lowers_outside(
    *names: str, domain: str, structural: Structural = ()
) -> Callable[[LoweringFunction], LoweringFunction]:
    """
    Registers a function that lowers operators of an extension's domain.

    It takes a `Node` and builds graphcore operations, which have gradients. `structural` is as in
    `lowers`. PopART's own domain accepts names that PopART does not use: there, PopART programs
    have the operators of their C++ libraries.
    """

    def register(function: LoweringFunction) -> LoweringFunction:
        where = f"{function.__module__}.{getattr(function, '__qualname__', names)}"
        for name in names:
            known = record_of(domain, name)
            is_new = domain == GRAPHCORE and known is None
            if not extensions.is_free(domain) and not is_new:
                raise ExtensionError(
                    f"operators of the domain {domain!r} are defined elsewhere",
                    where,
                    "use a domain of your own: `com.example`",
                )
            if known is not None and known.lower is not None:
                raise ExtensionError(
                    f"duplicate lowering of the operator {domain}.{name}",
                    where,
                    "register it once",
                )
            enter(domain, name).types = partial(_types, function)
        extensions.note(function.__module__)
        return lowers(*names, domain=domain, structural=structural)(function)

    return register


def types_by_lowering(
    op: Custom, known: Mapping[SSAValue, Array], store: WeightStore
) -> list[Attribute] | None:
    """Output types of a node in PopART's domain, if its model does not declare them."""
    function = lowering_of(op.domain, op.op_type)
    if function is None or all(result.type != UNKNOWN for result in op.results):
        return None
    try:
        return _types(function, op, known, store)
    except (AssertionError, IndexError, TypeError, ValueError):
        return None  # Lowering functions rely on sessions to reject malformed nodes.


TYPES_BY_LOWERING.function = types_by_lowering


def _types(
    function: LoweringFunction, op: Custom, known: Mapping[SSAValue, Array], store: WeightStore
) -> list[Attribute] | None:
    """Output types of a node, found by lowering it alone; None if input types are unknown."""
    types = [None if value is None else stand_in_type(value) for value in op.input_values()]
    given = [type_ for type_ in types if type_ is not None]
    if len(given) < sum(value is not None for value in op.input_values()):
        return None
    block = Block(arg_types=given)
    arguments = iter(block.args)
    lowering = Lowering(store, training=False, home=block, block=block)
    with ImplicitBuilder(block):
        inputs = [
            None if value is None else _input(value, next(arguments), known, lowering)
            for value in op.input_values()
        ]
        try:
            node = Node(op, inputs, lowering, structural_operands(op))
            return [UNKNOWN if one is None else one.type for one in as_values(function(node))]
        except PopgraphError:
            return None  # The actual lowering reports the error.


def _input(
    value: SSAValue, argument: SSAValue, known: Mapping[SSAValue, Array], lowering: Lowering
) -> SSAValue:
    return lowering.literal(known[value]) if value in known else argument


def _lowered(cls: type[GraphcoreOp], node: Node) -> Sequence[SSAValue]:
    definition = cls.get_irdl_definition()
    count = len(definition.operands)
    if len(node) > count:
        raise TypeMismatchError(f"{cls.name} takes {count} inputs, not {len(node)}")
    given = {name: node.value(name) for name in definition.properties if node.has(name)}
    given = {
        name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()
    }
    try:
        made = cls(*(node[place] for place in range(count)), **given)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeMismatchError(
            f"{cls.name} cannot be built from the node's attributes: {error}",
            hint=f"the properties are {', '.join(definition.properties) or 'none'}",
        ) from error
    return made.results
