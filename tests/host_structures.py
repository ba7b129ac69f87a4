"""Draws models whose structure depends on data, and writes them as ONNX graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

LEAVES = (
    "negate", "add", "concat", "keep", "drop", "tile", "range", "expand", "pad", "places",
    "product", "filter", "scan",
)  # fmt: skip
LONGEST = 12
"""Maximal length of a vector; all elements are integers below 7, so that sums are exact."""

NUMBERS = st.integers(0, 5)


def blocks(depth: int) -> st.SearchStrategy[list[Any]]:
    """Steps as plain data: the kind of each step, and the vectors that it reads."""
    leaf = st.tuples(st.sampled_from(LEAVES), NUMBERS, NUMBERS)
    if depth == 0:
        return st.lists(leaf, min_size=1, max_size=2)
    inner = blocks(depth - 1)
    choice = st.tuples(st.just("if"), NUMBERS, inner, inner)
    turns = st.tuples(st.just("loop"), NUMBERS, inner, *[st.booleans()] * 3)
    call = st.tuples(st.just("call"), NUMBERS, inner)
    return st.lists(st.one_of(leaf, choice, turns, call), min_size=1, max_size=3)


@dataclass
class Writer:
    """A graph under construction, and its vectors, including those of outer graphs."""

    numbers: count[int]
    functions: list[onnx.FunctionProto]
    vectors: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{next(self.numbers)}"
        made = helper.make_node(op, list(inputs), [name], domain=domain, **attributes)
        self.nodes.append(made)
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return self.node("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def inner(self, *also: str) -> Writer:
        return Writer(self.numbers, self.functions, [*self.vectors, *also])

    def at(self, number: int) -> str:
        return self.vectors[number % len(self.vectors)]

    def total(self, vector: str, keepdims: int = 1) -> str:
        return self.node("ReduceSum", vector, keepdims=keepdims)

    def small(self, vector: str) -> str:
        """A data-dependent number below 4, as a vector of one element."""
        found = self.node("Cast", self.node("Abs", self.total(vector)), to=TensorProto.INT64)
        return self.node("Mod", found, self.constant([4]))

    def scalar(self, vector: str) -> str:
        return self.node("Squeeze", vector, self.constant([0]))

    def short(self, vector: str) -> str:
        """The first `LONGEST` elements, modulo 7."""
        seven = self.constant(7, np.float32)
        first = self.node("Slice", vector, self.constant([0]), self.constant([LONGEST]))
        return self.node("Mod", first, seven, fmod=1)

    def steps(self, block: Sequence[Any]) -> None:
        for kind, *parts in block:
            self.vectors.append(getattr(self, f"write_{kind}")(*parts))

    # Steps

    def write_negate(self, one: int, _: int) -> str:
        return self.node("Neg", self.at(one))

    def write_add(self, one: int, two: int) -> str:
        return self.short(self.node("Add", self.at(one), self.total(self.at(two))))

    def write_concat(self, one: int, two: int) -> str:
        return self.short(self.node("Concat", self.at(one), self.at(two), axis=0))

    def write_keep(self, one: int, two: int) -> str:
        return self.node("Slice", self.at(one), self.constant([0]), self.small(self.at(two)))

    def write_drop(self, one: int, two: int) -> str:
        return self.node("Slice", self.at(one), self.small(self.at(two)), self.constant([99]))

    def write_tile(self, one: int, two: int) -> str:
        return self.short(self.node("Tile", self.at(one), self.small(self.at(two))))

    def write_range(self, one: int, _: int) -> str:
        limit = self.scalar(self.small(self.at(one)))
        made = self.node("Range", self.constant(0), limit, self.constant(1))
        return self.node("Cast", made, to=TensorProto.FLOAT)

    def write_expand(self, one: int, two: int) -> str:
        return self.short(self.node("Expand", self.total(self.at(one)), self.small(self.at(two))))

    def write_pad(self, one: int, two: int) -> str:
        pads = self.node("Concat", self.small(self.at(two)), self.constant([1]), axis=0)
        return self.short(self.node("Pad", self.at(one), pads))

    def write_places(self, one: int, _: int) -> str:
        flat = self.node("Reshape", self.node("NonZero", self.at(one)), self.constant([-1]))
        return self.short(self.node("Cast", flat, to=TensorProto.FLOAT))

    def write_product(self, one: int, _: int) -> str:
        column = self.node("Unsqueeze", self.at(one), self.constant([1]))
        row = self.node("Unsqueeze", self.at(one), self.constant([0]))
        made = self.node("MatMul", column, row)
        return self.short(self.node("Reshape", made, self.constant([-1])))

    def write_filter(self, one: int, _: int) -> str:
        above = self.node("Greater", self.at(one), self.constant(0, np.float32))
        return self.node("Compress", self.at(one), above, axis=0)

    def write_scan(self, one: int, two: int) -> str:
        """A Scan of at least one row, since onnxruntime has no empty Scan."""
        scanned = self.node("Concat", self.at(one), self.constant([1], np.float32), axis=0)
        body = self.inner()
        number = next(self.numbers)
        state, row = f"state{number}", f"row{number}"
        after = body.node("Add", state, row)
        twice = body.node("Add", after, body.total(self.at(two), keepdims=0))
        graph = helper.make_graph(
            body.nodes, "turn", [scalar(state), scalar(row)], [scalar(after), scalar(twice)]
        )
        start = self.constant(0, np.float32)
        last, rows = (f"v{next(self.numbers)}" for _ in range(2))
        made = helper.make_node(
            "Scan", [start, scanned], [last, rows], num_scan_inputs=1, body=graph
        )
        self.nodes.append(made)
        return self.short(rows)

    def write_if(self, one: int, first: Sequence[Any], second: Sequence[Any]) -> str:
        total = self.total(self.at(one), keepdims=0)
        above = self.node("Greater", total, self.constant(0, np.float32))
        graphs = []
        for block in (first, second):
            inner = self.inner()
            inner.steps(block)
            result = inner.node("Identity", inner.vectors[-1])
            graphs.append(helper.make_graph(inner.nodes, "branch", [], [vector(result)]))
        return self.node("If", above, then_branch=graphs[0], else_branch=graphs[1])

    def write_loop(
        self, one: int, block: Sequence[Any], counted: bool, asks: bool, stacks: bool
    ) -> str:
        """A Loop with a state of any length, ended by a trip count, a condition, or both."""
        number = next(self.numbers)
        turn, go, state = (f"{name}{number}" for name in ("turn", "go", "state"))
        body = self.inner(state)
        body.steps(block)
        result = body.node("Identity", body.vectors[-1])
        limit = body.scalar(body.small(result))
        more = body.node("Less", turn, limit) if asks else body.node("Identity", go)
        row = body.total(result, keepdims=0)
        inputs = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            vector(state),
        ]
        outputs = [
            helper.make_tensor_value_info(more, TensorProto.BOOL, []),
            vector(result),
            scalar(row),
        ]
        graph = helper.make_graph(body.nodes, "body", inputs, outputs)
        most = self.scalar(self.small(self.at(one))) if counted else self.constant(4)
        names = [f"v{next(self.numbers)}" for _ in range(2)]
        first = self.constant(True, np.bool_) if asks else ""
        node = helper.make_node("Loop", [most, first, self.vectors[-1]], names, body=graph)
        self.nodes.append(node)
        if not stacks:
            return names[0]
        return self.short(self.node("Concat", names[0], names[1], axis=0))

    def write_call(self, one: int, block: Sequence[Any]) -> str:
        number = next(self.numbers)
        inner = Writer(self.numbers, self.functions, [f"given{number}"])
        inner.steps(block)
        result = inner.node("Identity", inner.vectors[-1])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        made = helper.make_function(
            "own", f"F{number}", [f"given{number}"], [result], inner.nodes, opsets
        )
        self.functions.append(made)
        return self.node(made.name, self.at(one), domain="own")


def vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"size of {name}"])


def scalar(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [])


def model(block: Sequence[Any]) -> onnx.ModelProto:
    """A model of the input `d`, which is too large to be specialized on its elements."""
    writer = Writer(count(), [], [])
    five = writer.constant([5])
    first = writer.node("Slice", "d", writer.constant([0]), five)
    writer.vectors = [first, writer.node("Slice", "d", five, writer.constant([8]))]
    writer.steps(block)
    outputs = [vector(writer.node("Identity", name)) for name in writer.vectors[-3:]]
    given = [helper.make_tensor_value_info("d", TensorProto.FLOAT, [300])]
    graph = helper.make_graph(writer.nodes, "g", given, outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(
        graph, opset_imports=opsets, functions=writer.functions[::-1], ir_version=8
    )
