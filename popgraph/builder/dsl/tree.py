"""What does a `.pgraph` text say, before anyone asks whether it makes sense?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Span:
    """From where to where in the text; lines and columns count from 1, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Node:
    """Anything that stands somewhere in the text."""

    span: Span


@dataclass(frozen=True)
class Name(Node):
    """A name, without the backticks it may have been written with."""

    text: str


@dataclass(frozen=True)
class Missing(Node):
    """`_`: an optional input that is not given, or a result that nobody wants."""


@dataclass(frozen=True)
class Number(Node):
    """`3`, `0.5`, `-inf`."""

    value: int | float


@dataclass(frozen=True)
class Truth(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class Text(Node):
    """`"SAME_UPPER"`."""

    value: str


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
class Negative(Node):
    """`-x`."""

    operand: Expression


@dataclass(frozen=True)
class Argument(Node):
    """What stands between the commas of a call; the keyword is None for a positional one."""

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


Expression: TypeAlias = Name | Number | Truth | Text | Items | Binary | Negative | Call


@dataclass(frozen=True)
class UnknownDim(Node):
    """`?`."""


@dataclass(frozen=True)
class Type(Node):
    """`f32[N, 3]`; `dims` is None for `f32[...]`."""

    dtype: Name
    dims: tuple[Number | Name | UnknownDim, ...] | None


@dataclass(frozen=True)
class Parameter(Node):
    """An input: `x: f32[N, 3]`."""

    name: Name
    type: Type


@dataclass(frozen=True)
class Target(Node):
    """What a statement or a graph names: `y`, `y: f32[N, 3]`, `_`."""

    name: Name | Missing
    type: Type | None


@dataclass(frozen=True)
class Weight(Node):
    """`weight w: f32[3, 4] = he_normal(seed=1)`: a tensor that training changes."""

    name: Name
    type: Type
    value: Expression


@dataclass(frozen=True)
class Constant(Node):
    """`const axes: i64[1] = [-1]`: a tensor that nothing changes."""

    name: Name
    type: Type | None
    value: Expression


@dataclass(frozen=True)
class Assignment(Node):
    """`(y, mask) = Dropout(x, ratio=0.5)`."""

    targets: tuple[Target, ...]
    value: Expression


Statement: TypeAlias = Weight | Constant | Assignment


@dataclass(frozen=True)
class Block(Node):
    """What stands between `{` and `}`."""

    doc: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Opset(Node):
    """`opset 21`, `opset ai.onnx.ml 3`."""

    domain: str
    version: int


@dataclass(frozen=True)
class Graph(Node):
    """`graph name(inputs) -> (outputs) { ... }`."""

    name: Name
    inputs: tuple[Parameter, ...]
    outputs: tuple[Target, ...]
    body: Block


@dataclass(frozen=True)
class Train(Node):
    """`train name (inputs) { ... }`."""

    graph: Name | None
    inputs: tuple[Parameter, ...]
    body: Block


@dataclass(frozen=True)
class File(Node):
    """Everything that one text says."""

    doc: str
    opsets: tuple[Opset, ...]
    graphs: tuple[Graph, ...]
    trains: tuple[Train, ...]
