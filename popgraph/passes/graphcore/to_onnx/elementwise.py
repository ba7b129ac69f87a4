"""ONNX forms of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.graphcore.base import Elementwise, dtype_of
from popgraph.passes.graphcore.to_onnx.printer import Printer, form
from popgraph.support import dtypes

SAME: dict[type[Elementwise], str] = {
    graphcore.ExpOp: "Exp",
    graphcore.ExpNonpositiveOp: "Exp",
    graphcore.LogOp: "Log",
    graphcore.AddOp: "Add",
    graphcore.SubOp: "Sub",
    graphcore.MulOp: "Mul",
    graphcore.WhereOp: "Where",
    graphcore.SignOp: "Sign",
    graphcore.FloorOp: "Floor",
    graphcore.CeilOp: "Ceil",
    graphcore.RoundOp: "Round",
    graphcore.AbsOp: "Abs",
    graphcore.SqrtOp: "Sqrt",
    graphcore.ReciprocalOp: "Reciprocal",
    graphcore.SinOp: "Sin",
    graphcore.CosOp: "Cos",
    graphcore.TanOp: "Tan",
    graphcore.AtanOp: "Atan",
    graphcore.ErfOp: "Erf",
    graphcore.TanhOp: "Tanh",
    graphcore.SigmoidOp: "Sigmoid",
    graphcore.IsNanOp: "IsNaN",
    graphcore.AsinOp: "Asin",
    graphcore.AcosOp: "Acos",
    graphcore.SinhOp: "Sinh",
    graphcore.CoshOp: "Cosh",
    graphcore.AsinhOp: "Asinh",
    graphcore.AcoshOp: "Acosh",
    graphcore.AtanhOp: "Atanh",
}
"""Operations with one ONNX operator of the same operands and meaning."""


def _one_node(op_type: str) -> Callable[[Printer, Elementwise], SSAValue]:
    return lambda to, op: to.node(op_type, *map(to, op.operands))


for _cls, _op_type in SAME.items():
    form(_cls, by=_op_type)(_one_node(_op_type))


@form(graphcore.DivOp, by="Div")
def divide(to: Printer, op: graphcore.DivOp) -> SSAValue:
    """Integer division by 0 is 0; ONNX leaves it undefined, and processors trap."""
    lhs, rhs = to(op.lhs), to(op.rhs)
    known = to.known(op.rhs)
    if dtype_of(op.lhs).is_float or (known is not None and known.all()):
        return to.node("Div", lhs, rhs)
    return _where_nonzero(to, op.lhs, rhs, lambda safe: to.node("Div", lhs, safe))


@form(graphcore.RemOp, by="Mod")
def remainder(to: Printer, op: graphcore.RemOp) -> SSAValue:
    lhs, rhs = to(op.lhs), to(op.rhs)
    if dtype_of(op.lhs).is_float:
        return to.node("Mod", lhs, rhs, fmod=1)
    return _where_nonzero(to, op.lhs, rhs, lambda safe: to.node("Mod", lhs, safe, fmod=1))


def _where_nonzero(
    to: Printer, like: SSAValue, rhs: SSAValue, function: Callable[[SSAValue], SSAValue]
) -> SSAValue:
    """`function` of the divisor; 0 where the divisor is 0."""
    zero, one = (to.scalar(number, dtype_of(like)) for number in (0, 1))
    is_zero = to.node("Equal", rhs, zero)
    return to.node("Where", is_zero, zero, function(to.node("Where", is_zero, one, rhs)))


@form(graphcore.NegOp, by="Neg")
def negate(to: Printer, op: graphcore.NegOp) -> SSAValue:
    if dtype_of(op.x).is_unsigned:
        return to.node("Sub", to.scalar(0, dtype_of(op.x)), to(op.x))
    return to.node("Neg", to(op.x))


@form(graphcore.ReluOp, by="Relu")
def relu(to: Printer, op: graphcore.ReluOp) -> SSAValue:
    return to.node("Identity" if dtype_of(op.x).is_unsigned else "Relu", to(op.x))


@form(graphcore.PowOp, by="Pow")
def power(to: Printer, op: graphcore.PowOp) -> SSAValue:
    """In i64 for integers that ONNX's Pow does not take: the low bits are the same."""
    lhs, rhs, dtype = to(op.lhs), to(op.rhs), dtype_of(op.lhs)
    if dtype.is_float or dtype.name in ("i32", "i64"):
        return to.node("Pow", lhs, rhs)
    return to.cast(to.node("Pow", to.cast(lhs, "i64"), to.cast(rhs, "i64")), dtype)


@form(graphcore.MaxOp, graphcore.MinOp, by="Max, Min")
def extremum(to: Printer, op: graphcore.MaxOp | graphcore.MinOp) -> SSAValue:
    largest = isinstance(op, graphcore.MaxOp)
    if dtype_of(op.lhs).name == "bool":
        return to.node("Or" if largest else "And", to(op.lhs), to(op.rhs))
    return to.node("Max" if largest else "Min", to(op.lhs), to(op.rhs))


@form(graphcore.FmaOp, by="Mul, Add")
def fused(to: Printer, op: graphcore.FmaOp) -> SSAValue:
    """In f64, where the product of two f32 is exact."""
    lhs, rhs, addend = (to.cast(to(value), "f64") for value in op.operands)
    return to.cast(to.node("Add", to.node("Mul", lhs, rhs), addend), dtype_of(op.result))


COMPARED = {
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}


@form(graphcore.CompareOp, by="Equal, Less, LessOrEqual, Greater, GreaterOrEqual")
def compare(to: Printer, op: graphcore.CompareOp) -> SSAValue:
    predicate = op.predicate.data
    lhs, rhs = to(op.lhs), to(op.rhs)
    if predicate == "ne":
        return to.node("Not", to.node("Equal", lhs, rhs))
    if predicate != "eq" and dtype_of(op.lhs).name == "bool":
        lhs, rhs = to.cast(lhs, "i32"), to.cast(rhs, "i32")
    return to.node(COMPARED[predicate], lhs, rhs)


def bitwise(to: Printer, op: Elementwise) -> SSAValue:
    """Logical operators for bools, bitwise ones for integers."""
    stem = op.title.capitalize()
    is_bool = dtype_of(op.operands[0]).name == "bool"
    return to.node(stem if is_bool else f"Bitwise{stem}", *map(to, op.operands))


for _bits in (graphcore.AndOp, graphcore.OrOp, graphcore.XorOp, graphcore.NotOp):
    _stem = _bits.name.removeprefix("graphcore.").capitalize()
    form(_bits, by=f"{_stem}, Bitwise{_stem}")(bitwise)


@form(graphcore.ShiftOp, by="BitShift")
def shift(to: Printer, op: graphcore.ShiftOp) -> SSAValue:
    """
    BitShift of unsigned words, as ONNX has it; counts beyond the width shift all bits out.

    A negative x is shifted right as ~(~x >> n), which fills with ones.
    """
    dtype = dtype_of(op.lhs)
    unsigned = dtypes.BY_NAME["u" + dtype.name.removeprefix("u").removeprefix("i")]
    x, count = to(op.lhs), to(op.rhs)
    width, zero = dtype.numpy.itemsize * 8, to.scalar(0, dtype)
    right, is_signed = op.direction.data == "right", dtype.name.startswith("i")
    negative = to.node("Less", x, zero) if right and is_signed else None
    if negative is not None:
        x = to.node("Where", negative, to.node("BitwiseNot", x), x)
    beyond = to.node("Not", to.node("Less", count, to.scalar(width, dtype)))
    if is_signed:
        beyond = to.node("Or", beyond, to.node("Less", count, zero))
    count = to.node("Where", beyond, zero, count)
    word, by = (to.cast(one, unsigned) if is_signed else one for one in (x, count))
    moved = to.node("BitShift", word, by, direction=op.direction.data.upper())
    moved = to.node("Where", beyond, zero, to.cast(moved, dtype) if is_signed else moved)
    if negative is None:
        return moved
    return to.node("Where", negative, to.node("BitwiseNot", moved), moved)


@form(graphcore.Log1pOp, by="Log")
def log1p(to: Printer, op: graphcore.Log1pOp) -> SSAValue:
    """x log(u) / (u - 1) with u = 1 + x: the rounding of u cancels (Kahan). x where u is 1."""
    x, one = to(op.x), to.scalar(1, dtype_of(op.x))
    above = to.node("Add", x, one)
    change = to.node("Sub", above, one)
    logarithm = to.node("Log", above)
    # The quotient is not a number where x is infinite, 0 or below -1.
    is_inner = to.node("Less", to.node("Abs", x), one)
    slope = to.node("Div", logarithm, to.node("Where", to.node("Equal", above, one), one, change))
    exact = to.node("Where", to.node("Equal", above, one), x, to.node("Mul", x, slope))
    return to.node("Where", is_inner, exact, logarithm)


@form(graphcore.Expm1Op, by="Tanh, Exp")
def expm1(to: Printer, op: graphcore.Expm1Op) -> SSAValue:
    """2 t / (1 - t) with t = tanh(x / 2) where |x| < 1: e^x - 1 would cancel there."""
    x, dtype = to(op.x), dtype_of(op.x)
    one, half = to.scalar(1, dtype), to.scalar(0.5, dtype)
    tangent = to.node("Tanh", to.node("Mul", x, half))
    near = to.node("Div", to.node("Add", tangent, tangent), to.node("Sub", one, tangent))
    is_near = to.node("Less", to.node("Abs", x), one)
    return to.node("Where", is_near, near, to.node("Sub", to.node("Exp", x), one))


@form(graphcore.Atan2Op, by="Atan")
def atan2(to: Printer, op: graphcore.Atan2Op) -> SSAValue:
    """atan(y / x), moved by pi into the half plane of negative x; -0 counts as 0."""
    y, x, dtype = to(op.lhs), to(op.rhs), dtype_of(op.lhs)
    zero, pi = to.scalar(0, dtype), to.scalar(np.pi, dtype)
    slope = to.node("Atan", to.node("Div", y, to.node("Where", to.node("Equal", x, zero), pi, x)))
    turn = to.node("Where", to.node("Less", y, zero), to.node("Neg", pi), pi)
    left = to.node("Where", to.node("Less", x, zero), to.node("Add", slope, turn), slope)
    quarter = to.scalar(np.pi / 2, dtype)
    upright = to.node("Mul", to.node("Sign", y), quarter)
    return to.node("Where", to.node("Equal", x, zero), upright, left)


@form(graphcore.CastOp, by="Cast")
def cast(to: Printer, op: graphcore.CastOp) -> SSAValue:
    target = from_ir(op.to)
    # Numbers beyond the range become infinite or NaN in graphcore; ONNX clamps them by default.
    more = {"saturate": 0} if target.name.startswith("f8") else {}
    return to.node("Cast", to(op.x), to=target.onnx, **more)


@form(graphcore.BitcastOp, by="BitCast")
def bitcast(to: Printer, op: graphcore.BitcastOp) -> SSAValue:
    return to.node("BitCast", to(op.x), to=from_ir(op.to).onnx)
