"""The table of common syntax errors: broken snippets, each with advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """
    The message for a parser that stops as at the end of one of `examples`.

    Stops match if token type, parser state and previous state agree; with `anywhere`, the previous
    state is ignored.
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
        "there is no `return`",
        "the head says what a graph gives: `graph g(x: f32) -> y { y = ... }`",
        (*_in_graph("return x", "return\n", "return (", "return 1"), "def f(x) -> y {\nreturn x"),
    ),
    Advice(
        "an `if` with blocks must follow `=`",
        "`y = if c { y = a } else { y = b }`",
        (*_in_graph("if", "y = x\nif"), "def f(x) -> y {\nif", "def f(x) -> y {\nfor i in x {\nif"),
    ),
    Advice(
        "an `if` with blocks needs an `else`",
        "`y = if c { y = a } else { y = b }`, with `else` on the line of the `}`",
        _in_graph("y = if c {\ny = a\n}\n", "y = if c {\ny = a\n} }", "(y, z) = if c { }\n"),
    ),
    Advice(
        "`while` belongs to a `loop`",
        "`h = loop while error > 1e-6 with (h = x, error = inf) { ... }` repeats when the graph "
        "runs, `for i in 0..12 { ... }` writes statements out",
        (
            *_in_graph("while x", "while (", "y = x\nwhile x", "y = while x", "y = f(while x"),
            "while x",
        ),
    ),
    Advice(
        "a `loop` must follow `=`",
        "`h = loop i in 0..12 with h = x { ... }`; `for i in 0..12 { ... }` writes statements out",
        (*_in_graph("loop i", "y = x\nloop i", "loop while"), "loop i", "def f(x) -> y {\nloop i"),
    ),
    Advice(
        "a `loop` iterates over a range, rows or a condition",
        "`h = loop i in 0..12 with h = x { ... }`, `loop x in xs ...`, `loop while c ...`",
        _in_graph(
            "y = loop i {",
            "y = loop i with h",
            "y = loop i while c",
            "y = loop i =",
            "y = loop i in {",
            "y = loop i in\n",
            "y = loop i in 0..3, {",
            "y = loop i: i64 {",
        ),
    ),
    Advice(
        "the block of the `loop` is missing",
        "`h = loop i in 0..12 with h = x { ... }`, with `{` on the same line",
        _in_graph(
            "y = loop i in 0..3\n",
            "y = loop i in a\n",
            "y = loop i in 0..\n",
            "y = loop i in 0..3 with h = x\n",
            "y = loop i in 0..3 with (h = x)\n",
            "y = loop while x\n",
            "y = loop i in 0..3 -> a\n",
            "y = loop i in 0..3 -> (a)\n",
        ),
    ),
    Advice(
        "a state needs an initial value",
        "`with h = x`, `with (h = x, i = 0)`",
        _in_graph(
            "y = loop i in 0..3 with h {",
            "y = loop i in 0..3 with h\n",
            "y = loop i in 0..3 with h,",
            "y = loop i in 0..3 with (h)",
            "y = loop i in 0..3 with (h,",
            "y = loop i in 0..3 with (h = x, i)",
            "y = loop i in 0..3 with (h = )",
            "y = loop i in 0..3 with h = {",
        ),
    ),
    Advice(
        "several states need parentheses",
        "`with (h = x, i = 0)`",
        _in_graph("y = loop i in 0..3 with h = x,", "y = loop i in 0..3 with h = 0,"),
    ),
    Advice(
        "a `for` iterates over a range or a list",
        "`for i in 0..12 { ... }`, `for (c, stride) in [[64, 1], [128, 2]] { ... }`",
        _in_graph(
            "for i =",
            "for i {",
            "for i 0",
            "for i, j",
            "for {",
            "for 0",
            "for i\n",
            "for i in {",
            "for i in\n",
            "for (i, j) {",
            "for (i, j) =",
        ),
    ),
    Advice(
        "the body of the `for` is missing",
        "`for i in 0..12 { ... }`, with `{` on the same line",
        _in_graph("for i in 0..3\n", "for i in [1]\n", "for i in a\n", "for i in 0..a\n"),
    ),
    Advice(
        "a range has two ends",
        "`0..12` goes from 0 to 11",
        _in_graph("for i in 0.. {", "for i in ..", "for i in 0..\n"),
    ),
    Advice(
        "`let` is `let name = expression`",
        "`let width = 64` names what is known before the graph runs",
        ("let\n", "let x\n", "let x:", "let =", "let 1", *_in_graph("let x\n", "let x:", "let =")),
    ),
    Advice(
        "a `def` has a name, parameters and results",
        "`def dense(x: f32[N, inputs], outputs) -> y { ... }`",
        (
            "def\n",
            "def (",
            "def f {",
            "def f\n",
            "def f ->",
            "def f() {",
            "def f()\n",
            "def f():",
            "def f(x) -> {",
            "def f(x) ->\n",
            "def f(x) -> y\n",
            "def f(x):",
        ),
    ),
    Advice(
        "an import names a file",
        '`import "layers.pgraph"`, `import "layers.pgraph" (dense, attention)`',
        ("import\n", "import layers", "import (", 'import "a" ()'),
    ),
    Advice(
        "the names of an import need parentheses",
        '`import "layers.pgraph" (dense, attention)`; without a list, all that the file defines',
        ('import "a" b', 'import "a" {', 'import "a" [', 'import "a" :', 'import "a", "b"'),
    ),
    Advice(
        "there is no `from`",
        '`import "layers.pgraph" (dense, attention)`',
        ('from "a"', "from a"),
    ),
    Advice(
        "`freeze` names weights",
        '`freeze embedding, "layer0/*"`',
        _in_graph("freeze\n", "freeze 1"),
    ),
    Advice(
        "`train_only` names weights",
        '`train_only head, "layer4/*"`',
        _in_graph("train_only\n", "train_only 1"),
    ),
    Advice(
        "an annotation is a word after `@`",
        '`@ipu(1)`, `@name("conv1")`, before the annotated statement',
        ("@\n", "@1", '@"a"', *_in_graph("@\n", "@1", '@"a"', "@ =")),
    ),
    Advice(
        "a statement gives a name to a value once",
        "`y = x + 1`: there is no `+=`, and every value needs a unique name",
        _in_graph(*(f"x {symbol}" for symbol in ("+", "-", "*", "/", "@", "**", "%"))),
    ),
    Advice(
        "an index is missing",
        "`x[0]`, `x[:, 1:-1]`, `x[..., 0]`",
        _in_graph("y = x[]", "y = x[,", "y = x[0,,"),
        anywhere=True,
    ),
    Advice(
        "subscripts are separated by commas",
        "`x[0, 1:-1]`",
        tuple(
            f"{_HEAD}y = x[{before} {word}"
            for before in ("a", "1", "1:2", "1, a", "...", "_")
            for word in ("a", "1", '"a"')
        ),
    ),
    Advice(
        "`else` is missing",
        "`a if c else b`",
        _in_graph("y = a if c\n", "y = f(a if c)", "y = f(a if c,", "y = a if c + d\n"),
    ),
    Advice(
        "`|>` must be followed by a call",
        "`x |> Relu |> Conv(w)`",
        _in_graph("y = x |>\n", "y = f(x |>)", "y = x |> |>"),
        anywhere=True,
    ),
    Advice(
        "statements must be inside a graph",
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
        "a graph must list its outputs",
        "`-> y` or `-> (y, z)` before the `{`",
        ("graph g() {", "graph g()\n"),
    ),
    Advice(
        "the body of the graph is missing",
        "`{` must be on the same line as the outputs",
        (
            "graph g() -> y\n",
            "graph g() -> (y)\n",
            "graph g() -> y: f32\n",
            "graph g() -> y: f32[2]\n",
        ),
    ),
    Advice(
        "several outputs need parentheses",
        "`-> (y, z)`",
        ("graph g() -> y,", "graph g() -> y: f32,", "graph g() -> y: f32[2],"),
    ),
    Advice(
        "an operator set is named by a number",
        "`opset 21`, or `opset ai.onnx.ml 3` for another domain",
        ("opset\n", 'opset "21"', "opset ai\n", "opset 1.5", "opset ai.onnx\n", "opset -"),
    ),
    Advice(
        "this is not allowed inside a graph",
        "close the graph with `}` first",
        _in_graph("graph", "train", "opset", "y = x\ngraph", "y = x\ntrain", "y = x\nopset"),
    ),
    Advice(
        "a statement is `name = expression`",
        "give the result a name, or `_ = ...` if it is unused",
        _in_graph("y(", "1", "1.5", '"a"', "[", "f.", "-"),
    ),
    Advice(
        "expected `=` after the name",
        "a statement is `name = expression`",
        _in_graph("y f", "y 1", "y\n", "y }"),
    ),
    Advice(
        "a comparison is not a statement", "`name = expression`, with one `=`", _in_graph("y ==")
    ),
    Advice("a comment begins with `#`", "", (*_in_graph("/", "y = x\n/"), "/")),
    Advice(
        "several results need parentheses",
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
        "a shape is written in square brackets",
        "`f32[N, 3]`",
        (
            *_in_graph("y: f32(2", "y: f32 <", "weight w: f32(2", "weight w: f32(N, 3"),
            "graph g(x: f32(2",
            "graph g(x: f32(N, 3",
            "graph g(x: f32 <",
        ),
    ),
    Advice(
        "dimensions are separated by commas",
        "`f32[N, 3]`",
        tuple(
            f"graph g(x: f32[{dim} {word}" for dim in ("2", "N", "?", "2, 3") for word in ("2", "N")
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
        "`_` is only for omitted inputs and unused results",
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
            for word in ("a", "1", "1.5", '"a"', "true")
        ),
    ),
    Advice(
        "the items of a list are separated by commas",
        "`[1, 2]`",
        tuple(
            f"{_HEAD}y = [{expression} {word}"
            for expression in _EXPRESSIONS
            for word in ("a", "1", "1.5", '"a"')
        ),
    ),
    Advice(
        "an operator is missing",
        "a statement ends with its line; `@` multiplies matrices, `*` elements",
        tuple(
            sample
            for word in ("a", "1", "1.5", '"a"', "weight", "const", "true")
            for sample in _after_expressions(word, *_VALUE_FRAMES)
        ),
    ),
    Advice("a statement has one `=`", "`==` compares", _after_expressions("=", *_FRAMES[:1])),
)
