"""Which mistakes of form are known? A table of broken snippets, each with advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """
    What to say where the parser is stuck as it is at the end of one of `examples`.

    Stuck the same way means: on the same kind of word, in the same state reached from the same
    state; with `anywhere` the state before does not matter.
    """

    what: str
    hint: str
    examples: tuple[str, ...]
    anywhere: bool = False


_HEAD = "graph g(x: f32) -> y {\n"
_EXPRESSIONS = ("a", "1", "1.5", "[1]", "f(a)", "(a)", "a + a", "a * a", "-a", "a ** a", "a < a")


def _in_graph(*snippets: str) -> tuple[str, ...]:
    return tuple(_HEAD + snippet for snippet in snippets)


def _after_expressions(word: str, *frames: str) -> tuple[str, ...]:
    return tuple(
        frame.format(f"{expression} {word}") for expression in _EXPRESSIONS for frame in frames
    )


_FRAMES = (_HEAD.replace("{", "{{") + "y = {}", _HEAD.replace("{", "{{") + "y = f({}")
_VALUE_FRAMES = (*_FRAMES, _FRAMES[0].replace("y = ", "weight w: f32 = "))
_OPERATORS = ("+", "-", "*", "/", "@", "**", "<", "==")

TABLE: tuple[Advice, ...] = (
    Advice(
        "statements stand inside a graph",
        "`graph name(x: f32[N, 3]) -> y { ... }` around them",
        ("y = x", "weight w", "const c", "(y, z) = x", "`y` = x"),
    ),
    Advice("this `}` closes nothing", "remove it, or look for a `{` that is missing", ("}",)),
    Advice("a graph needs a name", "`graph name(x: f32[N, 3]) -> y { ... }`", ("graph (x",)),
    Advice(
        "a graph lists its inputs in parentheses",
        "`graph name(x: f32[N, 3]) -> y { ... }`, or `()` when there are none",
        ("graph g {", "graph g ->", "graph g\n"),
    ),
    Advice(
        "an input needs a type",
        "`x: f32[N, 3]`; `x: f32` is a scalar, `x: f32[...]` has any shape",
        ("graph g(x)", "graph g(x,", "train (x)", "train (x,"),
    ),
    Advice(
        "a graph must say what it gives",
        "`-> y` or `-> (y, z)` before the `{`",
        ("graph g() {", "graph g()\n"),
    ),
    Advice(
        "the body of the graph is missing",
        "`{` stands on the same line as what the graph gives",
        (
            "graph g() -> y\n",
            "graph g() -> (y)\n",
            "graph g() -> y: f32\n",
            "graph g() -> y: f32[2]\n",
        ),
    ),
    Advice(
        "several outputs stand in parentheses",
        "`-> (y, z)`",
        ("graph g() -> y,", "graph g() -> y: f32,", "graph g() -> y: f32[2],"),
    ),
    Advice(
        "an operator set is named by a number",
        "`opset 21`, or `opset ai.onnx.ml 3` for another domain",
        ("opset\n", 'opset "21"', "opset ai\n", "opset 1.5", "opset ai.onnx\n", "opset -"),
    ),
    Advice(
        "this cannot stand inside a graph",
        "close the graph with `}` first",
        _in_graph("graph", "train", "opset", "y = x\ngraph", "y = x\ntrain", "y = x\nopset"),
    ),
    Advice(
        "a statement is `name = expression`",
        "give the result a name, or `_ = ...` if nobody wants it",
        _in_graph("y(", "1", "1.5", '"a"', "[", "f.", "-"),
    ),
    Advice(
        "expected `=` after the name",
        "a statement is `name = expression`",
        _in_graph("y f", "y 1", "y\n", "y }"),
    ),
    Advice("a comparison is no statement", "`name = expression`, with one `=`", _in_graph("y ==")),
    Advice("a comment begins with `#`", "", (*_in_graph("/", "y = x\n/"), "/")),
    Advice(
        "several results stand in parentheses",
        "`(y, mask) = Dropout(x)`",
        _in_graph("y,", "y: f32,"),
    ),
    Advice(
        "the `(` before is never closed",
        "`(y, mask) = Dropout(x)`",
        _in_graph("(y =", "(y, z =", "(y: f32 =", "(_ =", "(y, _ ="),
    ),
    Advice(
        "a weight needs a type",
        "`weight w: f32[64, 10] = he_normal(seed=1)`",
        _in_graph("weight w =", "weight w\n"),
    ),
    Advice(
        "a weight needs a value",
        '`= zeros`, `= he_normal(seed=1)`, `= [0.5, 1.5]`, `= load("weights.npz", "w")`',
        _in_graph("weight w: f32\n", "weight w: f32[2]\n", "weight w: f32 }", "weight w: f32[2] }"),
    ),
    Advice(
        "a constant needs a value",
        "`const axes: i64[1] = [-1]`",
        _in_graph("const c: f32\n", "const c\n", "const c: f32[2]\n"),
    ),
    Advice(
        "a type is missing after `:`",
        "`f32[N, 3]`",
        (*_in_graph("y: =", "weight w: =", "const c: =", "y:\n"), "graph g(x: )", "graph g(x: ,"),
    ),
    Advice(
        "a shape stands in square brackets",
        "`f32[N, 3]`",
        (
            *_in_graph("y: f32(", "y: f32 <", "weight w: f32("),
            "graph g(x: f32(",
            "graph g(x: f32 <",
        ),
    ),
    Advice(
        "a dimension is a number, a name or `?`",
        "`f32[N, 3]`; `?` is one that nothing is known about",
        (
            "graph g(x: f32[-",
            "graph g(x: f32[2, -",
            "graph g(x: f32[1.5",
            'graph g(x: f32["N"',
            "graph g(x: f32[2, 1.5",
            "graph g(x: f32[*",
        ),
        anywhere=True,
    ),
    Advice(
        "dimensions are separated by commas",
        "`f32[N, 3]`",
        tuple(
            f"graph g(x: f32[{dim} {word}"
            for dim in ("2", "N", "?", "2, 3")
            for word in ("2", "N", "*")
        ),
        anywhere=True,
    ),
    Advice(
        "an expression is missing after `=`",
        "inside parentheses a line may end anywhere",
        _in_graph("y =\n", "weight w: f32 =\n", "const c =\n", "y = }"),
        anywhere=True,
    ),
    Advice(
        "an expression is missing after the operator",
        "inside parentheses a line may end anywhere: `y = (a +` ... `b)`",
        _in_graph(
            *(f"y = a {symbol}{end}" for symbol in _OPERATORS for end in ("\n", ")", ",", "}"))
        )
        + _in_graph(*(f"y = f(a {symbol}{end}" for symbol in _OPERATORS for end in (")", ","))),
        anywhere=True,
    ),
    Advice(
        "comparisons do not chain",
        "`And(a < b, b < c)`",
        tuple(
            f"{_HEAD}{frame}{expression} <"
            for frame in ("y = a < ", "y = f(a < ", "weight w: f32 = a < ")
            for expression in _EXPRESSIONS[:-1]
        ),
    ),
    Advice("the argument has no value", "`strides=[2, 2]`", _in_graph("y = f(a=)", "y = f(a=,")),
    Advice(
        "an argument is missing",
        "`_` stands for an optional input that is not given",
        _in_graph("y = f(,", "y = f(a,,"),
        anywhere=True,
    ),
    Advice(
        "`_` is only for inputs and results that are not wanted",
        "",
        _in_graph("y = _", "y = a + _", "y = [_", "y = (_", "y = -_"),
        anywhere=True,
    ),
    Advice(
        "an expression is missing between the parentheses", "", _in_graph("y = ()"), anywhere=True
    ),
    Advice(
        "arguments are separated by commas",
        "`Conv(x, w, strides=[2, 2])`",
        tuple(
            f"{_HEAD}y = f({before}{expression} {word}"
            for before in ("", "k=", "a, ")
            for expression in _EXPRESSIONS
            for word in ("a", "1", "1.5", "[", '"a"', "true")
        ),
    ),
    Advice(
        "the items of a list are separated by commas",
        "`[1, 2]`",
        tuple(
            f"{_HEAD}y = [{expression} {word}"
            for expression in _EXPRESSIONS
            for word in ("a", "1", "1.5", "[", '"a"')
        ),
    ),
    Advice(
        "an operator is missing",
        "a statement ends with its line; `@` multiplies matrices, `*` elements",
        tuple(
            sample
            for word in ("a", "1", "1.5", '"a"', "[", "weight", "const", "true")
            for sample in _after_expressions(word, *_VALUE_FRAMES)
        ),
    ),
    Advice("a statement has one `=`", "`==` compares", _after_expressions("=", *_FRAMES[:1])),
)
