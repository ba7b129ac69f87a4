"""Builds, runs and differentiates single graphcore operations on sample operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Block, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import AddOp, BitcastOp, Composite
from popgraph.dialects.graphcore.base import FLOATS, Array, GraphcoreOp, Operand
from popgraph.dialects.program import ConstantOp, DataAttr, GraphOp, ReturnOp
from popgraph.support import dtypes

Operands = Sequence["Array | Sequence[Array] | None"]


@dataclass(frozen=True)
class Sample:
    """An operation with operands; `smooth` if its gradient exists at them."""

    op: type[GraphcoreOp]
    operands: Operands
    properties: dict[str, Any] = field(default_factory=dict)
    smooth: bool = True

    @property
    def arrays(self) -> list[Array]:
        """The operands as the operation takes them: lists flattened, absent ones dropped."""
        flat: list[Array] = []
        for operand in self.operands:
            if operand is not None:
                flat.extend([operand] if isinstance(operand, np.ndarray) else operand)
        return flat

    def with_floats(self, dtype: str) -> Sample:
        """The sample with another float type, except for operations of fixed types."""
        if self.op is BitcastOp:
            return self

        def cast(operand: Any) -> Any:
            if operand is None or isinstance(operand, list):
                return operand and [cast(each) for each in operand]
            named = dtypes.from_numpy(operand.dtype).name
            return operand.astype(dtypes.BY_NAME[dtype].numpy) if named in FLOATS.names else operand

        with np.errstate(over="ignore"):
            return replace(self, operands=[cast(operand) for operand in self.operands])

    def __str__(self) -> str:
        listed = "-".join(
            f"{dtypes.from_numpy(array.dtype).name}[{'x'.join(map(str, array.shape))}]"
            for array in self.arrays
        )
        numbers = "-".join(f"{name}={value}" for name, value in self.properties.items())
        return f"{self.op.name.removeprefix('graphcore.')}-{listed}-{numbers}".replace(" ", "")


def is_float(array: Array) -> bool:
    return dtypes.from_numpy(array.dtype).name in FLOATS.names


def has_floats(sample: Sample) -> bool:
    return any(is_float(array) for array in sample.arrays)


def assert_close(actual: Array, expected: Array, tolerance: float) -> None:
    """
    Checks equality within `tolerance` times the largest finite element; infinities and NaNs
    exactly.
    """
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if dtypes.from_numpy(expected.dtype).is_float and expected.itemsize == 1:
        # NumPy's isnan does not work on floats of one byte.
        actual, expected = actual.view(np.uint8), expected.view(np.uint8)
    if not is_float(expected):
        np.testing.assert_array_equal(actual, expected)
        return
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    allowed = tolerance * max(1.0, finite.max(initial=0))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=allowed, equal_nan=True)


def type_of(array: Array) -> TensorType[Attribute]:
    return TensorType(element_types.to_ir(dtypes.from_numpy(array.dtype)), array.shape)


@dataclass
class Built:
    """A graph of a single operation whose operands are the inputs."""

    graph: GraphOp
    op: GraphcoreOp
    arrays: list[Array]

    @property
    def block(self) -> Block:
        return self.graph.block

    def module(self, outputs: Sequence[SSAValue] | None = None) -> ModuleOp:
        """The complete graph, by default with the operation's results as outputs."""
        outputs = self.op.results if outputs is None else outputs
        self.block.add_op(ReturnOp(outputs, [f"y{at}" for at in range(len(outputs))]))
        return ModuleOp([self.graph])


def build(sample: Sample) -> Built:
    arrays = sample.arrays
    types = [type_of(array) for array in arrays]
    graph = GraphOp("main", [f"x{at}" for at in range(len(arrays))], types)
    with ImplicitBuilder(graph.block):
        op = place(sample, iter(graph.block.args))
    return Built(graph, op, arrays)


def twins(sample: Sample) -> ModuleOp:
    """A module with an operation twice."""
    built = build(sample)
    module, op = built.module(), built.op
    assert op.parent is not None
    op.parent.insert_op_after(op.clone(), op)
    return module


def place(sample: Sample, values: Iterator[SSAValue]) -> GraphcoreOp:
    """Constructs the sample's operation on the next of `values`."""
    operands = [
        operand
        if operand is None
        else next(values)
        if isinstance(operand, np.ndarray)
        else [next(values) for _ in operand]
        for operand in sample.operands
    ]
    return sample.op(*operands, **sample.properties)


def run(block: Block, arrays: Sequence[Array]) -> dict[SSAValue, Array]:
    """All values of a block, given its arguments."""
    values = dict(zip(block.args, arrays, strict=True))
    for op in block.ops:
        if isinstance(op, ConstantOp):
            assert isinstance(op.literal, DataAttr)
            values[op.result] = op.literal.array
            continue
        assert isinstance(op, GraphcoreOp)
        results = op.evaluate(*(values[operand] for operand in op.operands))
        values.update(zip(op.results, results, strict=True))
    return values


def expanded(built: Built) -> list[SSAValue]:
    """The values that `expand` emits for the results."""
    assert isinstance(built.op, Composite)
    with ImplicitBuilder(built.block):
        return [SSAValue.get(value) for value in built.op.expand()]


def differentiate(built: Built, seeds: Sequence[SSAValue | None]) -> list[SSAValue | None]:
    """Gradients of the operands for gradients of the results, by reverse accumulation."""
    results: Sequence[SSAValue] = built.op.results
    ops = [built.op]
    if not built.op.is_differentiable():
        before = list(built.block.ops)
        results = expanded(built)
        ops = [op for op in built.block.ops if op not in before and isinstance(op, GraphcoreOp)]
    flowing: dict[SSAValue, SSAValue] = {}
    with ImplicitBuilder(built.block):
        for value, seed in zip(results, seeds, strict=True):
            if seed is not None:
                _accumulate(flowing, value, seed)
        for op in reversed(ops):
            gradients = [flowing.get(result) for result in op.results]
            if any(gradient is not None for gradient in gradients):
                for operand, gradient in zip(op.operands, op.gradient(*gradients), strict=True):
                    if gradient is not None:
                        _accumulate(flowing, operand, gradient)
    return [flowing.get(operand) for operand in built.op.operands]


def _accumulate(flowing: dict[SSAValue, SSAValue], value: SSAValue, gradient: Operand) -> None:
    gradient = SSAValue.get(gradient)
    assert gradient.type == value.type, f"a gradient of {value.type} is {gradient.type}"
    if value in flowing:
        gradient = AddOp(flowing[value], gradient).result
    flowing[value] = gradient


def analytic(built: Built, weights: Sequence[Array | None]) -> list[Array | None]:
    """Values of the gradients that the operation itself defines."""
    with ImplicitBuilder(built.block):
        seeds = [
            None if weight is None else ConstantOp(DataAttr.of(weight)).result for weight in weights
        ]
    gradients = differentiate(built, seeds)
    values = run(built.block, built.arrays)
    return [None if gradient is None else values[gradient] for gradient in gradients]
