"""Laws of rewrite rules: equations of small terms, which passes apply and a prover checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from popgraph.support import dtypes

FIRED: Counter[str] = Counter()
"""The number of times that each rule and law has fired in this process, by name."""

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "^",
    "floordiv": "//",
    "mod": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "and",
    "or": "or",
}
"""Functions that texts write between their operands."""
_BINDING = (
    ("or",),
    ("and",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("+", "-"),
    ("*", "/", "//", "%"),
    ("^",),
)
"""Groups of operators that bind equally tightly, loosest first."""


@dataclass(frozen=True)
class Term:
    """A variable, a number, or a function of terms."""

    head: str
    """The name of the function; `variable`, `literal` or `number` for a leaf."""
    operands: tuple[Term, ...] = ()
    text: str = ""
    """The name of a variable, or a number; as a text, since 0.0 == -0.0."""

    def __add__(self, other: Term | float) -> Term:
        return function("add", self, other)

    def __radd__(self, other: float) -> Term:
        return function("add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return function("sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return function("sub", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return function("mul", self, other)

    def __rmul__(self, other: float) -> Term:
        return function("mul", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return function("div", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return function("div", other, self)

    def __floordiv__(self, other: Term | float) -> Term:
        return function("floordiv", self, other)

    def __mod__(self, other: Term | float) -> Term:
        return function("mod", self, other)

    def __pow__(self, other: Term | float) -> Term:
        return function("pow", self, other)

    def __neg__(self) -> Term:
        return function("neg", self)

    def __lt__(self, other: Term | float) -> Term:
        return function("lt", self, other)

    def __le__(self, other: Term | float) -> Term:
        return function("le", self, other)

    def __and__(self, other: Term) -> Term:
        return function("and", self, other)

    def equals(self, other: Term | float) -> Term:
        """The comparison `self == other`; the operator compares the terms themselves."""
        return function("eq", self, other)

    @property
    def is_leaf(self) -> bool:
        return not self.operands

    def leaves(self) -> Iterator[Term]:
        """The variables, literals and numbers, in order, with repetitions."""
        if self.is_leaf:
            yield self
        for operand in self.operands:
            yield from operand.leaves()

    def __str__(self) -> str:
        if self.is_leaf:
            return self.text
        if self.head in INFIX:
            lhs, rhs = self.operands
            left = f"({lhs})" if lhs._binding < self._binding else str(lhs)
            right = f"({rhs})" if rhs._binding <= self._binding else str(rhs)
            return f"{left} {INFIX[self.head]} {right}"
        texts = ", ".join(map(str, self.operands))
        if self.head == "neg":
            return f"-({texts})" if self.operands[0].head in INFIX else f"-{texts}"
        return f"{self.head}({texts})"

    @property
    def _binding(self) -> int:
        """The tightness of the outermost operator."""
        sign = INFIX.get(self.head, "")
        return next((at for at, signs in enumerate(_BINDING) if sign in signs), len(_BINDING))


def variable(name: str) -> Term:
    """Any value."""
    return Term("variable", (), name)


def literal(name: str) -> Term:
    """A value that the pass knows: a literal of any elements."""
    return Term("literal", (), name)


def number(value: float) -> Term:
    """A literal whose elements all are this number, with this sign of zero."""
    return Term("number", (), repr(value))


TRUE, FALSE = Term("number", (), "true"), Term("number", (), "false")
LEAST, GREATEST = Term("number", (), "least"), Term("number", (), "greatest")
"""The ends of the range of an integer type."""


def function(name: str, *operands: Term | float) -> Term:
    """A function of terms; plain numbers become terms."""
    terms = (given if isinstance(given, Term) else number(given) for given in operands)
    return Term(name, tuple(terms))


class Over(Enum):
    """The values of a law's variables, and the meaning of its functions."""

    ELEMENTS = "elements"
    """Elements of tensors, in every type that the operations admit, with the IR's meaning."""
    REALS = "reals"
    """Real numbers: equations that rounding would break."""
    INDICES = "indices"
    """Integers without a bound; `//` rounds down."""


EXHAUSTIVE_BITS = 17
"""Laws with at most as many bits of input are checked for every input."""


@dataclass(frozen=True)
class Law:
    """`before` equals `after` for all variables that satisfy `given`."""

    before: Term
    after: Term
    given: Term | None = None
    over: Over = Over.ELEMENTS
    types: frozenset[str] = frozenset()
    """Element types, if fewer than the operations admit."""
    unproven: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Element types for which the law is not proven, with the reason."""

    def __str__(self) -> str:
        given = "" if self.given is None else f", given {self.given}"
        return f"{self.before}  ->  {self.after}{given}"

    @property
    def leaves(self) -> list[Term]:
        """The variables and literals, each once."""
        terms = (self.before, self.after, *([] if self.given is None else [self.given]))
        found = (leaf for term in terms for leaf in term.leaves() if leaf.head != "number")
        return list(dict.fromkeys(found))

    def is_exhaustive(self, element: str) -> bool:
        """Whether the prover runs both sides on every input of an element type."""
        types = (element_of(leaf, self.before, element) for leaf in self.leaves)
        return sum(1 if one == "bool" else dtypes.BY_NAME[one].bits for one in types) <= (
            EXHAUSTIVE_BITS
        )


def element_of(leaf: Term, within: Term, element: str) -> str:
    """The element type of a leaf of a law over `element`: conditions of `where` are bool."""
    if within.head == "where" and within.operands[0] == leaf:
        return "bool"
    found = (element_of(leaf, operand, element) for operand in within.operands)
    return next((one for one in found if one != element), element)


def real_law(before: Term, after: Term, given: Term | None = None) -> Law:
    """A law of real numbers: it holds without rounding."""
    return Law(before, after, given, Over.REALS)


STATUSES = ("derived", "proven", "exhaustive", "by construction", "approximate", "unproven")
"""
Ways to know that a rewrite keeps the meaning, strongest first.

`derived`: the pass matches and builds the terms of laws that are proven. `proven`: laws that the
pass states are proven; the code that applies them is tested. `exhaustive`: a test compares all
inputs. `by construction`: both sides apply the same functions to the same elements. `approximate`:
both are equal for real numbers, and round differently. `unproven`: only tests.
"""


@dataclass(frozen=True)
class Proof:
    """
    The reason why a rewrite keeps the meaning; at most one of the texts is given.

    Without a text, the laws are the whole reason, and the prover checks them.
    """

    laws: tuple[Law, ...] = ()
    construction: str = ""
    """The reason why both sides apply the same functions to the same elements."""
    exhaustive: str = ""
    """The inputs for which a test compares both sides, bit by bit."""
    approximate: str = ""
    """The rewrite rounds differently: the assumption. Its laws hold for real numbers."""
    unproven: str = ""
    """The reason why nothing proves the rewrite, and what tests it instead."""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        texts = {
            "by construction": self.construction,
            "exhaustive": self.exhaustive,
            "approximate": self.approximate,
            "unproven": self.unproven,
        }
        return next((status for status, text in texts.items() if text), "proven")

    @property
    def reason(self) -> str:
        return self.construction or self.exhaustive or self.approximate or self.unproven


@dataclass(frozen=True)
class Rewrite:
    """A rewrite that a function applies, not a rule class: its name and its proof."""

    name: str
    about: str
    """`before -> after`."""
    proof: Proof

    def fires(self) -> None:
        """Counts a use."""
        FIRED[self.name] += 1
