"""Properties of modules that passes need, give and lose, each with a predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation

from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import Composite
from popgraph.dialects.graphcore.collectives import Collective
from popgraph.dialects.levels import GRAPHCORE, LOOPS, ONNX, PROGRAM, STRUCTURED, operations
from popgraph.dialects.locations import origin
from popgraph.dialects.onnx.containers import Function, Model
from popgraph.dialects.onnx.custom import GRADIENT, Custom
from popgraph.dialects.onnx.schema_facts import body_schema
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import (
    CallCondOp,
    CallLoopOp,
    ConstantOp,
    GraphOp,
    PrepareOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    YieldOp,
    graphs_of,
)
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.cut import NAME as CUT
from popgraph.dialects.tile.loops.handed import handed
from popgraph.operators.record import is_lowered

Breaches = Callable[[ModuleOp], Iterator[str]]


@dataclass(frozen=True, eq=False)
class Property:
    """A property of the modules of one level, which passes need, give or lose."""

    name: str
    level: str
    """The level of the modules that can have it; the lowering to the next level ends it."""
    about: str
    """The statement, without a period."""
    breaches: Breaches
    """The places of a module that contradict the statement, for messages; none if it holds."""

    def breach(self, module: ModuleOp) -> str | None:
        """The first place that contradicts the statement; None if it holds."""
        return next(self.breaches(module), None)

    def __str__(self) -> str:
        return self.name


def _where(op: Operation) -> str:
    place = origin(op)
    return f"{op.name}, {place}" if place else op.name


def _each(is_breach: Callable[[Operation], bool]) -> Breaches:
    """The operations of a module, in bodies, too, that contradict a statement."""
    return lambda module: (_where(op) for op in module.walk() if is_breach(op))


# The onnx level


def _is_open_gradient(op: Operation) -> bool:
    return isinstance(op, SchemaOp) and (op.domain, op.op_type) == GRADIENT


def _composed(module: ModuleOp) -> Iterator[str]:
    for model in module.ops:
        keys = set(model.functions) if isinstance(model, Model) else set()
        for op in model.walk():
            if isinstance(op, Function):
                yield f"function {op.key[1]!r}"
            elif (isinstance(op, Custom) and op.key in keys) or _has_body(op):
                yield _where(op)


def _has_body(op: Operation) -> bool:
    """Whether ONNX defines the operator of a node by a function, and no lowering does."""
    return (
        isinstance(op, SchemaOp)
        and bool(body_schema(op.SCHEMA).function_opset_versions)
        and not is_lowered(op)
    )


ENCLOSED = Property(
    "enclosed-gradients",
    ONNX,
    "each Gradient node contains the function that it differentiates, instead of names of tensors",
    _each(_is_open_gradient),
)
INLINED = Property(
    "inlined-functions",
    ONNX,
    "no function of the model is left, and no operator that ONNX defines by other operators",
    _composed,
)


# The graphcore level


def _further_graphs(module: ModuleOp) -> Iterator[str]:
    names = [graph.sym_name.data for graph in graphs_of(module)]
    if not names:
        yield "a module without graphs"
    yield from (f"graph {name!r}" for name in names[1:])


def _reported(module: ModuleOp) -> Iterator[str]:
    for graph in graphs_of(module):
        for check in graph.return_op.index_checks:
            yield f"output {check.output!r}"


ONE_GRAPH = Property(
    "one-graph",
    GRAPHCORE,
    "the module is one graph, with bodies of branches and loops inside their operations",
    _further_graphs,
)
EXPANDED = Property(
    "expanded",
    GRAPHCORE,
    "no composite is left, such as softmax: each operation has a kind that lowering knows",
    _each(lambda op: isinstance(op, Composite)),
)
SPREAD = Property(
    "no-collectives",
    GRAPHCORE,
    "no operation combines the values of replicas: the graph holds all replicas of its process",
    _each(lambda op: isinstance(op, Collective)),
)
UNREPORTED = Property(
    "unreported-indices",
    GRAPHCORE,
    "no output reports an index that is out of range",
    _reported,
)
CHECKED = Property(
    "checked-indices",
    GRAPHCORE,
    "no index is left to check: lowering would drop the check",
    _each(lambda op: isinstance(op, gc.CheckIndicesOp)),
)
_OF_WORDS = (
    *(gc.DotMatMulOp, gc.DotConvOp, gc.DotConvInputGradOp, gc.DotConvWeightGradOp),
    *(gc.MatMulInPairsOp, gc.ConvInPairsOp),
)
WORDLESS = Property(
    "no-words",
    GRAPHCORE,
    "no contraction sums words of packed numbers, which has no gradient",
    _each(lambda op: isinstance(op, _OF_WORDS)),
)


# The structured level


def _unbound(module: ModuleOp) -> Iterator[str]:
    inputs = {name for graph in graphs_of(module) for name in graph.inputs}
    return (f"size {size.name!r}" for size in sizes_of(module) if size.name not in inputs)


def _has_layout(op: Operation) -> bool:
    types = (result.type for result in op.results)
    return any(isinstance(one, TensorType) and layout_of(one) is not None for one in types)


UNSCHEDULED = Property(
    "unscheduled",
    STRUCTURED,
    "no contraction has a schedule, which refers to loops by number and depends on the epilogue",
    _each(lambda op: isinstance(op, tile.ReduceOp) and op.schedule is not None),
)
DENSE = Property(
    "dense-tensors",
    STRUCTURED,
    "no tensor has a layout: elements are in row-major order without gaps",
    _each(_has_layout),
)
UNCUT = Property(
    "uncut-loops",
    STRUCTURED,
    "no loops are cut into chunks, which refer to the loops of the final kernels by number",
    _each(lambda op: CUT in op.attributes),
)
BOUND = Property(
    "bound-sizes",
    STRUCTURED,
    "each size of the call is an input of the graph, where loops over it end",
    _unbound,
)


# The levels below


_PLANNED = (
    *(GraphOp, PrepareOp, ReturnOp, UpdateOp, YieldOp, ConstantOp, VariableOp),
    *(CallCondOp, CallLoopOp, tile.LaunchOp, tile.ViewOp, tile.AssembleOp),
)


def _without_memory(module: ModuleOp) -> Iterator[str]:
    inner = (op for op in operations(module) if op.parent is not module.body.block)
    return (_where(op) for op in inner if not isinstance(op, _PLANNED))


LAUNCHED = Property(
    "launched-kernels",
    LOOPS,
    "graphs launch kernels, and hold calls, views, joins, constants and variables otherwise",
    _without_memory,
)
UNHANDED = Property(
    "unhanded-constants",
    PROGRAM,
    "no constant of a kernel is a parameter that callers pass",
    _each(lambda op: bool(handed(op))),
)

PROPERTIES = (
    *(ENCLOSED, INLINED),
    *(ONE_GRAPH, EXPANDED, SPREAD, UNREPORTED, CHECKED, WORDLESS),
    *(UNSCHEDULED, DENSE, UNCUT, BOUND),
    *(LAUNCHED, UNHANDED),
)
"""All properties, by level."""
