"""Lowers a graph of ONNX nodes to graphcore, node by node: constants, branches, random state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import TensorType, UnknownLoc
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import SEED, AddOp, ReshapeOp
from popgraph.dialects.graphcore.base import is_float, shape_of
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, value_name
from popgraph.dialects.onnx.attributes import StringTensorAttr, TensorAttr
from popgraph.dialects.onnx.custom import OWN
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.open_containers import ABSENT, code_points, element_name, length_name
from popgraph.dialects.onnx.types import describe, static_shape
from popgraph.dialects.onnx.weight_names import weight_name
from popgraph.dialects.program import (
    ConstantOp,
    GraphOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
)
from popgraph.operators.bodies import discard, drop_unused, in_declared_shape, show_as
from popgraph.operators.context import LoweringContext, Moved
from popgraph.operators.elements import (
    elements_of,
    is_held,
    is_nothing,
    is_strings,
    strings,
)
from popgraph.operators.node import Node
from popgraph.operators.record import as_values, lowering_of, structural_operands
from popgraph.operators.sized_by_data import bounded, check_data_sizes, has_bounds
from popgraph.passes.graphcore.fold_constants import fold_small
from popgraph.passes.graphcore.training.autodiff import differentiate
from popgraph.passes.onnx.to_graphcore.known_nodes import KNOWN_NODES, Literals, NodeOfLiterals
from popgraph.passes.onnx.to_graphcore.refusals import (
    Refusals,
    place_of,
    stand_in_type,
    unknown_operator,
)
from popgraph.support.errors import (
    NeedsHostError,
    PassError,
    PopgraphError,
    TypeMismatchError,
    UnsupportedError,
)


@dataclass
class Lowering(LoweringContext):
    """The lowering of one graph: maps each ONNX value to its graphcore value."""

    variables: bool = False
    constants: frozenset[str] = frozenset()
    """Initializers that are constants even if others are variables."""
    opsets: Mapping[str, int] = field(default_factory=dict)
    home: Block = field(default_factory=Block)
    """The block of the main graph."""
    block: Block = field(default_factory=Block)
    """The block to which operations are added: of the main graph, or a body."""
    naming: bool = True
    """Whether options can refer to tensors by the names in the current graph."""
    hidden: set[str] = field(default_factory=set)
    """Names of tensors to which options cannot refer."""
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)
    names: dict[str, SSAValue] = field(default_factory=dict)
    named: set[SSAValue] = field(default_factory=set)
    """Values that have a name already."""
    wanted: frozenset[str] = frozenset()
    """Requested tensors; training may also request their gradients."""
    weight_names: set[str] = field(default_factory=set)
    unfolded: set[SSAValue] = field(default_factory=set)
    """Requested constants and values that depend on them: gradients need the path between."""
    refusals: Refusals = field(default_factory=Refusals)
    depth: int = 0
    """Number of nodes around the graph that is being lowered."""

    def graph(self, source: Graph, extra_outputs: Sequence[str]) -> GraphOp:
        """Lowers the main graph."""
        types = [
            input_type(name, arg.type)
            for name, arg in zip(source.input_names, source.block.args, strict=True)
        ]
        self.wanted = frozenset([*extra_outputs, *source.output_names])
        graph = GraphOp("main", source.input_names, types)
        for old, (name, new) in zip(source.block.args, graph.inputs.items(), strict=True):
            self._know(old, new, name)
        self.home = self.block = graph.block
        self._walk(source.block)
        self.refusals.check()
        with self.at_home():
            self._end(source, extra_outputs)
        drop_unused(graph.block)
        return graph

    def _walk(self, source: Block) -> None:
        for op in source.ops:
            if isinstance(op, Initializer):
                self._initializer(op)
            elif isinstance(op, OnnxOp) and self.depth:
                self._node(op)
            elif isinstance(op, OnnxOp):
                self._collecting(op)

    def _collecting(self, op: OnnxOp) -> None:
        """
        Lowers a node of the main graph; if it is refused, later nodes are still checked.

        Its outputs are replaced by placeholders, if inference knows their types.
        """
        try:
            self._node(op)
        except PopgraphError as error:
            self.refusals.note(op, error, self.values)
            for value in op.results:
                type_ = stand_in_type(value)
                if type_ is not None:
                    arguments = self.home.args
                    self.values[value] = self.home.insert_arg(type_, len(arguments))

    # Graphs inside nodes

    def place(
        self, graph: Graph, arguments: Sequence[SSAValue], *, named: bool = False
    ) -> list[SSAValue | None]:
        if len(arguments) != len(graph.block.args):
            raise TypeMismatchError(
                f"the inner graph {graph.graph_name.text!r} takes {len(graph.block.args)} inputs, "
                f"not {len(arguments)}"
            )
        return self.inline(graph.block, arguments, graph.yielded, named=named)

    def inline(
        self,
        source: Block,
        arguments: Sequence[SSAValue],
        results: Sequence[SSAValue],
        *,
        named: bool = False,
    ) -> list[SSAValue | None]:
        """Lowers a block inside a node, for these arguments; returns its `results`, see `place`."""
        self.values.update(zip(source.args, arguments, strict=True))
        for new, old in zip(arguments, source.args, strict=True):
            show_as(new, old)
        outside, self.naming = self.naming, self.naming and named
        self.depth += 1
        try:
            self._walk(source)
        finally:
            self.naming = outside
            self.depth -= 1
        return [self.values.get(value) for value in results]

    def check_types(self, graph: Graph) -> None:
        inference = Inference(self.opsets, self.weights)
        inference.into_graphs = True
        inference.visit_graph(graph)

    @contextmanager
    def writing(self, block: Block, *indices: SSAValue) -> Iterator[Moved]:
        outside = self.block, self.turns
        self.block, self.turns = block, (*self.turns, *indices)
        self.moved.append({})
        try:
            with ImplicitBuilder(block):
                yield self.moved[-1]
        except PopgraphError:
            discard(block)
            raise
        finally:
            self.block, self.turns = outside
            self.moved.pop()

    def append(self, block: Block) -> None:
        for op in list(block.ops):
            op.detach()
            self.block.add_op(op)

    def differentiate(self, block: Block) -> Sequence[SSAValue]:
        return differentiate(block, block.args)

    def at_home(self) -> AbstractContextManager[object]:
        return ImplicitBuilder(self.home)

    @contextmanager
    def unrolling(self, turns: int) -> Iterator[None]:
        outside = self.repeated
        self.repeated *= turns
        try:
            yield
        finally:
            self.repeated = outside

    # Values

    def _own(self, value: SSAValue, name: str) -> SSAValue:
        """
        The value to be named `name`; in training, requested names get distinct values.

        `y = Identity(x)` has the value of x but its own gradient, from the readers of y only.
        """
        if not self.naming:
            return value
        is_tensor = not is_held(value)
        is_distinct = self.training and name in self.wanted and is_tensor and is_float(value)
        if is_distinct and value in self.named:
            value = ReshapeOp(value, shape=shape_of(value)).result
        self.named.add(value)
        return value

    def _know(self, old: SSAValue, new: SSAValue, name: str) -> None:
        self.values[old] = new
        show_as(new, old)
        if not self.naming:
            self.hidden.add(name)
            return
        self.names[name] = new
        self.named.add(new)
        if self.training and name in self.wanted:
            self.unfolded.add(new)

    def _initializer(self, op: Initializer) -> None:
        """
        Lowers an initializer in the main graph, even if it belongs to a graph inside a node.

        It is one weight for all iterations of a loop.
        """
        if op.result in self.values:
            return
        name = weight_name(op)
        if isinstance(op.value, TensorAttr):
            literal = op.value.held
            if isinstance(literal, StringTensorAttr):
                with self.at_home():
                    self.values[op.result] = strings(self.literal(code_points(literal.array)))
                return
        else:
            literal = self.weights.attribute(op.array(self.weights))
        is_float = element_types.from_ir(literal.type.element_type).is_float
        is_variable = self.variables and is_float and name not in self.constants
        if is_variable and name in self.weight_names:
            raise UnsupportedError(
                f"two graphs have a weight named {name!r}",
                f"weight {name!r}",
                "training identifies weights by their names: rename one",
            )
        self.weight_names.add(name)
        with self.at_home():
            make = VariableOp(name, literal) if is_variable else ConstantOp(literal)
        if self.naming:
            self._know(op.result, make.result, name)
        else:
            self.values[op.result] = make.result
            show_as(make.result, op.result)
            self.names.setdefault(name, make.result)

    def _node(self, op: OnnxOp) -> None:
        # Requested constants of a training must stay unfolded, see `unfolded`.
        memoized = not (self.training or self.depth)
        literals = NodeOfLiterals.of(op, self.values, self.tuning) if memoized else None
        known = None if literals is None else KNOWN_NODES.get(literals)
        outputs = self._computed(op) if known is None else self._recalled(op, known)
        if literals is not None and known is None:
            operands = [self.values[operand] for operand in op.operands]
            KNOWN_NODES.note(literals, operands, outputs)
        for old, name, value in zip(op.output_values(), op.output_names, outputs, strict=False):
            if old is not None and value is not None:
                self._know(old, value, name)

    def _recalled(self, op: OnnxOp, literals: Literals) -> list[SSAValue | None]:
        """The outputs of a memoized node, as literals."""
        made = [None if literal is None else ConstantOp(literal) for literal in literals]
        for constant in filter(None, made):
            constant.location = op.location
            self.block.add_op(constant)
        return [None if constant is None else constant.result for constant in made]

    def _computed(self, op: OnnxOp) -> list[SSAValue | None]:
        """Lowers a node at the end of the block; returns its outputs."""
        before = self.block.last_op
        try:
            with ImplicitBuilder(self.block):
                outputs = self._lower(op)
                outputs = [
                    value if value is None or old is None else in_declared_shape(value, old)
                    for value, old in zip(outputs, op.output_values(), strict=False)
                ]
                outputs = [
                    value if value is None else self._own(value, name)
                    for value, name in zip(outputs, op.output_names, strict=False)
                ]
            outputs = self._sized(before, outputs)
        except PopgraphError as error:
            raise self._placed(located(error, op), op) from error
        made = [new for new in _after(before, self.block) if not is_located(new)]
        for new in made:
            _locate(new, op)
        folded = self._folded(made, op)
        self.data_sizes.substitute(folded)
        return [value if value is None else folded.get(value, value) for value in outputs]

    def _sized(
        self, before: Operation | None, outputs: Sequence[SSAValue | None]
    ) -> list[SSAValue | None]:
        """The outputs, after masks are added to new operations on tensors of run-time sizes."""
        if not self.data_sizes:
            return list(outputs)
        replaced = self.data_sizes.follow(_after(before, self.block))
        return [value if value is None else replaced.get(value, value) for value in outputs]

    def _placed(self, error: PopgraphError, op: OnnxOp) -> PopgraphError:
        """The error; for a node that needs the host, records the enclosing nodes as well."""
        if isinstance(error, NeedsHostError):
            if error.inner is None:
                error.inner = op
                error.hint = f"{error.hint}; {self._way_out(op)}".removeprefix("; ")
            error.node = op
        return error

    def _way_out(self, op: OnnxOp) -> str:
        if self.training:
            return "nodes that only Python computes have no gradient"
        return f"or let the host compute {op.op_type}: `popgraph run` and popgraph.compile do"

    def _folded(self, made: list[Operation], op: OnnxOp) -> dict[SSAValue, SSAValue]:
        """Folds new operations; maps results to their constants."""
        stays = any(operand in self.unfolded for new in made for operand in new.operands)
        if not stays and not _is_matrix_of_integers(op):
            return fold_small(made, self.weights, self.tuning)
        self.unfolded.update(result for new in made for result in new.results)
        return {}

    def _lower(self, op: OnnxOp) -> list[SSAValue | None]:
        is_bounded = has_bounds(op, self)
        function = lowering_of(OWN if is_bounded else op.domain, op.op_type)
        if function is None:
            raise unknown_operator(op)
        inputs = [None if value is None else self._input(value) for value in op.input_values()]
        if self.data_sizes:
            check_data_sizes(op, inputs, self.data_sizes)
        made = as_values(function(Node(op, inputs, self, structural_operands(op))))
        return bounded(made, self.data_sizes) if is_bounded else made

    def _input(self, value: SSAValue) -> SSAValue:
        found = self.values.get(value)
        if found is None:
            raise UnsupportedError(
                f"input {value_name(value)!r} of type {describe(value.type)} is not supported",
                hint="use dense tensors of numbers",
            )
        return found

    def _end(self, source: Graph, extra_outputs: Sequence[str]) -> None:
        if self._seed is not None:
            self._advance_seed(self._seed)
        for variable, value in self.updates.items():
            UpdateOp(variable, value)
        outputs: dict[str, SSAValue] = {}
        for name, value in zip(source.output_names, source.yielded, strict=True):
            outputs |= self._outputs(name, self._input(value))
        for name in extra_outputs:
            if name not in outputs:
                outputs |= self._outputs(name, self._named(name))
        for name, value in outputs.items():
            self.data_sizes.check_given(value, name)
        ReturnOp(list(outputs.values()), list(outputs))

    def _outputs(self, name: str, value: SSAValue) -> dict[str, SSAValue]:
        """The outputs of a program for a value: itself, or a sequence's length and elements."""
        if not is_held(value):
            return {name: value}
        if is_strings(value):
            raise UnsupportedError(
                f"output {name!r} is a string tensor", hint="use tensors of numbers"
            )
        elements = elements_of(value)
        length = ABSENT if is_nothing(value) else len(elements)
        parts = {element_name(name, place): one for place, one in enumerate(elements)}
        return {length_name(name): self.literal(np.array(length)), **parts}

    def _named(self, name: str) -> SSAValue:
        if name not in self.names and name in self.hidden:
            raise UnsupportedError(
                f"tensor {name!r} is computed inside a node's graph and cannot be an output",
                "extra outputs",
                "make it an output of that graph; a loop returns one value for each iteration",
            )
        if name not in self.names:
            raise PassError(
                f"the model has no tensor {name!r}",
                "extra outputs",
                "name an input, an initializer or an output of a node",
            )
        return self.names[name]

    def _advance_seed(self, seed: SSAValue) -> None:
        self.updates[SEED] = AddOp(seed, self.literal(np.array([0, 1], np.int64))).result


def input_type(name: str, type_: Attribute) -> TensorType[Attribute]:
    """The type of an input; raises an error unless it is a tensor of numbers with known shape."""
    shape = static_shape(type_)
    if isinstance(type_, TensorType) and shape is None:
        raise TypeMismatchError(
            f"the shape of input {name!r} is not known: {describe(type_)}",
            f"input {name!r}",
            "pass the shapes of the inputs when compiling",
        )
    if not isinstance(type_, TensorType) or not element_types.is_number(type_.element_type):
        raise UnsupportedError(
            f"inputs of type {describe(type_)} are not supported", f"input {name!r}"
        )
    return TensorType(type_.element_type, shape or ())


def located(error: PopgraphError, op: OnnxOp) -> PopgraphError:
    """The error with the node as its location, unless it has one."""
    if error.where:
        return error
    return type(error)(error.what, place_of(op), error.hint)


def _after(before: Operation | None, block: Block) -> list[Operation]:
    """The operations after `before`, or all if it is None."""
    op = block.first_op if before is None else before.next_op
    found = []
    while op is not None:
        found.append(op)
        op = op.next_op
    return found


def is_located(op: Operation) -> bool:
    """Whether an operation has the location of its node."""
    return not isinstance(op.location, UnknownLoc)


def _locate(op: Operation, source: OnnxOp) -> None:
    """Gives an operation and operations inside it the location of a node, unless they have one."""
    for inner in op.walk():
        if not is_located(inner):
            inner.location = source.location


def _is_matrix_of_integers(op: OnnxOp) -> bool:
    """Whether a node may dequantize weights, whose integers `contract-quantized` needs."""
    return op.op_type == "DequantizeLinear" and len(shape_of(op.operands[0])) > 1
