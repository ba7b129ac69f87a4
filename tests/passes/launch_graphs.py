"""Random graphs of hand-made kernels, for the passes after lowering to loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import (
    FloatAttr,
    IndexType,
    IntegerAttr,
    ModuleOp,
    SymbolRefAttr,
    TensorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, Block, SSAValue

from popgraph.dialects.building import building_detached
from popgraph.dialects.program import (
    ConstantOp,
    GraphOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    WeightStore,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile import AssembleOp, LaunchOp, ViewOp
from popgraph.dialects.tile.loops.ops import kernel_arguments
from popgraph.passes.structured.to_loops.kernel_functions import Functions, describe
from popgraph.support.tuning import Target

SIZES = (4, 40)
VARIABLES = ("u", "v", "w")


@dataclass(frozen=True)
class Step:
    """
    A launch of a kernel of this kind; `picks` number its operands among earlier values of the size.
    """

    kind: str
    size: int
    picks: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A graph of steps on an input, a constant and the variables of both sizes."""

    steps: tuple[Step, ...]
    outputs: tuple[tuple[int, int], ...]
    updates: tuple[tuple[str, int], ...]


KINDS = ("add", "add_in_place", "reverse", "negate_in_place", "view", "grow", "both", "join")
"""
`grow` changes the size; `both` has two results; `join` is a concatenation and the difference of its
halves.
"""


@st.composite
def plans(draw: st.DrawFn, most: int = 12) -> Plan:
    number = st.integers(0, 1000)
    step = st.builds(
        Step, st.sampled_from(KINDS), st.sampled_from(SIZES), st.tuples(number, number)
    )
    return Plan(
        tuple(draw(st.lists(step, min_size=1, max_size=most))),
        tuple(draw(st.lists(st.tuples(st.integers(0, 1), number), min_size=1, max_size=4))),
        tuple(
            draw(
                st.lists(
                    st.tuples(st.sampled_from(VARIABLES), number),
                    max_size=3,
                    unique_by=lambda update: update[0],
                )
            )
        ),
    )


def tensor(size: int, flat: bool = False) -> TensorType:
    return TensorType(f32, [size] if flat else [2, size // 2])


def _index(value: int) -> SSAValue:
    return arith.ConstantOp.from_int_and_width(value, IndexType()).result


class Kernels:
    """Launches of kernels, each a function of the module."""

    def __init__(self, module: ModuleOp) -> None:
        self.functions = Functions(module, Target())
        self._names: dict[tuple[object, ...], str] = {}

    def launch(self, kind: str, inputs: Sequence[SSAValue], size: int) -> LaunchOp:
        """A launch of a kernel; `size` is the size of its results."""
        results = [tensor(size)] * (2 if kind == "both" else 1)
        inplace = [(0, 0)] if kind.endswith("in_place") else []
        if kind == "both":
            inplace = [(0, 1)]
        pairs, chunks = IntsAttr.of([one for pair in inplace for one in pair]), IntegerAttr(1, i64)
        op = LaunchOp("", inputs, results, chunks, pairs)
        types = kernel_arguments(op.inputs, op.outputs)
        key = kind.split("_")[0], size, *types
        if key not in self._names:
            with building_detached():
                body = _body(kind, types, size, inputs)
                function = self.functions.add(describe(body), body, op)
            self._names[key] = function.sym_name.data
        op.properties["callee"] = SymbolRefAttr(self._names[key])
        return op


def _body(kind: str, types: Sequence[Attribute], size: int, inputs: Sequence[SSAValue]) -> Block:
    body = Block(arg_types=types)
    with ImplicitBuilder(body):
        start, end, one, last = _index(0), _index(size), _index(1), _index(size - 1)
        loop = Block(arg_types=[IndexType()])
        with ImplicitBuilder(loop):
            _element(kind, body.args[1:], loop.args[0], last, inputs)
            scf.YieldOp()
        scf.ForOp(start, end, one, [], loop)
    return body


def _element(
    kind: str,
    memories: Sequence[SSAValue],
    i: SSAValue,
    last: SSAValue,
    inputs: Sequence[SSAValue],
) -> None:
    *_, target = memories
    if kind == "reverse":
        element = memref.LoadOp.get(memories[0], [arith.SubiOp(last, i)])
        memref.StoreOp.get(element, target, [i])
    elif kind == "negate_in_place":
        memref.StoreOp.get(arith.NegfOp(memref.LoadOp.get(memories[0], [i])), target, [i])
    elif kind == "grow":
        source_size = memories[0].type.get_shape()[0]  # type: ignore[attr-defined]
        place = arith.RemSIOp(i, _index(source_size))
        memref.StoreOp.get(memref.LoadOp.get(memories[0], [place]), target, [i])
    elif kind == "fold":
        half = target.type.get_shape()[0]  # type: ignore[attr-defined]
        low, high = (
            memref.LoadOp.get(memories[0], [place])
            for place in (i, arith.AddiOp(i, _index(half)).result)
        )
        memref.StoreOp.get(arith.SubfOp(low, high), target, [i])
    else:
        a, b = (memref.LoadOp.get(memory, [i]) for memory in memories[:2])
        if kind == "both":
            memref.StoreOp.get(arith.SubfOp(a, b), memories[2], [i])
        memref.StoreOp.get(arith.AddfOp(a, b), target, [i])


def module_of(plan: Plan, weights: WeightStore) -> ModuleOp:
    """The plan as a `pg.graph` of `tile.launch` operations."""
    graph = GraphOp("main", [f"in{size}" for size in SIZES], [tensor(size) for size in SIZES])
    values: dict[int, list[SSAValue]] = {
        size: [value] for size, value in zip(SIZES, graph.block.args, strict=True)
    }
    module = ModuleOp([graph])
    kernels = Kernels(module)
    with ImplicitBuilder(graph.block):
        for size in SIZES:
            shape, first = (2, size // 2), np.arange(size, dtype=np.float32)
            literal = weights.attribute(first.reshape(shape))
            values[size].append(ConstantOp(literal).result)
        size = SIZES[0]
        for number, name in enumerate(VARIABLES):
            literal = weights.attribute(np.full((2, size // 2), number, np.float32))
            values[size].append(VariableOp(name, literal).result)
        for step in plan.steps:
            _step(step, values, kernels)
        for name, pick in plan.updates:
            UpdateOp(name, values[size][pick % len(values[size])])
        outputs = [
            values[SIZES[which]][pick % len(values[SIZES[which]])] for which, pick in plan.outputs
        ]
        ReturnOp(outputs, [f"out{number}" for number in range(len(outputs))])
    kernels.functions.insert()
    return module


def _step(step: Step, values: dict[int, list[SSAValue]], kernels: Kernels) -> None:
    known = values[step.size]
    first, second = (known[pick % len(known)] for pick in step.picks)
    if step.kind == "view":
        known.append(ViewOp(ViewOp(first, [step.size]).output, [2, step.size // 2]).output)
        return
    if step.kind == "grow":
        other = SIZES[1] if step.size == SIZES[0] else SIZES[0]
        values[other] += kernels.launch("grow", [first], other).outputs
        return
    if step.kind == "join":
        pieces = [ViewOp(value, [step.size]).output for value in (first, second)]
        both, zero = tensor(2 * step.size, flat=True), FloatAttr(0.0, f32)
        whole = AssembleOp(pieces, [[0], [step.size]], [[1], [1]], zero, both).output
        known.extend(kernels.launch("fold", [whole], step.size).outputs)
        return
    inputs = [first] if step.kind in ("reverse", "negate_in_place") else [first, second]
    known.extend(kernels.launch(step.kind, inputs, step.size).outputs)
