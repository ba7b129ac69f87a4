"""Laws of index arithmetic: positions in row-major order, slices, concatenations, divisions."""

from __future__ import annotations

from popgraph.support.laws import TRUE, Law, Over, Term, function, variable

AT, J, K, N, M, B, C, Q, R = map(variable, ("i", "j", "k", "n", "m", "b", "c", "q", "r"))
LOW, HIGH = variable("low"), variable("high")


def index_law(before: Term, after: Term | float, given: Term | None = None) -> Law:
    """A law of integers without a bound."""
    wanted = after if isinstance(after, Term) else Term("number", (), repr(after))
    return Law(before, wanted, given, Over.INDICES)


def within(index: Term, size: Term | float) -> Term:
    """0 <= index < size."""
    return function("le", 0, index) & (index < size)


def chosen(condition: Term, then: Term | float, other: Term | float) -> Term:
    """A selection by a condition."""
    return function("where", condition, then, other)


POSITIVE = function("lt", 0, N)
IN_RANGE = (
    index_law(within(AT * N + J, M * N), TRUE, within(AT, M) & within(J, N)),
    index_law(within(AT // N, M) & within(AT % N, N), TRUE, within(AT, M * N) & POSITIVE),
)
"""Indices in the range of their axes have a position in the tensor, and the reverse."""
ROW_MAJOR = (
    *IN_RANGE,
    index_law((AT * N + J) // N, AT, within(J, N)),
    index_law((AT * N + J) % N, J, within(J, N)),
    index_law((AT // N) * N + AT % N, AT, POSITIVE),
    index_law((AT // N) // M, AT // (N * M), POSITIVE & function("lt", 0, M)),
)
"""
Indices and positions in row-major order determine each other, axis by axis.

A shape of any rank follows by induction: all axes but the last one are one axis `i`.
"""
UNIT = (index_law(AT, 0, within(AT, 1)),)
"""An axis of size 1 has a single index."""
BROADCAST = (
    index_law(
        chosen(N.equals(1), 0, chosen(M.equals(1), 0, AT)),
        chosen(N.equals(1), 0, AT),
        within(AT, K)
        & function("or", N.equals(1), N.equals(M))
        & function("or", M.equals(1), M.equals(K)),
    ),
)
"""Sizes n, m, k of an axis that is broadcast twice: index i reads the same element at once."""
CONCATENATION = (
    index_law(
        chosen(AT < N + M, chosen(AT < N, 0, 1), 2),
        chosen(AT < N, 0, chosen(AT < N + M, 1, 2)),
        function("le", 0, M),
    ),
    index_law(
        chosen(AT < N + M, chosen(AT < N, AT, AT - N), AT - (N + M)),
        chosen(AT < N, AT, chosen(AT < N + M, AT - N, AT - N - M)),
        function("le", 0, M),
    ),
)
"""The piece that index i of a nested concatenation reads, and the index within it."""
COMPOSITION = (index_law(J * (K * AT + M) + N, (J * K) * AT + (J * M + N)),)
"""Linear maps compose: coefficients multiply, constants add."""
MULTIPLES = (
    index_law((B * Q + R) // B, Q + R // B, function("lt", 0, B)),
    index_law((B * Q + R) % B, R % B, function("lt", 0, B)),
)
"""Multiples of the divisor leave a division."""
_BETWEEN = function("le", LOW, R) & function("le", R, HIGH)
_DIVIDED = function("lt", 0, B) & _BETWEEN
CONSTANT_QUOTIENT = tuple(
    index_law(before, after, _DIVIDED & (LOW // B).equals(HIGH // B))
    for before, after in ((R // B, LOW // B), (R % B, R - (LOW // B) * B))
)
"""A quotient that is equal at both bounds is equal between them."""
_SCALED = function("lt", 0, C) & function("lt", 0, B)
SCALED = (
    index_law((C * AT) // (C * B), AT // B, _SCALED),
    index_law((C * AT) % (C * B), C * (AT % B), _SCALED),
)
"""A common factor leaves a division."""
LOW_DIGITS = (
    index_law((C * AT + LOW) // (C * B), AT // B, within(LOW, C) & function("lt", 0, B)),
    index_law((C * AT + LOW) % (C * B), C * (AT % B) + LOW, within(LOW, C) & function("lt", 0, B)),
)
"""Digits below a common factor vanish from a quotient, and stay in a remainder."""
BOUNDS = (
    index_law(
        function("le", function("min", K * LOW, K * HIGH), K * R)
        & function("le", K * R, function("max", K * LOW, K * HIGH)),
        TRUE,
        _BETWEEN,
    ),
    index_law(function("le", LOW // B, R // B) & function("le", R // B, HIGH // B), TRUE, _DIVIDED),
    index_law(within(R % B, B), TRUE, function("lt", 0, B)),
    *(
        index_law(after % B - before % B, after - before, _DIVIDED & (LOW // B).equals(HIGH // B))
        for before, after in ((LOW, R), (R, HIGH))
    ),
)
"""
Bounds of a multiple, a quotient and a remainder follow from those of the number.

Remainders are as far apart as the numbers if the quotients at both bounds are equal.
"""
MERGED_DIGITS = (index_law((C * B) * (AT // B) + C * (AT % B), C * AT, function("lt", 0, B)),)
"""Quotient and remainder make up the number."""
ROUNDED_UP = (index_law(-((-AT) // B), (AT + (B - 1)) // B, function("lt", 0, B)),)
"""A quotient rounded up is one rounded down."""
