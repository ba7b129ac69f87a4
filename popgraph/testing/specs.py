"""Random networks as plain data: nodes, constants, and the module that they build."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx import tensor_type
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape

OPSETS = {"": 18, "ai.graphcore": 1}


@dataclass(frozen=True)
class Constant:
    """An initializer: every element `fill`, or small multiples of 1/4 drawn from `seed`."""

    shape: Shape
    dtype: str = "f32"
    values: tuple[int, ...] | None = None
    fill: float | None = None
    seed: int = 0

    def array(self) -> Array:
        dtype = dtypes.BY_NAME[self.dtype].numpy
        if self.values is not None:
            return np.array(self.values, dtype).reshape(self.shape)
        if self.fill is not None:
            return np.full(self.shape, self.fill, dtype)
        generator = np.random.default_rng(self.seed)
        return (generator.integers(-4, 5, self.shape) / 4).astype(dtype)


@dataclass(frozen=True)
class Node:
    """One operator; operands are numbers of earlier values, or constants of its own."""

    op: str
    operands: tuple[int | Constant | None, ...]
    attributes: tuple[tuple[str, object], ...] = ()
    domain: str = ""
    shape: Shape | None = None
    """The result's shape, if no schema infers it: other domains, and rows of bodies."""
    body: Body | None = None
    """The body of an If, a Loop or a Scan."""

    def reads(self) -> Iterator[int]:
        """The numbers of the values that its result depends on."""
        operands = [operand for operand in self.operands if isinstance(operand, int)]
        if self.body is None:
            yield from operands
        else:
            (source,) = operands
            yield from self.body.reads(self.op, source)


@dataclass(frozen=True)
class Body:
    """
    The subgraphs of an If, a Loop or a Scan, which has a single operand.

    If: both `networks` read the captured values; each branch returns operand + mean(network). Loop:
    the network reads the state, initially the operand, and the captured values. Scan: the network
    reads the state, initially zero, and a row of the operand. State update: state <- state / 2 +
    mean(network). Rows are the network's values. A loop that data may end (`until`, `guarded`,
    `counted`) has no rows.
    """

    networks: tuple[Network, ...]
    captured: tuple[int, ...] = ()
    """Numbers of values outside the body."""
    trips: int = 1
    stacked: bool = False
    """Whether the node returns the rows instead of the final state."""
    delayed: bool = False
    """Whether the node returns the state one iteration before the end, if not the rows."""
    reverse: tuple[bool, bool] = (False, False)
    """Whether a Scan reads its rows, and writes them, in reverse."""
    until: int | None = None
    """A Loop ends after the iteration with this index."""
    guarded: bool = False
    """Whether the initial condition of a Loop is that the mean of the operand is large."""
    counted: bool = False
    """Whether a Loop has a single iteration if that mean is small."""

    @property
    def has_rows(self) -> bool:
        return self.until is None and not self.guarded and not self.counted

    def reads(self, op: str, source: int) -> Iterator[int]:
        """The numbers of outside values that the result depends on."""
        read = {number for network in self.networks for number in network.read_by_last()}
        first = 0 if op == "If" else 1
        seen = [one for at, one in enumerate(self.captured, first) if at in read]
        runs = op == "If" or self.trips > int(self.delayed and not self.stacked)
        if op == "Scan":
            yield from [source] if runs and 1 in read else []
            return
        if not self.stacked or 0 in read:
            yield source
        yield from seen if runs else []


@dataclass(frozen=True)
class Network:
    """Inputs of one element type, then nodes; values are numbered in that order."""

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    dtype: str = "f32"
    outputs: tuple[int, ...] = field(default=())
    """Values that are outputs besides the last one; inputs may be among them."""
    gradients: tuple[int, ...] = field(default=())
    """Values whose gradients training returns as well."""
    shared: tuple[Constant, ...] = ()
    """Constants that are one initializer each, whatever the number of nodes that read them."""
    again: tuple[int | Constant, ...] = ()
    """
    Further outputs: second names of values, and initializers of `shared`.

    An entry that occurs twice is one output that the graph lists twice.
    """

    def name(self, number: int, last: str | None = None) -> str:
        """The name of a value; the last one may have a name of its own."""
        if number < len(self.inputs):
            return f"x{number}"
        node = number - len(self.inputs)
        return last if last and node == len(self.nodes) - 1 else f"v{node}"

    def read_by_last(self) -> tuple[int, ...]:
        """The last value and all values that it is computed from."""
        found = {len(self.inputs) + len(self.nodes) - 1}
        for number, node in reversed(list(enumerate(self.nodes, len(self.inputs)))):
            if number in found:
                found |= set(node.reads())
        return tuple(sorted(found))


DISTURBANCE = "added_to_"
"""Prefix of inputs that are added to a value in a disturbed network."""
STILL = "_still"
"""Suffix of the value before the addition."""


def build_network(
    network: Network, weights: WeightStore, last: str | None = None, *, disturbed: bool = False
) -> ModuleOp:
    """
    Builds the network as a module of the onnx level; `last` names its last value.

    `disturbed`: an input of its own is added to the result of every node.
    """
    writer = GraphWriter(OPSETS, weights)
    for place, constant in enumerate(network.shared):
        writer.add_initializer(_shared_name(place), constant.array())
    names = [network.name(number) for number in range(len(network.inputs))]
    values = [
        writer.add_input(name, tensor_type(network.dtype, shape))
        for name, shape in zip(names, network.inputs, strict=True)
    ]
    for number, node in enumerate(network.nodes):
        names.append(network.name(len(names), last))
        name = names[-1] + STILL if disturbed else names[-1]
        result = _written(writer, node, values, name, str(number), network)
        if disturbed:
            type_ = result.type if node.shape is None else tensor_type(network.dtype, node.shape)
            result = _moved(writer, result, names[-1], type_)
        values.append(result)
    chosen = sorted({*network.outputs, len(values) - 1})
    returned = [(names[number], values[number]) for number in chosen]
    for one in network.again:
        name = f"again_{names[one]}" if isinstance(one, int) else _name_of(one, network)
        if isinstance(one, int) and not writer.has_value(name):
            writer.add_node("Identity", [values[one]], outputs=[name])
        returned.append((name, writer.value(name)))
    infos = [ValueInfoAttr.of(name, value.type) for name, value in returned]
    writer.set_outputs([value for _, value in returned], infos)
    return writer.module()


def _shared_name(place: int) -> str:
    return f"shared{place}"


def _name_of(constant: Constant, network: Network) -> str:
    """The name of the initializer of a constant of `shared`."""
    return _shared_name(network.shared.index(constant))


def _written(
    writer: GraphWriter,
    node: Node,
    values: list[SSAValue],
    name: str,
    label: str,
    network: Network,
) -> SSAValue:
    """
    Writes a node of a network, or of one of its bodies.

    `label` makes the names of its constants and inner values unique.
    """
    operands: list[SSAValue | None] = []
    for position, operand in enumerate(node.operands):
        match operand:
            case None:
                operands.append(None)
            case int():
                operands.append(values[operand])
            case Constant() if operand in network.shared:
                operands.append(writer.value(_name_of(operand, network)))
            case Constant():
                constant = f"c{label}_{position}"
                operands.append(writer.add_initializer(constant, operand.array()))
    if node.body is not None:
        (source,) = operands
        assert source is not None, "what runs bodies has an operand"
        held = [values[number] for number in node.body.captured]
        return _Bodies(writer, node.body, label, network).written(node.op, source, held, name)
    (result,) = writer.add_node(
        node.op,
        operands,
        dict(node.attributes),
        domain=node.domain,
        outputs=[name],
        name=f"n{label}",
        result_types=None if node.shape is None else [tensor_type(network.dtype, node.shape)],
    )
    return result


@dataclass(frozen=True)
class _Bodies:
    """Writes a node with bodies."""

    writer: GraphWriter
    body: Body
    label: str
    outer: Network

    @property
    def dtype(self) -> str:
        return self.outer.dtype

    def written(self, op: str, source: SSAValue, captured: list[SSAValue], name: str) -> SSAValue:
        match op:
            case "If":
                return self._if(source, captured, name)
            case "Loop":
                return self._loop(source, captured, name)
            case _:
                return self._scan(source, name)

    def _number(self, writer: GraphWriter, value: float, word: str) -> SSAValue:
        array = Constant((), self.dtype, fill=value).array()
        return writer.add_initializer(f"{word}{self.label}", array)

    def _mean(self, writer: GraphWriter, value: SSAValue, word: str) -> SSAValue:
        outputs = [f"{word}{self.label}"]
        return writer.add_node("ReduceMean", [value], {"keepdims": 0}, outputs=outputs)[0]

    def _inner(self, writer: GraphWriter, network: Network, given: list[SSAValue]) -> SSAValue:
        """The last value of the nodes of a network."""
        values = list(given)
        for number, node in enumerate(network.nodes):
            label = f"{self.label}{writer.name}{number}"
            values.append(_written(writer, node, values, f"v{label}", label, self.outer))
        return values[-1]

    def _is_large(self, source: SSAValue) -> SSAValue:
        """Whether the mean of a value is above a limit."""
        mean = self._mean(self.writer, source, "decides")
        limit = self._number(self.writer, 0.1, "l")
        return self.writer.add_node("Greater", [mean, limit], outputs=[f"p{self.label}"])[0]

    def _if(self, source: SSAValue, captured: list[SSAValue], name: str) -> SSAValue:
        predicate = self._is_large(source)
        graphs = {}
        for word, network in zip(("then", "else"), self.body.networks, strict=True):
            branch = self.writer.subgraph(word)
            inner = self._mean(branch, self._inner(branch, network, captured), f"m{word}")
            made = branch.add_node("Add", [source, inner], outputs=[f"{word}{self.label}"])
            branch.set_outputs(made, [ValueInfoAttr.of(f"{word}{self.label}", made[0].type)])
            graphs[f"{word}_branch"] = branch.graph()
        return self.writer.add_node("If", [predicate], graphs, outputs=[name])[0]

    def _loop(self, source: SSAValue, captured: list[SSAValue], name: str) -> SSAValue:
        body = self.writer.subgraph("loop")
        turn = body.add_input(f"turn{self.label}", tensor_type("i64", ()))
        going = body.add_input(f"going{self.label}", tensor_type("bool", ()))
        carried = self._states(body, source)
        row = self._inner(body, self.body.networks[0], [carried[0], *captured])
        on = self._continues(body, turn, going)
        rows = [row] if self.body.has_rows else []
        self._end(body, [on, *self._iteration(body, carried, row), *rows])
        steering = self._trip_inputs(source)
        return self._node(
            "Loop", [*steering, *self._initial_states(source)], {"body": body.graph()}, name
        )

    def _continues(self, body: GraphWriter, turn: SSAValue, going: SSAValue) -> SSAValue:
        """The continuation condition of a Loop."""
        outputs = [f"on{self.label}"]
        if self.body.until is None:
            return body.add_node("Identity", [going], outputs=outputs)[0]
        last = body.add_initializer(f"until{self.label}", np.array(self.body.until))
        return body.add_node("Less", [turn, last], outputs=outputs)[0]

    def _trip_inputs(self, source: SSAValue) -> list[SSAValue | None]:
        """The trip count and the initial condition of a Loop."""
        body, writer = self.body, self.writer
        limit = writer.add_initializer(f"trips{self.label}", np.array(body.trips))
        large = self._is_large(source) if body.guarded or body.counted else None
        if body.counted:
            once = writer.add_initializer(f"once{self.label}", np.array(1))
            outputs = [f"count{self.label}"]
            (limit,) = writer.add_node("Where", [large, limit, once], outputs=outputs)
        if body.guarded:
            return [limit, large]
        if body.until is None:
            return [limit, None]
        return [limit, writer.add_initializer(f"yes{self.label}", np.array(True))]

    def _scan(self, source: SSAValue, name: str) -> SSAValue:
        body = self.writer.subgraph("scan")
        shape = self.body.networks[0].inputs[0]
        type_ = tensor_type(self.dtype, shape)
        zeros = Constant(shape, self.dtype, fill=0).array()
        first = self.writer.add_initializer(f"first{self.label}", zeros)
        carried = self._states(body, first)
        given = body.add_input(f"row{self.label}", type_)
        row = self._inner(body, self.body.networks[0], [carried[0], given])
        self._end(body, [*self._iteration(body, carried, row), row])
        attributes: dict[str, object] = {"body": body.graph(), "num_scan_inputs": 1}
        for word, reverse in zip(("input", "output"), self.body.reverse, strict=True):
            if reverse:
                attributes[f"scan_{word}_directions"] = [1]
        return self._node("Scan", [*self._initial_states(first), source], attributes, name)

    def _initial_states(self, first: SSAValue) -> list[SSAValue]:
        """The initial values of the loop state."""
        return [first] * (1 + self.body.delayed)

    def _states(self, body: GraphWriter, first: SSAValue) -> list[SSAValue]:
        """The loop state as arguments of the body."""
        return [
            body.add_input(f"{word}{self.label}", value.type)
            for word, value in zip(("carried", "before"), self._initial_states(first), strict=False)
        ]

    def _iteration(
        self, body: GraphWriter, carried: list[SSAValue], value: SSAValue
    ) -> list[SSAValue]:
        """
        The updated state: state / 2 + mean(value), followed by the previous state if `delayed`.
        """
        half, mean = self._number(body, 0.5, "half"), self._mean(body, value, "mean")
        (less,) = body.add_node("Mul", [carried[0], half], outputs=[f"less{self.label}"])
        following = body.add_node("Add", [less, mean], outputs=[f"next{self.label}"])
        return [*following, *carried[: len(carried) - 1]]

    def _end(self, body: GraphWriter, values: list[SSAValue]) -> None:
        """Sets the outputs, each a separate named value."""
        made = [
            body.add_node("Identity", [value], outputs=[f"o{self.label}out{number}"])[0]
            for number, value in enumerate(values)
        ]
        infos = [
            ValueInfoAttr.of(f"o{self.label}out{number}", value.type)
            for number, value in enumerate(made)
        ]
        body.set_outputs(made, infos)

    def _node(
        self,
        op: str,
        operands: list[SSAValue | None],
        attributes: dict[str, object],
        name: str,
    ) -> SSAValue:
        """Names all outputs: onnx's reference rejects a Scan with an unnamed one."""
        body = self.body
        count = 1 + body.delayed + body.has_rows
        chosen = count - 1 if body.stacked else int(body.delayed)
        outputs = [f"other{self.label}_{number}" for number in range(count)]
        outputs[chosen] = name
        return self.writer.add_node(op, operands, attributes, outputs=outputs)[chosen]


def _moved(writer: GraphWriter, value: SSAValue, name: str, type_: Attribute) -> SSAValue:
    """Adds the disturbance to a value."""
    disturbance = writer.add_input(DISTURBANCE + name, type_)
    return writer.add_node("Add", [value, disturbance], outputs=[name], result_types=[type_])[0]
