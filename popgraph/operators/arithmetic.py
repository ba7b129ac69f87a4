"""
Elementwise operators: arithmetic, comparisons, rectifiers, casts and bits.

Most map to one graphcore operation, whose class attribute `ONNX` names the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
from onnx import FunctionProto, helper
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, is_float, shape_of
from popgraph.dialects.onnx.host_values import plain
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import one_element, stretches
from popgraph.operators.node import Node
from popgraph.operators.record import (
    GRAPHCORE,
    STEPS,
    Lowered,
    chooses,
    computes,
    follows_data_sizes,
    lowers,
    mends,
    requires,
    without_gradient,
)
from popgraph.operators.schema_bodies import is_of
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError

COMPARISONS = {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
}
"""The predicates of ONNX's comparisons."""


def _register_operations() -> None:
    """Registers the operators that map to one operation, as the operations' `ONNX` lists them."""
    for op in gc.GRAPHCORE.operations:
        assert issubclass(op, gc.GraphcoreOp)
        for operator in op.ONNX.split():
            domain, _, name = operator.rpartition(".")
            lowers(name, domain=domain)(partial(_one_operation, op))


def _one_operation(op: type[gc.GraphcoreOp], node: Node) -> Operand:
    """Builds one operation; variadic operators (Max, Min, Sum) become a chain."""
    create: Callable[..., Operand] = op
    if node.op.op_type in ("Max", "Min", "Sum"):
        return reduce(create, alike(*node.inputs))
    if issubclass(op, gc.Binary):
        return create(*alike(node[0], second(node)))
    if node.op.op_type in ("Erf", "IsNaN") and not is_float(node[0]):
        return _widened(create, node)
    return create(*(node[place] for place in range(len(op.get_irdl_definition().operands))))


def _widened(op: Callable[..., Operand], node: Node) -> Operand:
    """
    Erf and IsNaN of integers and 8-bit floats, which some versions allow.

    Erf of an integer is rounded toward 0: in single precision, erf(x) is 1 from x = 4 on.
    """
    if not node.dtype.is_integer:
        return op(cast(node[0], dtypes.BY_NAME["f32"]))
    above = cast(gc.CompareOp(node[0], node.scalar(3), predicate="gt"), node.dtype)
    if node.dtype.name.startswith("u"):
        return above
    below = cast(gc.CompareOp(node[0], node.scalar(-3), predicate="lt"), node.dtype)
    return gc.SubOp(above, below)


_register_operations()
without_gradient("Floor Ceil Round Sign", STEPS)
without_gradient("NearbyInt Round", STEPS, domain=GRAPHCORE)
without_gradient(
    "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BitwiseXnor", "it takes integers", domain=GRAPHCORE
)


@lowers(*(COMPARISONS.keys() - {"Equal"}))
def compare(node: Node) -> Lowered:
    lhs, rhs = alike(node[0], second(node))
    return gc.CompareOp(lhs, rhs, predicate=COMPARISONS[node.op.op_type])


@lowers("IsInf")
def is_infinite(node: Node) -> Lowered:
    found: list[Operand] = []
    x = node[0] if is_float(node[0]) else cast(node[0], dtypes.BY_NAME["f32"])
    for name, sign in (("detect_negative", -1), ("detect_positive", 1)):
        if node.integer(name, 1):
            infinity = node.scalar(sign * math.inf, dtype_of(x))
            found.append(gc.CompareOp(x, infinity, predicate="eq"))
    if not found:
        return gc.BroadcastOp(node.literal(np.array(False)), shape=node.shape)
    return reduce(gc.OrOp, found)


@lowers("Nop", "TensorRemap", "PrintTensor", domain=GRAPHCORE)
@lowers("Identity")
def identity(node: Node) -> Lowered:
    return node[0]


@computes("Identity")
def compute_identity(node: NodeView, x: Any) -> Any:
    """A copy: PyTorch's exporter shares equal weights by such nodes."""
    return list(x) if isinstance(x, list) else np.array(plain(x))


def alike(*values: SSAValue) -> list[Operand]:
    """The values in one element type: PopART mixes f16 tensors with f32 scalars."""
    half, single = dtypes.BY_NAME["f16"], dtypes.BY_NAME["f32"]
    if {dtype_of(value) for value in values} != {half, single}:
        return list(values)
    return [cast(value, half) for value in values]


def second(node: Node) -> SSAValue:
    """The second input; before opset 7 `axis` aligned it, instead of NumPy's broadcasting."""
    lhs, rhs = shape_of(node[0]), shape_of(node[1])
    if not node.integer("broadcast") or "axis" not in node.op.onnx_attributes():
        return node[1]
    axis = node.axis(node.integer("axis"))
    trailing = len(lhs) - axis - len(rhs)
    if trailing < 0:
        raise TypeMismatchError(f"an input of rank {len(rhs)} does not fit at axis {axis}")
    return SSAValue.get(gc.ReshapeOp(node[1], shape=rhs + (1,) * trailing))


def as_i64(node: Node, index: int) -> SSAValue:
    """An input of indices, counts or sizes, as i64."""
    row = dtype_of(node[index])
    if not row.is_integer:
        raise TypeMismatchError(
            f"input {index} must be an integer type, not {row.name}",
            hint="convert it with `Cast(..., to=i64)`",
        )
    return cast(node[index], dtypes.BY_NAME["i64"])


def cast(value: Operand, to: dtypes.DType) -> SSAValue:
    """The value in an element type; itself if it has that type."""
    value = SSAValue.get(value)
    return value if dtype_of(value) == to else gc.CastOp(value, to=element_types.to_ir(to)).result


def computing(node: Node) -> dtypes.DType:
    """The accumulation type of statistics of the first input: f32 for f16 and bf16."""
    return dtypes.BY_NAME["f32"] if node.dtype.name in ("f16", "bf16") else node.dtype


@lowers("Pow")
def power(node: Node) -> Lowered:
    base, exponent = node[0], second(node)
    if dtype_of(base) == dtype_of(exponent):
        return gc.PowOp(base, exponent)
    # The result has the type of the base, but is computed in a type that holds both.
    wide = dtype_of(base)
    if not wide.is_float:
        wide = dtypes.BY_NAME["f64" if dtype_of(exponent).is_float else "i64"]
    result = gc.PowOp(cast(base, wide), cast(exponent, wide))
    return cast(result, dtype_of(base))


@lowers("Mod")
@lowers("Fmod", "Remainder", domain=GRAPHCORE)
def modulo(node: Node) -> Lowered:
    """The remainder, with the sign of the dividend (fmod) or of the divisor (otherwise)."""
    right = node[1]
    rest = gc.RemOp(node[0], right)
    if node.integer("fmod", int(node.op.op_type == "Fmod")) or node.dtype.numpy.kind == "u":
        return rest
    zero = node.scalar(0)
    differ = gc.XorOp(
        gc.CompareOp(rest, zero, predicate="lt"), gc.CompareOp(right, zero, predicate="lt")
    )
    inexact = gc.CompareOp(rest, zero, predicate="ne")
    return gc.WhereOp(gc.AndOp(differ, inexact), gc.AddOp(rest, right), rest)


@lowers("IncrementMod", domain=GRAPHCORE)
def increment_mod(node: Node) -> Lowered:
    """fmod(x + increment, modulus)"""
    if not node.real("modulus"):
        raise TypeMismatchError("`modulus` is missing or 0", hint="set `modulus`")
    total = gc.AddOp(node[0], node.scalar(node.real("increment")))
    return gc.RemOp(total, node.scalar(node.real("modulus")))


@lowers("Mean")
def mean(node: Node) -> Lowered:
    total: Operand = node[0]
    for value in node.inputs[1:]:
        total = gc.AddOp(total, value)
    return gc.DivOp(total, node.scalar(len(node)))


@lowers("ScaledAdd", domain=GRAPHCORE)
def scaled_add(node: Node) -> Lowered:
    """scale0 * x + scale1 * y; the scales are attributes or inputs 2 and 3."""

    def scaled(value: SSAValue, name: str, index: int) -> Operand:
        given = node.optional(index)
        return gc.MulOp(value, node.scalar(node.real(name, 1.0)) if given is None else given)

    return gc.AddOp(scaled(node[0], "scale0", 2), scaled(node[1], "scale1", 3))


lowers("Scale", domain=GRAPHCORE)(
    lambda node: gc.MulOp(node[0], node.scalar(node.real("scale", 1.0)))
)


@lowers("CopyVarUpdate", domain=GRAPHCORE)
def copy_var_update(node: Node) -> Lowered:
    """Returns the second input, and assigns it to the variable that the first input is."""
    if node[0].type != node[1].type:
        raise TypeMismatchError(
            f"a variable of type {describe(node[0].type)} cannot be assigned "
            f"{describe(node[1].type)}",
            hint="assign a tensor of the same shape and element type",
        )
    node.lowering.update(node[0], node[1])
    return node[1]


without_gradient("CopyVarUpdate", "it writes a variable", domain=GRAPHCORE)


# Rectifiers and other activations


@requires("PRelu")
def slope(node: NodeView) -> Conflicts:
    yield from stretches(node, 1, node.shape_of(0) if node.version >= 7 else None)


@lowers("PRelu")
def parametric_relu(node: Node) -> Lowered:
    """x if x >= 0 else slope * x. The slope broadcasts to x, not x to the slope."""
    negative = gc.CompareOp(node[0], node.scalar(0), predicate="lt")
    return gc.WhereOp(negative, gc.MulOp(node[0], _slope(node)), node[0])


def _slope(node: Node) -> SSAValue:
    """The slope of PRelu; before opset 7 a vector held one slope per channel, or one for all."""
    shape = shape_of(node[1])
    if node.version >= 7 or len(shape) != 1 or node.rank < 2:
        return node[1]
    if shape[0] not in (1, node.shape[1]):
        raise TypeMismatchError(f"{shape[0]} slopes do not fit {node.shape[1]} channels")
    return SSAValue.get(gc.ReshapeOp(node[1], shape=shape + (1,) * (node.rank - 2)))


@lowers("Softplus")
def softplus(node: Node) -> Lowered:
    """log(1 + e^x), as max(x, 0) + log(1 + e^-|x|): the exponential cannot overflow."""
    tail = gc.Log1pOp(gc.ExpOp(gc.NegOp(gc.AbsOp(node[0]))))
    return gc.AddOp(gc.MaxOp(node[0], node.scalar(0.0)), tail)


def _exponential_unit(node: Node, alpha: float, pace: float = 1.0, gamma: float = 1.0) -> Operand:
    """
    gamma * x for x > 0, else gamma * alpha * (e^(x/pace) - 1).

    f16 and bf16 are computed in f32, which holds every value of the attributes.
    """
    wide = computing(node)
    x, zero = cast(node[0], wide), node.scalar(0.0, wide)
    above = gc.CompareOp(x, zero, predicate="gt")
    # Selecting 0 before the exponential, too, keeps it and its gradient from overflowing.
    below = gc.WhereOp(above, zero, x)
    exponent: Operand = below if pace == 1 else gc.DivOp(below, node.scalar(pace, wide))
    bent: Operand = gc.MulOp(gc.Expm1Op(exponent), node.scalar(alpha, wide))
    if pace > 1:  # |x/pace| < eps/2: e^(x/pace) - 1 is linear, but x/pace may underflow.
        least = node.scalar(ml_dtypes.finfo(wide.numpy).eps / 2, wide)
        bent = gc.WhereOp(gc.CompareOp(gc.AbsOp(exponent), least, predicate="lt"), below, bent)
    unit: Operand = gc.WhereOp(above, x, bent)
    return cast(unit if gamma == 1 else gc.MulOp(unit, node.scalar(gamma, wide)), node.dtype)


lowers("LeakyRelu")(lambda node: gc.LeakyReluOp(node[0], alpha=node.real("alpha")))
lowers("Elu")(lambda node: _exponential_unit(node, node.real("alpha")))


@requires("Celu")
def divisor(node: NodeView) -> Conflicts:
    if node.real("alpha", 1.0) == 0:
        yield TypeConflict("`alpha` is 0", "use another number: the formula divides by it")


@lowers("Celu")
def celu(node: Node) -> Lowered:
    alpha = node.real("alpha")
    return _exponential_unit(node, alpha, pace=alpha)


@lowers("Selu")
def selu(node: Node) -> Lowered:
    return _exponential_unit(node, node.real("alpha"), gamma=node.real("gamma"))


@mends("Shrink")
def retype_bound(proto: FunctionProto, op: SchemaOp) -> None:
    """Shrink's body compares with -lambd in the type of x, which fails for unsigned types."""
    if is_of(op, 0, "u"):
        (negative,) = (node for node in proto.node if node.op_type == "Neg")
        (compared,) = (node for node in proto.node if negative.output[0] in node.input)
        negative.input[:] = ["Lambd"]
        compared.input[:] = ["popgraph_float", negative.output[0]]
        made = helper.make_node("CastLike", [proto.input[0], "Lambd"], ["popgraph_float"])
        proto.node.insert(list(proto.node).index(compared), made)


@lowers("Gelu")
def gelu(node: Node) -> Lowered:
    return gc.GeluOp(node[0], approximate=node.text("approximate") == "tanh")


chooses("Gelu", approximate=("none", "tanh"))
lowers("Gelu", domain=GRAPHCORE)(lambda node: gc.GeluOp(node[0], approximate=True))
lowers("GeluErf", domain=GRAPHCORE)(lambda node: gc.GeluOp(node[0], approximate=False))
lowers("Swish", domain=GRAPHCORE)(lambda node: gc.MulOp(node[0], gc.SigmoidOp(node[0])))


@requires("Clip")
def limits(node: NodeView) -> Conflicts:
    yield from one_element(node, 1)
    yield from one_element(node, 2)


@lowers("Clip")
def clip(node: Node) -> Lowered:
    result: Operand = node[0]
    operations: dict[str, type[gc.Binary]] = {"min": gc.MaxOp, "max": gc.MinOp}
    for index, (name, limit) in enumerate(operations.items(), 1):
        bound = node.optional(index)
        if bound is None and node.has(name):
            bound = node.scalar(_within_range(node.real(name), node.dtype))
        if bound is not None:
            result = limit(result, cast(bound, node.dtype))
    return result


def _within_range(value: float, dtype: DType) -> float:
    """A bound clamped to the range of an integer type: Clip-6 has float bounds for integers."""
    if not dtype.is_integer:
        return value
    ends = ml_dtypes.iinfo(dtype.numpy)
    return ends.min if value <= ends.min else ends.max if value >= ends.max else int(value)


# Casts and bits


chooses("Cast", "CastLike", round_mode=("up", "down", "nearest"))


@lowers("Cast")
def cast_to(node: Node) -> Lowered:
    to = node.value("to")
    if isinstance(to, str):  # version 1 names the type
        target = dtypes.BY_POPART.get(to.upper())
    else:
        target = dtypes.BY_ONNX.get(node.integer("to"))
    if target is None:
        raise node.unsupported("casting to strings")
    return _narrowed(node, target)


@lowers("CastLike")
def cast_like(node: Node) -> Lowered:
    return _narrowed(node, dtype_of(node[1]))


def _narrowed(node: Node, target: dtypes.DType) -> Operand:
    """The first input cast; 8-bit floats saturate unless `saturate` is 0."""
    value: Operand = node[0]
    if dtype_of(value) == target:
        return value
    if target.name == "f8e8m0":
        # ONNX does not define negative inputs; its reference evaluator takes absolute values.
        size = gc.AbsOp(cast(value, dtypes.BY_NAME["f64"]))
        return cast(_power_of_two(node, size), target)
    return narrowed_to(node, value, target, bool(node.integer("saturate", 1)))


def narrowed_to(node: Node, value: Operand, target: DType, saturates: bool) -> SSAValue:
    """The value cast; 8-bit floats are clamped to their finite range if it `saturates`."""
    if target.name.startswith("f8") and saturates:
        largest = float(ml_dtypes.finfo(target.numpy).max)
        value = value if is_float(value) else cast(value, dtypes.BY_NAME["f32"])
        value = limited(node, value, -largest, largest)
    return cast(value, target)


def limited(node: Node, value: Operand, low: float, high: float) -> Operand:
    """The value clamped to [low, high]; NaN stays NaN."""
    dtype = dtype_of(value)
    return gc.MinOp(gc.MaxOp(value, node.scalar(low, dtype)), node.scalar(high, dtype))


def _power_of_two(node: Node, value: Operand) -> Operand:
    """An f64 rounded to a power of two of f8e8m0; NaN out of range unless `saturate`."""
    f64, f8e8m0 = dtypes.BY_NAME["f64"], dtypes.BY_NAME["f8e8m0"]
    ends = ml_dtypes.finfo(f8e8m0.numpy)
    saturates = node.integer("saturate", 1)
    if saturates:
        value = limited(node, value, float(ends.min), float(ends.max))
    near = cast(cast(value, f8e8m0), f64)
    result: Operand = near
    if (mode := node.text("round_mode", "up")) != "nearest":
        step, predicate = (2, "lt") if mode == "up" else (0.5, "gt")
        wrong = gc.CompareOp(near, value, predicate=predicate)
        result = gc.WhereOp(wrong, gc.MulOp(near, node.scalar(step, f64)), near)
    if saturates:
        return result
    too_small = gc.CompareOp(value, node.scalar(float(ends.min), f64), predicate="lt")
    return gc.WhereOp(too_small, node.scalar(math.nan, f64), result)


@lowers("BitShift")
def bit_shift(node: Node) -> Lowered:
    return gc.ShiftOp(node[0], node[1], direction=node.text("direction").lower())


chooses("BitShift", direction=("LEFT", "RIGHT"))


@lowers("BitCast")
def bit_cast(node: Node) -> Lowered:
    """Reinterprets the bits; a bool is a byte, 0 or 1."""
    byte, target = dtypes.BY_NAME["u8"], dtypes.BY_ONNX.get(node.integer("to"))
    if target is None or {"c64", "c128"} & {target.name, node.dtype.name}:
        raise node.unsupported("a complex type", "cast the real and imaginary parts separately")
    value = node[0] if node.dtype.name != "bool" else cast(node[0], byte)
    if dtype_of(value) == target:
        return value
    within = byte if target.name == "bool" else target
    return cast(gc.BitcastOp(value, to=element_types.to_ir(within)), target)


without_gradient("BitCast", "bit patterns are not differentiable")
lowers("BitwiseXnor", domain=GRAPHCORE)(lambda node: gc.NotOp(gc.XorOp(node[0], node[1])))

follows_data_sizes(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
    "BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh Div Elu Erf Exp Floor Gelu Greater "
    "GreaterOrEqual Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mod Mul "
    "Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Sqrt Sub "
    "Sum Tan Tanh Where Xor",
)

follows_data_sizes(
    "Atan2 Expm1 Fmod Gelu GeluErf Log1p NearbyInt Nop Remainder Round Scale ScaledAdd Swish",
    domain=GRAPHCORE,
)
