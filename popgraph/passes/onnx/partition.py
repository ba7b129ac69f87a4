"""Partitions a model into compiled segments and nodes that the host computes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Function, Model, model_of, value_name
from popgraph.dialects.onnx.custom import OWN, Custom
from popgraph.dialects.onnx.expansion import inline
from popgraph.dialects.onnx.functions import function_of
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.open_containers import compares_strings
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import (
    STRING,
    UNKNOWN,
    MapType,
    OptType,
    SeqType,
    SparseType,
    describe,
    tensor_type,
)
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.support import dtypes
from popgraph.support.memo import by_identity

DATA_DECIDE_SIZES = frozenset(
    {"NonZero", "Compress", "Unique", "NonMaxSuppression", "ImageDecoder"}
)
"""ONNX operators whose result sizes depend on data."""

BOUNDED = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression"})
"""Operators whose results programs write to a buffer with a static bound, with the actual shape."""


@dataclass(frozen=True)
class HostStep:
    """A node that Python computes, on arrays, sequences and strings."""

    op: OnnxOp


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the model as a separate model."""

    module: ModuleOp
    inputs: dict[str, SSAValue]
    """Values of the whole model that are its inputs, by name."""
    outputs: dict[str, SSAValue]
    """Values of the whole model that are its outputs, by name."""
    shapes: dict[str, str]
    """For bounded outputs, the names of the outputs with their shapes."""


@dataclass(frozen=True, eq=False)
class Segment(Piece):
    """Nodes that are compiled together."""

    nodes: Sequence[OnnxOp]
    """The original nodes in the whole model."""
    deciding: tuple[OnnxOp, ...] = ()
    """Nodes whose structure depends on values from before the segment."""

    @property
    def known(self) -> tuple[str, ...]:
        """Inputs whose values must be known although their types do not show it: conditions."""
        conditions = {op.operands[0] for op in self.deciding if is_branch(op)}
        return tuple(name for name, value in self.inputs.items() if value in conditions)


Step = HostStep | Segment


def is_branch(op: OnnxOp) -> bool:
    return (op.domain, op.op_type) == ("", "If")


def host_node(op: OnnxOp) -> bool:
    """Whether no program with static sizes can compute a node."""
    if compares_strings(op):
        return False
    inside = op.walk() if op.regions else (op,)
    return any(map(_is_python, inside)) or any(
        _is_container(value.type) for block in op.walk_blocks() for value in block.args
    )


def _is_python(op: Operation) -> bool:
    """Whether Python computes a node, whatever the graphs inside it contain."""
    values = (*op.operands, *op.results)
    return _is_of_python(op) or any(_is_container(value.type) for value in values)


def _is_of_python(op: Operation) -> bool:
    found = op.op_type if isinstance(op, OnnxOp) and op.domain == "" else ""
    return found in DATA_DECIDE_SIZES


def is_bounded(op: Operation) -> bool:
    """Whether a program can compute a node into a bounded buffer, with the actual shape."""
    if not isinstance(op, SchemaOp) or op.domain != "" or op.op_type not in BOUNDED:
        return False
    return not any(_is_container(value.type) for value in (*op.operands, *op.results))


def why_hosted(op: OnnxOp) -> str:
    """The reason why the host computes a node."""
    for inner in op.walk():
        if _is_of_python(inner):
            assert isinstance(inner, OnnxOp)
            why = "the data decide the size of its result"
            return why if inner is op else f"in one of its graphs is {inner.op_type}: {why}"
    values = [value for inner in op.walk() for value in (*inner.operands, *inner.results)]
    arguments = [value for block in op.walk_blocks() for value in block.args]
    held = (value for value in (*values, *arguments) if _is_container(value.type))
    if (found := next(held, None)) is not None:
        return f"{value_name(found)!r} is {describe(found.type)}"
    return "data decide its structure"


@by_identity
def _is_container(type_: Attribute) -> bool:
    """Whether a value is not a dense tensor of numbers, nor a sequence or optional of these."""
    if isinstance(type_, SeqType | OptType):
        return _is_container(type_.element)
    is_other = isinstance(type_, MapType | SparseType)
    return is_other or getattr(type_, "element_type", None) == STRING


def python_nodes(module: ModuleOp, *, in_python: bool = False) -> list[OnnxOp]:
    """Nodes that Python computes; with `in_python`, also nodes with sequences and optionals."""
    hosted = [op for op in host_nodes(module) if not is_bounded(op)]
    held = [op for op in model_of(module).graph.nodes if in_python and any(_containers(op))]
    return [*dict.fromkeys([*hosted, *held])]


def _containers(op: OnnxOp) -> Iterator[SSAValue]:
    """Sequences and optionals among a node's inputs and outputs, or inside it."""
    values = (one for inner in op.walk() for one in (*inner.operands, *inner.results))
    return (one for one in values if isinstance(one.type, SeqType | OptType))


def host_nodes(module: ModuleOp, *, trained: bool = False) -> list[OnnxOp]:
    """
    Nodes at which a model is cut into several programs, also inside functions.

    Python computes them, or cuts a program's bounded result to its actual shape. A model that is
    `trained` is one program and computes with bounded results.
    """
    model = model_of(module)
    functions = _host_functions(model, trained)
    return [op for op in model.graph.nodes if _is_host(op, functions, trained)]


def _key(op: Operation) -> tuple[str, str, str] | None:
    return op.key if isinstance(op, Custom) else None


def _host_functions(model: Model, trained: bool = False) -> set[tuple[str, str, str]]:
    """Functions that contain, directly or through calls, nodes for the host."""
    functions, found = _called(model), set[tuple[str, str, str]]()
    while True:
        more = {
            key
            for key, function in functions.items()
            if key not in found and any(_is_host(op, found, trained) for op in function.nodes)
        }
        if not more:
            return found
        found |= more


def _called(model: Model) -> dict[tuple[str, str, str], Function]:
    """Functions of a model, and known functions of other domains that it calls."""
    called = {op.key: op for op in model.walk() if isinstance(op, Custom)}
    found = {key: function_of(op, model.functions) for key, op in called.items()}
    known = {key: function for key, function in found.items() if function is not None}
    return {**known, **model.functions}


def _is_host(op: OnnxOp, functions: set[tuple[str, str, str]], trained: bool) -> bool:
    is_here = host_node(op) and not (trained and is_bounded(op))
    return is_here or any(_key(inner) in functions for inner in op.walk())


def partition(module: ModuleOp, store: WeightStore, *, in_python: bool = False) -> list[Step]:
    """
    The steps of a model in order: as few segments as possible, and host nodes between them.

    Functions that contain host nodes are inlined first.
    """
    inline_functions(module, store, _host_functions(model_of(module)))
    model = model_of(module)
    nodes = [op for op in model.graph.nodes if not is_literal(op)]
    return steps_of(model, nodes, set(python_nodes(module, in_python=in_python)))


def steps_of(
    model: Model,
    nodes: Sequence[OnnxOp],
    hosted: Set[OnnxOp],
    deciding: Container[OnnxOp] = (),
) -> list[Step]:
    """
    The steps for some nodes of a model's graph, in order.

    Each `hosted` node is a step. A new segment begins before a `deciding` node, so that the
    operands that decide its structure are known. A new segment also begins after bounded results,
    which are cut to their shapes in between. Sequences never cross steps: Python computes all
    nodes that use such a sequence.
    """
    levels = _levels(nodes, hosted, deciding)
    # Hosting a node moves others to later levels, where they may share sequences across steps.
    while more := _sharing(nodes, hosted, levels) - hosted:
        hosted = hosted | more
        levels = _levels(nodes, hosted, deciding)
    steps: list[Step] = []
    for level in range(max(levels.values(), default=0) + 1):
        here = [op for op in nodes if levels[op] == level]
        steps += [HostStep(op) for op in here if op in hosted]
        compiled = [op for op in here if op not in hosted]
        if compiled:
            bounded = {op for op in compiled if is_bounded(op)}
            steps.append(_segment(model, compiled, deciding, bounded))
    return steps


def _sharing(
    nodes: Sequence[OnnxOp], hosted: Set[OnnxOp], levels: Mapping[Operation, int]
) -> set[OnnxOp]:
    """Nodes with sequences that cross segments."""
    shared: dict[SSAValue, list[OnnxOp]] = {}
    for op in nodes:
        for value in _containers(op):
            shared.setdefault(value, []).append(op)
    return {
        op
        for ops in shared.values()
        if not hosted.isdisjoint(ops) or len({levels[op] for op in ops}) > 1
        for op in ops
    }


def inline_functions(
    module: ModuleOp, store: WeightStore, functions: Container[tuple[str, str, str]]
) -> None:
    """
    Inlines calls of these functions, also in graphs inside nodes.

    Nodes that Python computes then have types: values of a function have none.
    """
    model = model_of(module)
    while calls := [op for op in model.graph.walk() if _key(op) in functions]:
        inference = infer_shapes(module, store)
        inference.lenient = True  # Some calls are in branches that these inputs never take.
        for call in calls:
            assert isinstance(call, Custom)
            function = function_of(call, model.functions)
            assert function is not None, "its key is from `_host_functions`"
            inline(call, function, inference)


def is_literal(op: Operation) -> bool:
    """Whether an operation is a constant that can be copied into every step: no caller sets it."""
    if isinstance(op, Initializer):
        return op.input is None
    return isinstance(op, OnnxOp) and (op.domain, op.op_type) == ("", "Constant")


def _levels(
    nodes: Sequence[OnnxOp], hosted: Container[OnnxOp], deciding: Container[OnnxOp]
) -> dict[Operation, int]:
    """The number of host steps, decisions and bounded results on the longest path to each node."""
    levels: dict[Operation, int] = {}
    for op in nodes:
        waits = op in hosted or op in deciding
        before = [
            levels[owner] + (waits or (is_bounded(owner) and owner not in hosted))
            for value in read_by(op)
            if isinstance(owner := value.owner, Operation) and owner in levels
        ]
        levels[op] = max(before, default=int(waits))
    return levels


def read_by(op: Operation) -> Iterator[SSAValue]:
    """Outer values that an operation, or a graph inside it, reads."""
    inside = set(op.walk())
    for inner in op.walk():
        for value in inner.operands:
            owner = value.owner
            maker = owner if isinstance(owner, Operation) else owner.parent_op()
            if maker not in inside:
                yield value


def _segment(
    model: Model,
    nodes: Sequence[OnnxOp],
    deciding: Container[OnnxOp],
    bounded: Container[OnnxOp],
) -> Segment:
    own = set(nodes)
    outputs = [value for op in nodes for value in op.results if _leaves(value, own)]
    made = _piece(model, nodes, [], outputs, bounded)
    decisive = tuple(op for op in nodes if op in deciding)
    return Segment(made.module, made.inputs, made.outputs, made.shapes, nodes, decisive)


def piece_of(model: Model, graph: Graph) -> Piece:
    """A graph inside a node as a model; outer values that it reads become inputs."""
    nodes = [op for op in graph.block.ops if isinstance(op, OnnxOp | Initializer)]
    made = {value for op in nodes for value in op.results}
    outputs = [value for value in dict.fromkeys(graph.yielded) if value in made]
    return _piece(model, nodes, graph.block.args, outputs)


def _piece(
    model: Model,
    nodes: Sequence[OnnxOp | Initializer],
    arguments: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    bounded: Container[OnnxOp] = (),
) -> Piece:
    """A model of these nodes, with the literals that they read."""
    made_here = {value for op in nodes for value in op.results}
    outside = [value for op in nodes for value in read_by(op) if value not in made_here]
    read = list(dict.fromkeys([*arguments, *outside]))
    literals = [value for value in read if is_literal_value(value)]
    inputs = [value for value in read if value not in literals]
    block = Block(arg_types=[value.type for value in inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    shapes: dict[SSAValue, SSAValue] = {}
    for op in (*dict.fromkeys(value.owner for value in literals), *nodes):
        assert isinstance(op, Operation)
        if op in bounded:
            assert isinstance(op, SchemaOp)
            copy = with_shapes(op, values)
            shapes |= dict(zip(op.results, copy.results[len(op.results) :], strict=True))
            values |= dict(zip(op.results, copy.results[: len(op.results)], strict=True))
            block.add_op(copy)
        else:
            block.add_op(op.clone(values))
    sized = {value: shapes[value] for value in outputs if value in shapes}
    block.add_op(Yield([*(values[value] for value in outputs), *sized.values()]))
    infos = [
        ValueInfoAttr.of(shape_name(value_name(value)), shape.type)
        for value, shape in sized.items()
    ]
    graph = Graph("segment", _infos(inputs), [*_infos(outputs), *infos], Region(block))
    made = Model(
        model.ir_version.value.data,
        list(model.opsets),
        [function.clone() for function in model.functions.values()],
        graph,
    )
    taken, given = ({value_name(value): value for value in group} for group in (inputs, outputs))
    names = {name: shape_name(name) for name in map(value_name, sized)}
    return Piece(ModuleOp([made]), taken, given, names)


def with_shapes(op: SchemaOp, values: Mapping[SSAValue, SSAValue]) -> Custom:
    """
    y = NonZero(x)  ->  y, shape of y = ai.popgraph::NonZero(x)

    The results are bounded, perhaps flattened to lists, and followed by the shape of each.
    """
    results = op.output_values()
    names = ["" if value is None else value_name(value) for value in results]
    types = [UNKNOWN if value is None else value.type for value in results]
    inputs = [None if value is None else values[value] for value in op.input_values()]
    made = Custom.make(
        OWN,
        op.op_type,
        inputs,
        op.default_attributes() | op.onnx_attributes(),
        [*names, *(name and shape_name(name) for name in names)],
        [*types, *([tensor_type(dtypes.BY_NAME["i64"], [None])] * len(types))],
        {name: value for name, value in op.attributes.items() if name != "outputs"},
    )
    made.location = op.location
    return made


def shape_name(name: str) -> str:
    """The name of the shape of a bounded result."""
    return f"shape of {name}"


def alone(model: Model, op: OnnxOp, types: Mapping[SSAValue, Attribute]) -> Piece:
    """A piece of one node anywhere in the model; `types` replaces the types of some inputs."""
    made = _piece(model, [op], [], [one for one in op.results if one.first_use is not None])
    graph = model_of(made.module).graph
    for argument, value in zip(graph.block.args, made.inputs.values(), strict=True):
        set_type(argument, types.get(value, value.type))
    graph.properties["inputs"] = ArrayAttr(
        ValueInfoAttr.of(name, argument.type)
        for name, argument in zip(made.inputs, graph.block.args, strict=True)
    )
    return made


def is_literal_value(value: SSAValue) -> bool:
    """Whether a value is a constant, see `is_literal`."""
    return isinstance(value.owner, Operation) and is_literal(value.owner)


def _leaves(value: SSAValue, nodes: set[OnnxOp]) -> bool:
    """Whether a value is read outside these nodes."""
    return any(_node_of(use.operation) not in nodes for use in value.uses)


def _node_of(op: Operation) -> Operation:
    """The node of the main graph that is, or contains, an operation."""
    while not isinstance(holder := op.parent_op(), Graph | Function) or not isinstance(
        holder.parent_op(), Model
    ):
        assert holder is not None, "nodes are in the graph of a model"
        op = holder
    return op


def _infos(values: Iterable[SSAValue]) -> list[ValueInfoAttr]:
    return [ValueInfoAttr.of(value_name(value), value.type) for value in values]


def maker_of(node: OnnxOp, nodes: Sequence[OnnxOp]) -> OnnxOp | None:
    """
    The original of a node, among `nodes`, in a model that has since been inlined and normalized.

    Outputs of the originals, and values in their graphs, keep their names. New nodes are found
    through the named outputs that depend on them.
    """
    makers = {name: op for op in nodes for inner in op.walk() for name in _names(inner)}
    makers |= {name: op for op in nodes for name in _names(op)}
    pending: list[Operation] = [node]
    seen: set[Operation] = set()
    while pending:
        op = pending.pop(0)
        if op in seen:
            continue
        seen.add(op)
        if found := next((makers[name] for name in _names(op) if name in makers), None):
            return found
        pending += [_node_of(use.operation) for value in op.results for use in value.uses]
    return None


def _names(op: Operation) -> Iterator[str]:
    return filter(None, op.output_names if isinstance(op, OnnxOp) else ())
