"""Aliasing: random networks that read, share or return a value more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Attribute

from popgraph.dialects.onnx import model_of, tensor_type
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import PopgraphError
from popgraph.testing.specs import Constant, Network, Node, build_network

Operand: TypeAlias = int | Constant | None
Path: TypeAlias = tuple[int, ...]
"""A node and a position in it, or a node, one of its bodies and a path in that body."""
Types: TypeAlias = Mapping[Path, Sequence[Attribute]]
"""Types of values, by the path of their body; that of the whole network is ()."""

DIVIDING = {"QuantizeLinear", "DequantizeLinear"}
"""Operators whose operands keep their values: a scale of zero has no meaning."""


STATEFUL = {"BatchNormalization"}
"""Operators whose constants change in training, so that no other node may read them."""


@dataclass(frozen=True)
class _Site:
    """An operand of a node, maybe of one in a body."""

    path: Path
    op: str
    operand: int | Constant

    @property
    def node(self) -> Path:
        return self.path[:-1]

    @property
    def body(self) -> Path:
        return self.path[:-2]

    def may_become(self, other: _Site, types: Types) -> bool:
        """
        Whether the node may read the operand of another site instead, by their types.

        Constants of integers are often shapes, axes or labels, so they keep their values.
        """
        known = self.type(types)
        if static_shape(known) is None or known != other.type(types):
            return False
        if self.operand == other.operand:
            return True
        assert isinstance(known, TensorType), "a value of a static shape is a tensor"
        constant = isinstance(self.operand, Constant) or isinstance(other.operand, Constant)
        is_float = isinstance(known.element_type, AnyFloat)
        return self.op not in DIVIDING and (is_float or not constant)

    def type(self, types: Types) -> Attribute:
        if isinstance(self.operand, Constant):
            return tensor_type(self.operand.dtype, self.operand.shape)
        return types[self.body][self.operand]


def aliased(networks: SearchStrategy[Network]) -> SearchStrategy[Network]:
    """
    The drawn networks, about a third of them with aliases.

    Two operands of a node are one value, two nodes share one initializer, a value is an output
    twice, or an input or initializer is an output itself. Shrinking leads to distinct values.
    """
    return _aliased(networks)


@st.composite
def _aliased(draw: DrawFn, networks: SearchStrategy[Network]) -> Network:
    changes = draw(st.sampled_from(COUNTS))
    network = draw(networks)
    for _ in range(changes):
        network = draw(st.sampled_from(CHANGES))(draw, network)
    return network


def read_twice(draw: DrawFn, network: Network) -> Network:
    """A node reads one value at two positions: f(x, y) -> f(x, x)."""
    types = dict(_types(network))
    pairs = [
        (one, other)
        for one, other in permutations(_sites(network), 2)
        if one.node == other.node and one.operand != other.operand and one.may_become(other, types)
    ]
    if not pairs:
        return network
    one, other = draw(st.sampled_from(pairs))
    found = _with_operand(network, one.path, other.operand)
    if not _is_as_trainable(network, found) or not _has_types(found, types):
        return network
    return replace(found, gradients=tuple(sorted({*network.gradients} & {*found.read_by_last()})))


def share_initializer(draw: DrawFn, network: Network) -> Network:
    """Two nodes read one initializer, which has the elements of one of theirs."""
    constants = list(_constants(network))
    pairs = [(one, other) for one, other in permutations(constants, 2) if one.may_become(other, {})]
    if not pairs:
        return network
    one, other = draw(st.sampled_from(pairs))
    assert isinstance(other.operand, Constant)
    return _sharing(_with_operand(network, one.path, other.operand), other.operand)


def return_twice(draw: DrawFn, network: Network) -> Network:
    """A value, maybe an input, is an output once more, under a second name."""
    number = draw(st.integers(0, len(network.inputs) + len(network.nodes) - 1))
    outputs = tuple(sorted({*network.outputs, number}))
    times = draw(st.sampled_from([1, 1, 2]))
    return replace(network, outputs=outputs, again=(*network.again, *[number] * times))


def return_input(draw: DrawFn, network: Network) -> Network:
    """An input is an output under its own name."""
    number = draw(st.integers(0, len(network.inputs) - 1))
    return replace(network, outputs=tuple(sorted({*network.outputs, number})))


def return_initializer(draw: DrawFn, network: Network) -> Network:
    """An initializer that a node reads is an output."""
    constants = list(_constants(network))
    if not constants:
        return network
    chosen = draw(st.sampled_from(constants)).operand
    assert isinstance(chosen, Constant)
    return replace(_sharing(network, chosen), again=(*network.again, chosen))


Change: TypeAlias = Callable[[DrawFn, Network], Network]
COUNTS = (0, 0, 0, 1, 2, 3)
"""Numbers of changes. Some networks have no room for one, so a third of all have aliases."""
CHANGES: tuple[Change, ...] = (
    read_twice,
    read_twice,
    share_initializer,
    return_twice,
    return_input,
    return_initializer,
)


def _sharing(network: Network, constant: Constant) -> Network:
    return replace(network, shared=tuple(dict.fromkeys((*network.shared, constant))))


# Operands, also those in bodies


def _sites(network: Network, before: Path = ()) -> Iterator[_Site]:
    for number, node in enumerate(network.nodes):
        for position, operand in enumerate(_read(node)):
            if operand is not None:
                yield _Site((*before, number, position), node.op, operand)
        for place, inner in enumerate(node.body.networks if node.body else ()):
            yield from _sites(inner, (*before, number, place))


def _constants(network: Network) -> Iterator[_Site]:
    """The operands that are constants and equal no running statistics."""
    sites = list(_sites(network))
    statistics = {site.operand for site in sites if site.op in STATEFUL}
    for site in sites:
        if isinstance(site.operand, Constant) and site.operand not in statistics:
            yield site


def _types(network: Network, path: Path = ()) -> Iterator[tuple[Path, list[Attribute]]]:
    """The types of all values, by the path of their body."""
    count = len(network.inputs) + len(network.nodes)
    whole = replace(network, outputs=tuple(range(count)), again=())
    graph = model_of(build_network(whole, WeightStore())).graph
    yield path, [info.type for info in graph.outputs]
    for number, node in enumerate(network.nodes):
        for place, inner in enumerate(node.body.networks if node.body else ()):
            yield from _types(inner, (*path, number, place))


def _read(node: Node) -> tuple[Operand, ...]:
    """The operands of a node, and the values that its bodies capture."""
    return (*node.operands, *(node.body.captured if node.body else ()))


def _with_operand(network: Network, path: Sequence[int], operand: int | Constant) -> Network:
    """The network with another operand at a path."""
    number, place, *inner = path
    node = network.nodes[number]
    if inner:
        assert node.body is not None, "a path leads into a body"
        networks = list(node.body.networks)
        networks[place] = _with_operand(networks[place], inner, operand)
        node = replace(node, body=replace(node.body, networks=tuple(networks)))
    else:
        read = list(_read(node))
        read[place] = operand
        node = _reading(node, read)
    return replace(network, nodes=(*network.nodes[:number], node, *network.nodes[number + 1 :]))


def _reading(node: Node, read: Sequence[Operand]) -> Node:
    """The node with other operands and captured values."""
    operands, captured = tuple(read[: len(node.operands)]), read[len(node.operands) :]
    if node.body is None:
        return replace(node, operands=operands)
    numbers = tuple(one for one in captured if isinstance(one, int))
    return replace(node, operands=operands, body=replace(node.body, captured=numbers))


def _has_types(network: Network, types: Types) -> bool:
    """Whether a network is well-typed, and all its values have these types."""
    try:
        return dict(_types(network)) == types
    except PopgraphError:
        return False


def _is_as_trainable(before: Network, after: Network) -> bool:
    """Whether a loss still depends on a weight."""
    return _reads_constant(after) or not _reads_constant(before)


def _reads_constant(network: Network) -> bool:
    """Whether the last value depends on a constant of the network's element type."""
    read = network.read_by_last()
    return any(
        isinstance(operand, Constant) and operand.dtype == network.dtype
        for number, node in enumerate(network.nodes, len(network.inputs))
        if number in read
        for operand in node.operands
    )
