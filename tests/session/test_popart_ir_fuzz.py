"""Tests with random models that PopART's IR holds together, whatever patterns are on."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import popgraph.session as popart
from popgraph.builder.popart.builder import Builder
from popgraph.builder.popart.pattern_names import DEFAULT, MANDATORY, OPTIONAL
from popgraph.session.popart_ir.ir import Ir

UNARY = ("abs", "cos", "exp", "identity", "log", "relu", "sigmoid", "softmax", "sqrt", "tanh")
BINARY = ("add", "div", "matmul", "mul", "pow", "sub", "sum")
CHOICES = sorted(DEFAULT | OPTIONAL | {"InPlace"})


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Operators, each with the numbers of the tensors that it reads."""
    found = []
    for count in range(2, draw(st.integers(3, 9))):
        name = draw(st.sampled_from(UNARY + BINARY))
        found.append((name, draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))))
    return found


def built(names: list[tuple[str, int, int]]) -> tuple[Builder, str]:
    """The model, whose loss is that of the last tensor."""
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
    """Every tensor is computed once, before it is read, unless it comes from outside."""
    operators = ir.operators(name)
    made = Counter(id for op in operators for id in op.outputs.values())
    assert set(made.values()) <= {1}
    seen: set[str] = set()
    for op in operators:
        assert all(id in seen or id not in made for id in op.inputs.values()), op
        seen.update(op.outputs.values())


@given(
    steps(),
    st.sets(st.sampled_from(CHOICES)),
    st.booleans(),
    st.sampled_from([one for one in popart.RecomputationType if one.name != "Pipeline"]),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([None, "All", "Final", "Sum"]),
)
def test_the_ir_of_any_training_holds_together(
    names: list[tuple[str, int, int]],
    chosen: set[str],
    outlined: bool,
    recomputed: popart.RecomputationType,
    turns: tuple[int, int],
    looped: str | None,
) -> None:
    """With main loops, the body of each takes and gives what its loop does."""
    builder, loss = built(names)
    options = popart.SessionOptions()
    options.enableOutlining = outlined
    options.autoRecomputation = recomputed
    options.explicitRecomputation = recomputed is popart.RecomputationType.RecomputeAll
    options.useHostCopyOps = options.enableExplicitMainLoops = looped is not None
    options.enableGradientAccumulation = turns[1] > 1
    options.accumulationFactor = turns[1]
    ids = [loss, "Gradient___w", "UpdatedVar___w"]
    returned = dict.fromkeys(ids, popart.AnchorReturnType(looped or "All"))
    flow = popart.DataFlow(turns[0], returned)
    session = popart.TrainingSession(
        builder.getModelProto(),
        flow,
        loss,
        popart.Adam({}),
        patterns=popart.Patterns(sorted(chosen | MANDATORY)),
        userOptions=options,
    )
    ir = session.getIr()
    for name in ir.graphNames():
        holds_together(ir, name)
    operators = [op for name in ir.graphNames() for op in ir.operators(name)]
    made = {id.rpartition("Graph/")[2] for op in operators for id in op.outputs.values()}
    assert {loss, "Gradient___w", "UpdatedVar___w"} <= made
    loops = [op for op in operators if op.type == "Loop"]
    assert len(loops) == (sum(turn > 1 for turn in turns) if looped else 0)
    for loop in loops:
        first, inner = ir.body(loop.called[0])
        assert len(first) == 2 + len(loop.inputs)
        assert len(inner) == len(loop.outputs)
