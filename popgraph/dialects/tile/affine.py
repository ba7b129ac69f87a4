"""Linear forms of affine index maps: strides, bounds, simplification, composition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
from popgraph.support import index_laws
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape

remembered = lru_cache(maxsize=1 << 12)
"""Cache for pure functions: maps and types are immutable and repeat across operations."""


COMPOSED = Rewrite(
    "compose index maps", "outer(inner(d))  ->  one map of d", Proof(index_laws.COMPOSITION)
)
DROP_UNIT_DIM = Rewrite(
    "drop a dimension of size 1", "d  ->  0, given a size of 1", Proof(index_laws.UNIT)
)
SPLIT_MULTIPLES = Rewrite(
    "take multiples out of a division",
    "(b * q + r) // b  ->  q + r // b",
    Proof(index_laws.MULTIPLES),
)
FOLD_QUOTIENT = Rewrite(
    "fold a constant quotient",
    "r // b  ->  low // b, given low <= r <= high with equal quotients",
    Proof(index_laws.CONSTANT_QUOTIENT),
)
CANCEL_FACTOR = Rewrite(
    "cancel a common factor", "(c * i) // (c * b)  ->  i // b", Proof(index_laws.SCALED)
)
DROP_LOW_DIGITS = Rewrite(
    "drop low digits",
    "(c * i + low) // (c * b)  ->  i // b, given 0 <= low < c",
    Proof(index_laws.LOW_DIGITS),
)
MERGE_DIGITS = Rewrite(
    "merge quotient and remainder",
    "c * b * (i // b) + c * (i % b)  ->  c * i",
    Proof(index_laws.MERGED_DIGITS),
)
ROUND_UP = Rewrite(
    "round a quotient up by rounding down",
    "i ceildiv b  ->  (i + (b - 1)) // b",
    Proof(index_laws.ROUNDED_UP),
)
BOUND = Rewrite(
    "bound an index map",
    "low <= r <= high  ->  low // b <= r // b <= high // b",
    Proof(index_laws.BOUNDS),
)
REWRITES = (
    COMPOSED,
    DROP_UNIT_DIM,
    SPLIT_MULTIPLES,
    FOLD_QUOTIENT,
    CANCEL_FACTOR,
    DROP_LOW_DIGITS,
    MERGE_DIGITS,
    ROUND_UP,
    BOUND,
)
"""The rules by which `linear` simplifies index maps."""


@dataclass(frozen=True)
class Linear:
    """
    `constant + sum of coefficient * atom`.

    An atom is a dimension, or a `floordiv` or `mod` by a constant that does not simplify.
    `linear` builds it; expressions that are equal over a domain nearly always get equal forms.
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
        """The change per step along `dim`; None if steps differ."""
        return None if dim in self._uneven else self._strides.get(dim, 0)

    @cached_property
    def _strides(self) -> dict[int, int]:
        """Coefficients of atoms that are dimensions."""
        return {
            atom.position: factor
            for atom, factor in self.terms.items()
            if isinstance(atom, AffineDimExpr)
        }

    @cached_property
    def _uneven(self) -> frozenset[int]:
        """The dimensions within all other atoms."""
        others = [atom.used_dims() for atom in self.terms if not isinstance(atom, AffineDimExpr)]
        return frozenset().union(*others)

    def pace(self, dim: int, sizes: Sequence[int]) -> float:
        """The average distance of steps along `dim`."""
        stride, steps = self.stride(dim), sizes[dim] - 1
        if stride is not None or steps < 1:
            return abs(stride or 0)
        alone = [size if at == dim else 1 for at, size in enumerate(sizes)]
        ends = [(factor, _atom_bounds(atom, alone)) for atom, factor in self.terms.items()]
        return sum(abs(factor) * (most - least) for factor, (least, most) in ends) / steps

    def uses(self, dim: int) -> bool:
        return dim in self._strides or dim in self._uneven

    def separates(self, dims: Iterable[int]) -> bool:
        """Whether it is a function of `dims` plus one of the other dimensions."""
        chosen = set(dims)
        used = [atom.used_dims() for atom in self.terms]
        return all(mine <= chosen or mine.isdisjoint(chosen) for mine in used)

    @property
    def at_zero(self) -> int:
        """The value where all dimensions are 0."""
        dims = {dim for atom in self.terms for dim in atom.used_dims()}
        return self.bounds([1] * (max(dims, default=-1) + 1))[0]

    def bounds(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Conservative bounds of the value over the domain."""
        low = high = self.constant
        for atom, factor in self.terms.items():
            least, most = _atom_bounds(atom, sizes)
            low += min(factor * least, factor * most)
            high += max(factor * least, factor * most)
        return low, high

    def expression(self) -> AffineExpr:
        """The affine expression, dimensions first; equal forms give equal expressions."""
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
    BOUND.fires()
    low, high = linear(atom.lhs, sizes).bounds(sizes)
    if atom.kind == AffineBinaryOpKind.FloorDiv:
        return low // by, high // by
    return (low % by, high % by) if low // by == high // by else (0, by - 1)


def linear(expression: AffineExpr, sizes: Sequence[int]) -> Linear:
    """The linear form of an expression over a domain of these sizes."""
    match expression:
        case AffineConstantExpr():
            return Linear(expression.value)
        case AffineDimExpr():
            if sizes[expression.position] == 1:
                DROP_UNIT_DIM.fires()
                return Linear()
            return Linear(0, {expression: 1})
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            return _merged_digits(linear(expression.lhs, sizes) + linear(expression.rhs, sizes))
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
                ROUND_UP.fires()
                inner = inner + Linear(by - 1)
                return _divided(AffineBinaryOpKind.FloorDiv, inner, by, sizes)
            return _divided(expression.kind, inner, by, sizes)
    raise AssertionError(f"{expression} has a symbol")


def _divided(kind: AffineBinaryOpKind, value: Linear, by: int, sizes: Sequence[int]) -> Linear:
    """
    `value floordiv by` or `value mod by`; multiples of `by` leave the division.

    The rest vanishes from the quotient if its bounds prove that it is in [0, by).
    """
    whole = Linear(
        value.constant // by,
        {atom: factor // by for atom, factor in value.terms.items() if factor % by == 0},
    )
    rest = Linear(
        value.constant % by,
        {atom: factor for atom, factor in value.terms.items() if factor % by},
    )
    if whole.terms:
        SPLIT_MULTIPLES.fires()
    low, high = rest.bounds(sizes)
    quotient = kind == AffineBinaryOpKind.FloorDiv
    if low // by == high // by:
        FOLD_QUOTIENT.fires()
        return whole + Linear(low // by) if quotient else rest + Linear(-(low // by) * by)
    split = _scaled_atom(rest, by)
    if split is not None:
        CANCEL_FACTOR.fires()
        return whole + split if quotient else _remainder(rest, split, by)
    shorter = _without_low_digits(kind, rest, by, sizes)
    if shorter is not None:
        DROP_LOW_DIGITS.fires()
        return whole + shorter if quotient else shorter
    atom = AffineBinaryOpExpr(kind, rest.expression(), AffineConstantExpr(by))
    return whole + Linear(0, {atom: 1}) if quotient else Linear(0, {atom: 1})


def _scaled_atom(rest: Linear, by: int) -> Linear | None:
    """`(c * atom) floordiv (c * b) -> atom floordiv b`."""
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
    `(c * x + low) floordiv (c * b) -> x floordiv b`, and `mod -> c * (x mod b) + low`.

    Only when the bounds prove 0 <= low < c.
    """
    # The largest divisor simplifies most.
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
    """`rest mod by`, given `rest floordiv by` as simplified by `_scaled_atom`."""
    ((atom, factor),) = rest.terms.items()
    ((division, _),) = quotient.terms.items()
    assert isinstance(division, AffineBinaryOpExpr)
    smaller = AffineBinaryOpExpr(AffineBinaryOpKind.Mod, atom, division.rhs)
    return Linear(0, {smaller: factor})


def _merged_digits(value: Linear) -> Linear:
    """`c*b*(x floordiv b) + c*(x mod b) -> c*x`: quotient and remainder make up x."""
    for atom, factor in value.terms.items():
        if not (isinstance(atom, AffineBinaryOpExpr) and atom.kind == AffineBinaryOpKind.Mod):
            continue
        assert isinstance(atom.rhs, AffineConstantExpr)
        upper = AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, atom.lhs, atom.rhs)
        if value.terms.get(upper) == factor * atom.rhs.value:
            MERGE_DIGITS.fires()
            rest = {key: old for key, old in value.terms.items() if key not in (atom, upper)}
            digits = _as_linear(atom.lhs).scaled(factor)
            return _merged_digits(Linear(value.constant, rest) + digits)
    return value


def _as_linear(expression: AffineExpr) -> Linear:
    """The linear form of an expression that `Linear.expression` built, without simplification."""
    match expression:
        case AffineConstantExpr():
            return Linear(expression.value)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            return _as_linear(expression.lhs) + _as_linear(expression.rhs)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul, rhs=AffineConstantExpr()):
            assert isinstance(expression.rhs, AffineConstantExpr)
            return _as_linear(expression.lhs).scaled(expression.rhs.value)
    return Linear(0, {expression: 1})


def with_dims(map_: AffineMap, dims: Sequence[AffineExpr], rank: int) -> AffineMap:
    """`map_(dims)`: replaces each dimension by an expression of `rank` new dimensions."""
    return map_.replace_dims_and_symbols(dims, (), rank, 0)


def selection(dims: Sequence[int], rank: int | None = None) -> AffineMap:
    """`(d0, d1, ...) -> (d[dims[0]], ...)`, with `rank` dimensions (default: one per result)."""
    places = tuple(AffineExpr.dimension(dim) for dim in dims)
    return AffineMap(len(places) if rank is None else rank, 0, places)


def permutation(order: Sequence[int]) -> AffineMap:
    """The map from loop indices to tensor indices when loop i runs along axis `order[i]`."""
    return selection([order.index(axis) for axis in range(len(order))])


def composed(outer: AffineMap, inner: AffineMap, sizes: Shape) -> AffineMap:
    """`outer(inner(d))`, simplified for a domain of these sizes."""
    COMPOSED.fires()
    return _composed(outer, inner, sizes)


@remembered
def _composed(outer: AffineMap, inner: AffineMap, sizes: Shape) -> AffineMap:
    return simplified(with_dims(outer, inner.results, inner.num_dims), sizes)


@remembered
def simplified(map_: AffineMap, sizes: Shape) -> AffineMap:
    """The map, simplified for a domain of these sizes."""
    results = tuple(linear(result, sizes).expression() for result in map_.results)
    return AffineMap(map_.num_dims, 0, results)


@remembered
def reads_whole(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> bool:
    """
    Whether the map is the identity over the domain, and the domain covers the tensor.

    Over a domain of one row, `(d0, d1) -> (0, d1)` is the identity, but in a larger tensor it reads
    only the first row.
    """
    return type_.get_shape() == sizes and all(
        linear(result, sizes) == linear(AffineExpr.dimension(dim), sizes)
        for dim, result in enumerate(map_.results)
    )


@remembered
def leaves(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> bool:
    """Whether a map provably reads outside both a tensor and its halo."""
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
    """The strides of a dense row-major array."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@remembered
def offset(type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> Linear:
    """The linear offset of element `map_(d)` in the memory that loops see of a tensor."""
    layout = layout_of(type_)
    if layout is not None:
        map_ = with_dims(layout.map.data, map_.results, map_.num_dims)
    total = Linear(-memory_span(type_)[0])
    for result, step in zip(map_.results, row_major(physical_shape(type_)), strict=True):
        total = _merged_digits(total + linear(result, sizes).scaled(step))
    return total
