"""The abstract syntax tree of `.pgraph`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Span:
    """A range in the text; lines and columns count from 1, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Node:
    """A syntax node with its position."""

    span: Span


@dataclass(frozen=True)
class Name(Node):
    """A name, without backticks."""

    text: str


@dataclass(frozen=True)
class Missing(Node):
    """`_`: an absent input, an unused result, a new axis."""


@dataclass(frozen=True)
class Unknown(Node):
    """`?`: an unknown dimension."""


@dataclass(frozen=True)
class Everything(Node):
    """`...` between brackets: all axes without a subscript of their own."""


@dataclass(frozen=True)
class Number(Node):
    """`3`, `0.5`, `-inf`."""

    value: int | float
    spelling: str = field(default="", compare=False, repr=False)
    """The spelling in the text; empty for a generated number."""


@dataclass(frozen=True)
class Truth(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class Text(Node):
    """`"SAME_UPPER"`."""

    value: str


@dataclass(frozen=True)
class Bytes(Node):
    r"""`b"\xff"`: a string that is not UTF-8."""

    value: bytes


@dataclass(frozen=True)
class Items(Node):
    """`[1, 2, 3]`, nested for tensors of more than one dimension."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Binary(Node):
    """`lhs + rhs`; the span is that of the operator."""

    symbol: str
    lhs: Expression
    rhs: Expression


@dataclass(frozen=True)
class Unary(Node):
    """`-x`, `not x`; the span is that of the operator."""

    symbol: str
    operand: Expression


@dataclass(frozen=True)
class Choice(Node):
    """`a if c else b`: elementwise, or of constants."""

    then: Expression
    condition: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Slice(Node):
    """`start:stop:step` between brackets."""

    start: Expression | None
    stop: Expression | None
    step: Expression | None


@dataclass(frozen=True)
class Index(Node):
    """`x[0, 1:-1, ..., _]`."""

    operand: Expression
    subscripts: tuple[Expression | Slice | Everything | Missing, ...]


@dataclass(frozen=True)
class Argument(Node):
    """An argument of a call; the keyword is None for a positional one."""

    keyword: Name | None
    value: Expression | Missing


@dataclass(frozen=True)
class Path(Node):
    """`Conv`, `graphcore.nllloss`."""

    parts: tuple[Name, ...]

    @property
    def text(self) -> str:
        return ".".join(part.text for part in self.parts)


@dataclass(frozen=True)
class Call(Node):
    """`Conv(x, w, strides=[2, 2])`."""

    path: Path
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Annotation(Node):
    """`@ipu(1)`, `@recompute`; the arguments are None without parentheses."""

    path: Path
    arguments: tuple[Argument, ...] | None


@dataclass(frozen=True)
class Type(Node):
    """`f32[N, 3]`; `dims` is None for `f32[...]`."""

    dtype: Name
    dims: tuple[Expression, ...] | None


@dataclass(frozen=True)
class OtherType(Node):
    """`sequence(f32[N])`, `map(i64, string)`, `unknown`: types other than tensors."""

    kind: Name
    parts: tuple[AnyType | Text, ...]


AnyType: TypeAlias = Type | OtherType


@dataclass(frozen=True)
class Parameter(Node):
    """An input: `x: f32[N, 3]`."""

    name: Name
    type: AnyType | None
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Target(Node):
    """A name defined by a statement or a graph: `y`, `y: f32[N, 3]`, `_`."""

    name: Name | Missing
    type: AnyType | None
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Block(Node):
    """The statements between `{` and `}`."""

    doc: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Gives(Node):
    """`-> (a, b)`, `-> turn(a, b)`: the results of a block, with the name of its graph."""

    graph: Name | None
    results: tuple[Target, ...]


@dataclass(frozen=True)
class Branches(Node):
    """`if c { ... } else { ... }`, `if c -> a { ... } else -> b { ... }`."""

    condition: Expression
    then_gives: Gives | None
    then: Block
    else_gives: Gives | None
    otherwise: Block | Branches


@dataclass(frozen=True)
class Turns(Node):
    """`0..n`: iteration numbers; without an end, something else ends the loop."""

    first: Expression
    last: Expression | None


@dataclass(frozen=True)
class Scanned(Node):
    """`i in 0..n`, `x in xs`: a name with another value in each iteration."""

    name: Name | Missing
    type: AnyType | None
    range: Turns | Expression


@dataclass(frozen=True)
class State(Node):
    """`h = start`: a loop state and its initial value."""

    name: Name
    type: AnyType | None
    value: Expression | Missing
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Loop(Node):
    """`loop x in xs while going with h = start { ... }`."""

    scanned: tuple[Scanned, ...]
    condition: Expression | None
    states: tuple[State, ...]
    gives: Gives | None
    body: Block


@dataclass(frozen=True)
class Graph(Node):
    """`graph name(inputs) -> (outputs) { ... }`; a graph inside an expression may be unnamed."""

    name: Name | None
    inputs: tuple[Parameter, ...]
    outputs: tuple[Target, ...]
    body: Block
    annotations: tuple[Annotation, ...] = ()
    numbered: frozenset[str] = frozenset()
    """The outputs of an `@each`, which a `for` defines."""


@dataclass(frozen=True)
class Computed(Node):
    """
    An expression that is already lowered, not spelled in a text.

    `value` is None if that failed.
    """

    value: object


Expression: TypeAlias = (
    Name
    | Number
    | Truth
    | Text
    | Bytes
    | Items
    | Unknown
    | Binary
    | Unary
    | Choice
    | Index
    | Call
    | Branches
    | Loop
    | Graph
    | Computed
)


def left_spine(expression: Binary) -> list[Binary]:
    """[`a + b + c`, `a + b`]: an operation and the operations along its left operands."""
    spine = [expression]
    while isinstance(lhs := spine[-1].lhs, Binary):
        spine.append(lhs)
    return spine


@dataclass(frozen=True)
class Weight(Node):
    """`weight w: f32[3, 4] = he_normal(seed=1)`: a trainable tensor."""

    name: Name
    type: AnyType
    value: Expression
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Constant(Node):
    """`const axes: i64[1] = [-1]`: a constant tensor."""

    name: Name
    type: AnyType | None
    value: Expression
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Static(Node):
    """`let heads = width / 64`: a name for a constant."""

    name: Name
    value: Expression
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Assignment(Node):
    """`(y, mask) = Dropout(x, ratio=0.5)`."""

    targets: tuple[Target, ...]
    value: Expression
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Range(Node):
    """`0..12`: integers from the first, excluding the last."""

    first: Expression
    last: Expression


@dataclass(frozen=True)
class For(Node):
    """`for i in 0..12 { ... }`: statements to be unrolled."""

    targets: tuple[Target, ...]
    range: Range | Expression
    body: Block
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Region(Node):
    """`@ipu(1) { ... }`: annotations for several statements."""

    body: Block
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Freeze(Node):
    """`freeze embedding, "layer0/*"`: weights that a `train` section does not train."""

    patterns: tuple[Name | Text, ...]
    annotations: tuple[Annotation, ...] = ()
    others: bool = False
    """`train_only head`: freezes all weights that the patterns do not match."""

    @property
    def keyword(self) -> str:
        return "train_only" if self.others else "freeze"


Statement: TypeAlias = Weight | Constant | Static | Assignment | For | Region | Freeze


@dataclass(frozen=True)
class Opset(Node):
    """`opset 21`, `opset ai.onnx.ml 3`."""

    domain: str
    version: int


@dataclass(frozen=True)
class Import(Node):
    """`import "layers.pgraph" (dense)`; `names` is None without a list."""

    file: Text
    names: tuple[Name, ...] | None


@dataclass(frozen=True)
class Formal(Node):
    """A parameter of a `def` or a `function`: `x: f32[N, 3]`, `width=64`."""

    name: Name
    type: AnyType | None
    default: Expression | None


@dataclass(frozen=True)
class Template(Node):
    """`def dense(x, width=64) -> y { ... }`: statements that every call inlines."""

    name: Name
    formals: tuple[Formal, ...]
    outputs: tuple[Target, ...]
    body: Block


@dataclass(frozen=True)
class Function(Node):
    """`function my.domain.Dense(x, w, *, alpha=1.0) -> y { ... }`: a function of the model."""

    path: Path
    inputs: tuple[Formal, ...]
    attributes: tuple[Formal, ...]
    outputs: tuple[Target, ...]
    opsets: tuple[Opset, ...]
    body: Block
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Train(Node):
    """`train name (inputs) { ... }`."""

    graph: Name | None
    inputs: tuple[Parameter, ...]
    body: Block


Item: TypeAlias = Opset | Import | Static | Graph | Template | Function | Train


@dataclass(frozen=True)
class File(Node):
    """The items of a text, in order."""

    doc: str
    items: tuple[Item, ...]

    @property
    def opsets(self) -> tuple[Opset, ...]:
        return tuple(item for item in self.items if isinstance(item, Opset))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return tuple(item for item in self.items if isinstance(item, Graph))

    @property
    def trains(self) -> tuple[Train, ...]:
        return tuple(item for item in self.items if isinstance(item, Train))


def children(node: Node) -> Iterator[Node]:
    """The direct children of a node, in text order."""
    for value in vars(node).values():
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Node))


_DEEPENS: dict[type[Node], int] = {Block: 5}
"""Nodes that add more than one level of nesting."""

_EXPRESSIONS = (Binary, Unary, Choice, Index, Items, Call)


def deepest(root: Node, most: int) -> Node | None:
    """
    The first node nested more than `most` levels deep, if any.

    The left operand of an operation, as in `a + b + c`, does not add a level.
    """
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > most:
            return node
        for child in children(node):
            level = depth + _DEEPENS.get(type(child), int(isinstance(child, _EXPRESSIONS)))
            beside = isinstance(node, Binary) and child is node.lhs and isinstance(child, Binary)
            waiting.append((child, depth if beside else level))
    return None


def walk(root: Node) -> Iterator[Node]:
    """A node and its descendants, in text order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(children(node)))
