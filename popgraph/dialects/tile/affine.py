"""Linear forms of affine index maps: strides, bounds, simplification, composition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import gcd

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from popgraph.dialects.tile.attributes import halo_of, layout_of, memory_span, physical_shape
from popgraph.support.shapes import Shape

remembered = lru_cache(maxsize=1 << 12)
"""Maps and types never change, and most operations of a program have those of others."""


@dataclass(frozen=True)
class Linear:
    """
    `constant + sum of coefficient * atom`.

    An atom is a dimension, or a `floordiv` or `mod` by a constant that could not be resolved.
    Made by `linear`; equal expressions over one domain have equal forms in nearly all cases.
    """

    constant: int = 0
    terms: Mapping[AffineExpr, int] = field(default_factory=dict)

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor
            if terms[atom] == 0:
                del terms[atom]
        return Linear(self.constant + other.constant, terms)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(
            self.constant * factor, {atom: old * factor for atom, old in self.terms.items()}
        )

    def stride(self, dim: int) -> int | None:
        """What one step along `dim` adds; None when that differs from step to step."""
        return None if dim in self._uneven else self._strides.get(dim, 0)

    @cached_property
    def _strides(self) -> dict[int, int]:
        """By dimension that is an atom."""
        return {
            atom.position: factor
            for atom, factor in self.terms.items()
            if isinstance(atom, AffineDimExpr)
        }

    @cached_property
    def _uneven(self) -> frozenset[int]:
        """The dimensions in all other atoms."""
        others = [atom.used_dims() for atom in self.terms if not isinstance(atom, AffineDimExpr)]
        return frozenset().union(*others)

    def pace(self, dim: int, sizes: Sequence[int]) -> float:
        """How far steps along `dim` go on average, all together."""
        stride, steps = self.stride(dim), sizes[dim] - 1
        if stride is not None or steps < 1:
            return abs(stride or 0)
        alone = [size if at == dim else 1 for at, size in enumerate(sizes)]
        ends = [(factor, _atom_bounds(atom, alone)) for atom, factor in self.terms.items()]
        return sum(abs(factor) * (most - least) for factor, (least, most) in ends) / steps

    def uses(self, dim: int) -> bool:
        return dim in self._strides or dim in self._uneven

    def bounds(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The smallest and the largest value over the domain (a safe estimate)."""
        low = high = self.constant
        for atom, factor in self.terms.items():
            least, most = _atom_bounds(atom, sizes)
            low += min(factor * least, factor * most)
            high += max(factor * least, factor * most)
        return low, high

    def expression(self) -> AffineExpr:
        """As an affine expression, dimensions first; equal sums give equal expressions."""
        result = AffineExpr.constant(0)
        for atom, factor in sorted(self.terms.items(), key=lambda item: _order(item[0])):
            term = (
                atom
                if factor == 1
                else AffineBinaryOpExpr(AffineBinaryOpKind.Mul, atom, AffineConstantExpr(factor))
            )
            result = term if result == AffineConstantExpr(0) else result + term
        return result if self.constant == 0 and self.terms else result + self.constant


def _order(atom: AffineExpr) -> tuple[int, int, str]:
    if isinstance(atom, AffineDimExpr):
        return (0, atom.position, "")
    return (1, 0, str(atom))


def _atom_bounds(atom: AffineExpr, sizes: Sequence[int]) -> tuple[int, int]:
    if isinstance(atom, AffineDimExpr):
        return 0, max(0, sizes[atom.position] - 1)
    assert isinstance(atom, AffineBinaryOpExpr) and isinstance(atom.rhs, AffineConstantExpr)
    by = atom.rhs.value
    low, high = linear(atom.lhs, sizes).bounds(sizes)
    if atom.kind == AffineBinaryOpKind.FloorDiv:
        return low // by, high // by
    return (low % by, high % by) if low // by == high // by else (0, by - 1)


def linear(expression: AffineExpr, sizes: Sequence[int]) -> Linear:
    """The sum that `expression` is, over a domain of these sizes."""
    match expression:
        case AffineConstantExpr():
            return Linear(expression.value)
        case AffineDimExpr():
            if sizes[expression.position] == 1:
                return Linear()
            return Linear(0, {expression: 1})
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            return _joined(linear(expression.lhs, sizes) + linear(expression.rhs, sizes))
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul):
            left, right = linear(expression.lhs, sizes), linear(expression.rhs, sizes)
            if right.terms:
                left, right = right, left
            assert not right.terms, "a product of two indices is not affine"
            return left.scaled(right.constant)
        case AffineBinaryOpExpr() if isinstance(expression.rhs, AffineConstantExpr):
            inner = linear(expression.lhs, sizes)
            by = expression.rhs.value
            if expression.kind == AffineBinaryOpKind.CeilDiv:
                inner = inner + Linear(by - 1)
                return _divided(AffineBinaryOpKind.FloorDiv, inner, by, sizes)
            return _divided(expression.kind, inner, by, sizes)
    raise AssertionError(f"{expression} has a symbol")


def _divided(kind: AffineBinaryOpKind, value: Linear, by: int, sizes: Sequence[int]) -> Linear:
    """
    `value floordiv by` or `value mod by`: multiples of `by` come out of the division.

    What is left is gone when it is surely between 0 and `by`.
    """
    whole = Linear(
        value.constant // by,
        {atom: factor // by for atom, factor in value.terms.items() if factor % by == 0},
    )
    rest = Linear(
        value.constant % by,
        {atom: factor for atom, factor in value.terms.items() if factor % by},
    )
    low, high = rest.bounds(sizes)
    quotient = kind == AffineBinaryOpKind.FloorDiv
    if low // by == high // by:
        return whole + Linear(low // by) if quotient else rest + Linear(-(low // by) * by)
    split = _scaled_atom(rest, by)
    if split is not None:
        return whole + split if quotient else _remainder(rest, split, by)
    shorter = _without_low_digits(kind, rest, by, sizes)
    if shorter is not None:
        return whole + shorter if quotient else shorter
    atom = AffineBinaryOpExpr(kind, rest.expression(), AffineConstantExpr(by))
    return whole + Linear(0, {atom: 1}) if quotient else Linear(0, {atom: 1})


def _scaled_atom(rest: Linear, by: int) -> Linear | None:
    """`(c * atom) floordiv (c * b)` is `atom floordiv b`."""
    if len(rest.terms) != 1 or rest.constant:
        return None
    ((atom, factor),) = rest.terms.items()
    if factor <= 1 or by % factor or by == factor:
        return None
    smaller = AffineBinaryOpExpr(
        AffineBinaryOpKind.FloorDiv, atom, AffineConstantExpr(by // factor)
    )
    return Linear(0, {smaller: 1})


def _without_low_digits(
    kind: AffineBinaryOpKind, value: Linear, by: int, sizes: Sequence[int]
) -> Linear | None:
    """
    `(c * x + low) floordiv (c * b)` is `x floordiv b`, and its `mod` is `c * (x mod b) + low`.

    Only when `low` is surely between 0 and `c`.
    """
    for common in sorted({gcd(by, factor) for factor in value.terms.values()}, reverse=True):
        low = Linear(
            value.constant % common,
            {atom: factor for atom, factor in value.terms.items() if factor % common},
        )
        least, most = low.bounds(sizes)
        if common == 1 or not low.terms or least < 0 or most >= common:
            continue
        high = Linear(
            value.constant // common,
            {
                atom: factor // common
                for atom, factor in value.terms.items()
                if factor % common == 0
            },
        )
        digit = _divided(kind, high, by // common, sizes)
        return digit if kind == AffineBinaryOpKind.FloorDiv else digit.scaled(common) + low
    return None


def _remainder(rest: Linear, quotient: Linear, by: int) -> Linear:
    """`rest mod by`, given `rest floordiv by` of the form that `_scaled_atom` gives."""
    ((atom, factor),) = rest.terms.items()
    ((division, _),) = quotient.terms.items()
    assert isinstance(division, AffineBinaryOpExpr)
    smaller = AffineBinaryOpExpr(AffineBinaryOpKind.Mod, atom, division.rhs)
    return Linear(0, {smaller: factor})


def _joined(value: Linear) -> Linear:
    """`c*b*(x floordiv b) + c*(x mod b)` is `c*x`: two digits of a number make the number."""
    for atom, factor in value.terms.items():
        if not (isinstance(atom, AffineBinaryOpExpr) and atom.kind == AffineBinaryOpKind.Mod):
            continue
        assert isinstance(atom.rhs, AffineConstantExpr)
        upper = AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, atom.lhs, atom.rhs)
        if value.terms.get(upper) == factor * atom.rhs.value:
            rest = {key: old for key, old in value.terms.items() if key not in (atom, upper)}
            digits = _plain(atom.lhs).scaled(factor)
            return _joined(Linear(value.constant, rest) + digits)
    return value


def _plain(expression: AffineExpr) -> Linear:
    """The sum behind an expression that `Linear.expression` wrote."""
    match expression:
        case AffineConstantExpr():
            return Linear(expression.value)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            return _plain(expression.lhs) + _plain(expression.rhs)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul, rhs=AffineConstantExpr()):
            assert isinstance(expression.rhs, AffineConstantExpr)
            return _plain(expression.lhs).scaled(expression.rhs.value)
    return Linear(0, {expression: 1})


def with_dims(map_: AffineMap, dims: Sequence[AffineExpr], rank: int) -> AffineMap:
    """`map_(dims)`: an expression of `rank` new dimensions in place of each dimension."""
    return map_.replace_dims_and_symbols(dims, (), rank, 0)


def selection(dims: Sequence[int], rank: int | None = None) -> AffineMap:
    """`(d0, d1, ...) -> (d[dims[0]], ...)`, of as many dimensions as results unless `rank` says."""
    places = tuple(AffineExpr.dimension(dim) for dim in dims)
    return AffineMap(len(places) if rank is None else rank, 0, places)


def permutation(order: Sequence[int]) -> AffineMap:
    """Where in a tensor the element of a loop index is, when loop i goes along axis `order[i]`."""
    return selection([order.index(axis) for axis in range(len(order))])


def composed(outer: AffineMap, inner: AffineMap, sizes: Shape) -> AffineMap:
    """`outer(inner(d))` for a domain of these sizes, in its simplest form."""
    return simplified(with_dims(outer, inner.results, inner.num_dims), sizes)


@remembered
def simplified(map_: AffineMap, sizes: Shape) -> AffineMap:
    """The same map for a domain of these sizes, in its simplest form."""
    results = tuple(linear(result, sizes).expression() for result in map_.results)
    return AffineMap(map_.num_dims, 0, results)


@remembered
def reads_whole(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> bool:
    """
    Whether each index of the domain reads the element of that index, and all elements are read.

    Over a domain of one row, `(d0, d1) -> (0, d1)` is an identity, but of a larger tensor it reads
    only the first row.
    """
    return type_.get_shape() == sizes and all(
        linear(result, sizes) == linear(AffineExpr.dimension(dim), sizes)
        for dim, result in enumerate(map_.results)
    )


@remembered
def leaves(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> bool:
    """Whether a map surely reads what a tensor has neither among its elements nor in its halo."""
    if 0 in sizes:
        return False
    halo = halo_of(type_)
    for dim, (result, size) in enumerate(zip(map_.results, type_.get_shape(), strict=True)):
        form = linear(result, sizes)
        if not all(isinstance(atom, AffineDimExpr) for atom in form.terms):
            continue
        least, most = form.bounds(sizes)
        around = halo is not None and dim != halo.part
        low, high = (halo.low[dim], halo.high[dim]) if halo and around else (0, 0)
        if least < -low or most >= size + high:
            return True
    return False


def row_major(shape: Sequence[int]) -> Shape:
    """The distance in memory of neighbours along each dimension."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@remembered
def offset(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> Linear:
    """Where in the memory that loops get for a tensor the element at `map_(d)` stands."""
    layout = layout_of(type_)
    if layout is not None:
        map_ = with_dims(layout.map.data, map_.results, map_.num_dims)
    total = Linear(-memory_span(type_)[0])
    for result, step in zip(map_.results, row_major(physical_shape(type_)), strict=True):
        total = _joined(total + linear(result, sizes).scaled(step))
    return total
