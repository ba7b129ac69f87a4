"""Random networks with a run-time size as a dimension, at its bound and at other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import DrawFn, SearchStrategy
from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.support.shapes import Shape
from popgraph.support.sizes import Size, SizedAxis
from popgraph.testing import (
    Constant,
    Network,
    Node,
    attentions,
    build_network,
    lookups,
    products,
    recurrences,
    separable_convolutions,
)
from popgraph.testing.strategies import random_nodes

BOUND = 23
"""A prime that random networks do not contain: its multiples come from the size."""
NAME = "N"


@dataclass(frozen=True)
class Front(Constant):
    """A leading slice of a larger constant."""

    whole: Constant | None = None

    def array(self) -> Array:
        assert self.whole is not None
        return self.whole.array()[tuple(slice(0, size) for size in self.shape)]


@dataclass(frozen=True)
class SizedNetwork:
    """A network in which multiples of BOUND are multiples of a size."""

    bounded: Network

    def at(self, size: int) -> Network:
        """The network for one size."""
        nodes = tuple(
            replace(node, operands=tuple(_operand(operand, size) for operand in node.operands))
            for node in self.bounded.nodes
        )
        inputs = tuple(_shape(shape, size) for shape in self.bounded.inputs)
        return replace(self.bounded, inputs=inputs, nodes=nodes)

    def module(self, size: int, weights: WeightStore) -> ModuleOp:
        """The module for one size."""
        return build_network(self.at(size), weights)

    @property
    def size(self) -> Size:
        """The size, with the input axes that have it."""
        places = [
            SizedAxis(self.bounded.name(number), axis, dim // BOUND)
            for number, shape in enumerate(self.bounded.inputs)
            for axis, dim in enumerate(shape)
            if _is_sized(dim)
        ]
        return Size(NAME, BOUND, tuple(places))

    def inputs(self, size: int, garbage: float) -> dict[str, Array]:
        """Inputs at the bound, with garbage beyond the size."""
        generator = np.random.default_rng(size)
        dtype = dtypes.BY_NAME[self.bounded.dtype].numpy
        made = {}
        for number, shape in enumerate(self.bounded.inputs):
            array = np.full(shape, garbage, dtype)
            front = _shape(shape, size)
            array[_slices(front)] = generator.integers(-8, 9, front) / 4
            made[self.bounded.name(number)] = array
        return made

    def leading_slices(self, inputs: Mapping[str, Array], size: int) -> dict[str, Array]:
        """The slices of the inputs up to the size."""
        return {name: array[_slices(_shape(array.shape, size))] for name, array in inputs.items()}


def _is_sized(dim: int) -> bool:
    return dim > 0 and dim % BOUND == 0


def _shape(shape: Shape, size: int) -> Shape:
    return tuple(dim // BOUND * size if _is_sized(dim) else dim for dim in shape)


def _slices(shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _operand(operand: int | Constant | None, size: int) -> int | Constant | None:
    if not isinstance(operand, Constant):
        return operand
    if operand.values is not None:
        return replace(operand, values=_shape(operand.values, size))
    shape = _shape(operand.shape, size)
    if shape == operand.shape or operand.fill is not None:
        return replace(operand, shape=shape)
    return Front(shape, operand.dtype, whole=operand)


@st.composite
def grown_networks(draw: DrawFn, dtype: str = "f64") -> SizedNetwork:
    """Networks of any operators; the first input and rarely a second one have the size."""
    few = st.integers(1, 4)
    shapes = st.one_of(
        st.tuples(st.just(BOUND), st.integers(1, 18)),
        st.tuples(st.just(BOUND), few, st.integers(2, 6), st.integers(2, 6)),
        st.tuples(st.just(BOUND), st.integers(2, 5), st.integers(2, 8)),
        st.tuples(few, st.just(BOUND), st.integers(2, 8)),
        st.tuples(few, st.integers(2, 8), st.just(BOUND)),
        st.tuples(st.integers(2, 18), st.just(BOUND)),
    )
    inputs = draw(st.lists(shapes, min_size=1, max_size=2))
    known = list(inputs)
    count = draw(st.integers(1, 5))
    try:
        nodes = random_nodes(draw, known, count, dtype)
    except InvalidArgument:  # No value is small enough to be an operand of a further node.
        reject()
    return SizedNetwork(Network(tuple(inputs), tuple(nodes), dtype, _ends(nodes, len(inputs))))


def _ends(nodes: list[Node], first: int) -> tuple[int, ...]:
    """Values without a reader."""
    read = {operand for node in nodes for operand in node.operands if isinstance(operand, int)}
    return tuple(sorted({*range(first, first + len(nodes))} - read))


@st.composite
def with_size(
    draw: DrawFn, networks: SearchStrategy[Network], first: int = 0, axis: int | None = None
) -> SizedNetwork:
    """Networks in which inputs from `first` on have the size along `axis`, or a random axis."""
    network = draw(networks)
    longest = max(len(shape) for shape in network.inputs)
    if axis is None:
        axis = draw(st.sampled_from([0, 0, 0, *range(longest)]))
    if draw(st.integers(0, 3)) == 0:
        first = draw(st.integers(first, len(network.inputs) - 1))
    chosen = range(first, len(network.inputs))
    inputs = tuple(
        (*shape[:axis], BOUND, *shape[axis + 1 :])
        if number in chosen and axis < len(shape)
        else shape
        for number, shape in enumerate(network.inputs)
    )
    assume(inputs != network.inputs)
    found = SizedNetwork(replace(network, inputs=inputs))
    assume(_is_legal(found))
    return found


def _is_legal(network: SizedNetwork) -> bool:
    """Whether all operators accept the size."""
    try:
        network.module(BOUND, WeightStore()).verify()
    except (PopgraphError, ValueError):
        return False
    return True


def sized_networks(dtype: str = "f64") -> SearchStrategy[SizedNetwork]:
    """Networks of all kinds that accept a run-time size."""
    return st.one_of(
        grown_networks(dtype),
        grown_networks(dtype),
        with_size(attentions(dtype)),
        with_size(separable_convolutions(dtype)),
        with_size(products(dtype)),
        with_size(lookups(dtype), 1),
        long_products(dtype),
        with_size(recurrences(dtype), axis=1),
        with_size(recurrences(dtype, by_batch=True), axis=0),
    )


@st.composite
def long_products(draw: DrawFn, dtype: str = "f64") -> SizedNetwork:
    """Matmuls with the size as the reduced dimension, or as a dimension of the result."""
    rows, others = draw(st.tuples(st.integers(2, 9), st.integers(2, 9)))
    inputs = draw(
        st.sampled_from(
            (
                ((rows, BOUND), (BOUND, others)),
                ((rows, others), (others, BOUND)),
                ((BOUND, others), (others, BOUND)),
            )
        )
    )
    nodes = (Node("MatMul", (0, 1)), Node("Relu", (2,)))
    return SizedNetwork(Network(inputs, nodes, dtype, (3,)))


@st.composite
def inner_rows(draw: DrawFn, dtype: str = "f64") -> SizedNetwork:
    """Elementwise operations on tensors with the size as a middle axis."""
    around, inside = draw(st.tuples(st.integers(2, 5), st.integers(2, 9)))
    nodes = (Node("Relu", (0,)), Node("Neg", (1,)))
    return SizedNetwork(Network(((around, BOUND, inside),), nodes, dtype, (2,)))
