"""Templates of reductions, matmuls, softmax and normalization."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import Shape, prod, reduced
from popgraph.testing.specs import Constant, Node
from popgraph.testing.templates.frame import LIMIT, Step, constants, vector

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


def reduction(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keepdims = draw(st.booleans())
    op = draw(st.sampled_from(REDUCTIONS))
    result = reduced(shape, axes, keepdims)
    flag = ("keepdims", int(keepdims))
    if op == "ReduceSum":  # from opset 13 on its axes are an operand
        return Node(op, (source, vector(*axes)), (flag,)), result
    return Node(op, (source, vector(*axes)), (flag,)), result


def matmul(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) < 2:
        return None
    columns = draw(st.integers(1, 5) | st.just(shape[-2]))
    if prod(shape[:-1]) * columns > LIMIT:
        return None
    weight = Constant((shape[-1], columns), dtype, seed=draw(st.integers(0, 3)))
    return Node("MatMul", (source, weight)), (*shape[:-1], columns)


def gemm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) != 2:
        return None
    columns, transposed = draw(st.integers(1, 20)), draw(st.booleans())
    if max(shape) <= 20 and draw(st.booleans()):
        columns = draw(st.sampled_from(shape))
    inner = (columns, shape[1]) if transposed else (shape[1], columns)
    bias = Constant((columns,), dtype, seed=draw(st.integers(0, 3)))
    attributes = (("transB", int(transposed)), ("alpha", draw(st.sampled_from([1.0, 0.5]))))
    operands = (source, Constant(inner, dtype, seed=draw(st.integers(0, 3))), bias)
    return Node("Gemm", operands, attributes), (shape[0], columns)


def earlier_sums(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """Exclusive cumulative sum, preferably along an axis of size 1, where it is zero."""
    shape = shapes[source]
    if not shape:
        return None
    thin = [axis for axis, size in enumerate(shape) if size == 1]
    axis = draw(st.sampled_from(thin or range(len(shape))))
    flags = (("exclusive", 1), ("reverse", draw(st.integers(0, 1))))
    return Node("CumSum", (source, Constant((), "i64", (axis,))), flags), shape


def softmax(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    op = draw(st.sampled_from(["Softmax", "LogSoftmax"]))
    return Node(op, (source,), (("axis", axis),)), shape


def layer_norm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    scale = draw(constants(shape[-1:], dtype))
    return Node("LayerNormalization", (source, scale), (("axis", -1),)), shape
