"""Tests with random models that the IR of a session is the graph that runs."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import popgraph
import popgraph.popart as popart
from popgraph.compiler.loading import parse_ir
from popgraph.passes.base import Compilation
from popgraph.popart.api.builder import Builder
from popgraph.popart.ir import Ir

UNARY = ("abs", "cos", "exp", "identity", "log", "relu", "sigmoid", "softmax", "sqrt", "tanh")
BINARY = ("add", "div", "matmul", "mul", "pow", "sub", "sum")


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Operators, each with the indices of its two operands."""
    found = []
    for count in range(2, draw(st.integers(3, 9))):
        name = draw(st.sampled_from(UNARY + BINARY))
        found.append((name, draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))))
    return found


def built(names: list[tuple[str, int, int]]) -> tuple[Builder, str]:
    """The model, and the loss of its last tensor."""
    builder = popart.Builder()
    tensors = [
        builder.addInputTensor("FLOAT", [3, 3], "x"),
        builder.addInitializedInputTensor(np.ones((3, 3), np.float32), "w"),
    ]
    for name, first, second in names:
        operands = [tensors[first]] + ([tensors[second]] if name in BINARY else [])
        tensors.append(getattr(builder.aiOnnx, name)(operands))
    mixed = builder.aiOnnx.mul([tensors[-1], tensors[1]])
    return builder, str(builder.aiGraphcore.l1loss([mixed], 1.0))


def holds_together(ir: Ir, name: str) -> None:
    """Checks that every inner tensor is computed once, before it is read."""
    operators = ir.operators(name)
    made = Counter(id for op in operators for id in op.outputs.values())
    assert set(made.values()) <= {1}
    seen: set[str] = set()
    for op in operators:
        assert all(id in seen or id not in made for id in op.inputs.values()), op
        seen.update(op.outputs.values())


@given(
    steps(),
    st.sampled_from([one for one in popart.RecomputationType if one.name != "Pipeline"]),
    st.sampled_from([popart.ConstSGD(0.1), popart.Adam({}), popart.SGD({})]),
)
def test_the_ir_of_any_training_is_the_graph_that_runs(
    names: list[tuple[str, int, int]],
    recomputed: popart.RecomputationType,
    optimizer: popart.Optimizer,
) -> None:
    builder, loss = built(names)
    options = popart.SessionOptions()
    options.autoRecomputation = recomputed
    gradient = popart.reservedGradientPrefix() + "w"
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss, gradient]),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(backend="reference"),
        userOptions=options,
    )
    ir = session.getIr()
    for name in ir.graphNames():
        holds_together(ir, name)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x = np.linspace(0.5, 1.5, 9, dtype=np.float32).reshape(3, 3)
    with np.errstate(all="ignore"):
        session.run(popart.PyStepIO({"x": x}, anchors))
        module = parse_ir(ir.text(), Compilation())
        found = popgraph.compile(module, backend="reference")({"x": x})
    for id in (loss, gradient):
        np.testing.assert_array_equal(found[id], anchors[id])
