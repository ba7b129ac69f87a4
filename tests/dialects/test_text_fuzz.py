"""Fuzzes IR text of every level: damaged text ends in a PopgraphError, in bounded time."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from typer.testing import CliRunner
from xdsl.utils.exceptions import ParseError as IRParseError
from xdsl.utils.exceptions import VerifyException

from popgraph import Options
from popgraph.builder import pgraph
from popgraph.cli import app
from popgraph.compiler import lower, parse_ir
from popgraph.dialects.levels import LEVELS, ONNX
from popgraph.passes.base import Compilation
from popgraph.support.errors import ParseError, PopgraphError
from popgraph.training.task import task_of
from tests.judging import in_time

LONG = settings().max_examples > 20
CHARACTERS = 25_000_000 if LONG else 25_000
"""Characters parsed per text over all mutants: few in every run, many in `make fuzz`."""

MODELS = {
    "control": """opset 21
graph g(x: f32[3, 2], c: bool[]) -> (y: f32[3, 2], z: f32[3, 2]) {
    weight w: f32[2, 2] = [[1.0, 2.0], [0.5, -3.0]]
    h = if c { h = x @ w } else { h = Relu(x) }
    y = Loop(3, true, h, body=graph (i: i64, go: bool, v: f32[3, 2]) -> (go, u) {
        u = v + Cast(i, to=f32) })
    z = Softmax(y, axis=-1)
}
""",
    "training": """opset 21
graph g(x: f32[4, 3]) -> (y: f32[4, 2]) {
    weight w: f32[3, 2] = normal(seed=1)
    weight b: f32[2] = zeros
    y = LogSoftmax(x @ w + b)
}
train (labels: i32[4]) {
    loss = nll(y, labels)
    optimizer = SGD(0.1)
}
""",
    "quantized": """opset 21
graph g(x: f32[1, 2, 4, 4]) -> (y: f32[1, 2, 4, 4]) {
    weight w: i8[2, 2, 3, 3] = constant(3)
    const scale = f32(0.5)
    q = DequantizeLinear(QuantizeLinear(x, scale, u8(128)), scale, u8(128))
    y = Conv(q, DequantizeLinear(w, scale, i8(0)), pads=[1, 1, 1, 1])
}
""",
    "described": """opset 21
opset ai.onnx.ml 3
opset com.example 2
@doc("a") graph g(x: f32[N, 4], s: string[2]) -> (y: f32[N, 4], t: string[3]) {
    weight k: f32[3, 4] = sparse(f32([0.5, 1.5]), i64([[0, 1], [2, 3]]))
    const more: string[1] = ["caf\\u00e9"]
    t = Concat(s, more, axis=0)
    @name("n") h = my.f(x, alpha=0.5)
    u = com.example.Odd(h, _, mode="a", rate=0.25, sizes=[1, 2], rates=[0.5, inf])
    v = ai.onnx.ml.Scaler(h, offset=[0.5, 1.0, 2.0, nan], scale=[1.5])
    y = h + u + v + ReduceSum(k)
}
function my.f(x, *, alpha=1.0) -> (y) { opset 21
    y = LeakyRelu(x, alpha=alpha)
}
""",
}


@cache
def texts(level: str) -> dict[str, str]:
    """The models that exist at a level, as text."""
    return {name: text_of(name, level) for name in MODELS if level == ONNX or name != "described"}


def text_of(name: str, level: str) -> str:
    document = pgraph.parse(MODELS[name])
    module, weights, options = document.module, document.weights, Options()
    task = task_of(document)
    if task is not None:
        module, weights, options = task.module, task.weights, Options(training=task.training)
    if level == ONNX:
        return str(module)
    return str(lower(module, Compilation(weights), options, level=level))


TOKEN = re.compile(r'"[^"\n]*"|[#!%@^]?[\w$.]+|->|\s+|.')
PIECES = [
    *('"', '"a', '\\"', "\\", '"\\q"', '"%ff"', '""', "//", "\n", "\0", "é", "²", "\udc80", "'"),
    *("-", "->", ":", ",", "=", "(", ")", "<", ">", "[", "]", "{", "}", "...", "/", "?", "|", "*"),
    *("0", "-1", "1", "7", "4096", "99999999999999999999", "1" * 5000, "0x7ff", "1e999", "1.5"),
    *("true", "unit", "none", "f32", "i64", "i0", "index", "tensor<2xf32>", "tensor<*xf32>", "?x"),
    *("()", "[]", "{}", "tensor<99999999999x99999999xf32>", "memref<4xf32>", "vector<4xf32>"),
    *(
        "dense<1.0> : tensor<4xf32>",
        "affine_map<(d0) -> (d0 floordiv 0)>",
        "%0",
        "%x",
        "@f",
        "^bb0",
    ),
    *("#onnx.floats<>", '#pg.data<"00" : tensor<1xf32>>', '#pg.blob<"k" : tensor<1xf32>>'),
    *(
        "!onnx.string",
        "!onnx.seq<f32>",
        '#onnx.dims<["N"]>',
        "onnx.Yield",
        "pg.yield",
        "loc(unknown)",
    ),
]


def mutant(text: str, random: Random) -> str:
    """The text with tokens dropped, repeated, swapped, replaced or cut off."""
    tokens = TOKEN.findall(text)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = [at for at, token in enumerate(tokens) if not token.isspace()]
        if not places:
            break
        at, other = random.choice(places), random.choice(places)
        match random.randrange(8):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            # By a token of the same kind, so that more mutants parse and reach the verifiers.
            case 3 | 4:
                alike = [one for one in {*tokens, *PIECES} if kind(one) == kind(tokens[at])]
                tokens[at] = random.choice(sorted(alike))
            case 5:
                tokens[at] = random.choice(PIECES)
            case 6:
                tokens.insert(at, random.choice(PIECES))
            case _:
                del tokens[at : at + random.randrange(1, 12)]
    return "".join(tokens)


def kind(token: str) -> str:
    """The kind of a token: number, word, or its first character."""
    first = token[:1]
    return "0" if first.isdigit() else "a" if first.isalpha() else first


def read(text: str) -> None:
    """Parses a text and prints the module; a long run also lowers it."""
    compilation = Compilation()
    try:
        module = parse_ir(text, compilation)
    except ParseError as error:
        assert str(error).encode("utf-8", "backslashreplace")
        check_cause(error)
        return
    assert str(module)
    if LONG:
        with suppress(PopgraphError):
            lower(module, compilation)


def check_cause(error: ParseError) -> None:
    """Errors of our own dialects must be ours; only code of xDSL may raise others."""
    cause = error.__cause__
    known = IRParseError | VerifyException | PopgraphError | RecursionError
    if cause is None or isinstance(cause, known):
        return
    *_, last = traceback.extract_tb(cause.__traceback__)
    assert "popgraph" not in last.filename.split("site-packages")[-1], error


@pytest.mark.parametrize("level", LEVELS)
def test_fuzz_of_ir_texts(level: str) -> None:
    for name, text in texts(level).items():
        read(text)
        for number in range(CHARACTERS // len(text) + 1):
            random = Random(f"{level} {name} {number}")
            with in_time():
                read(mutant(text, random))


@pytest.mark.parametrize("level", LEVELS)
def test_fuzz_of_quotes_and_truncation(level: str) -> None:
    """Inserts a quote or an escape, or ends the text, at random positions."""
    for text in texts(level).values():
        random = Random(level)
        for _ in range(CHARACTERS // len(text) // 3 + 1):
            at = random.randrange(len(text))
            for damaged in (text[:at], text[:at] + '"' + text[at:], text[:at] + "\\" + text[at:]):
                with in_time():
                    read(damaged)


LENGTH = 100_000
"""Characters of a line: xDSL's lexer would backtrack 2^LENGTH times, a quadratic one 10^10."""
STRINGS: dict[str, tuple[str, str]] = {
    "an unclosed string": ('"' + "a" * LENGTH, "line 2, column 13"),
    "one that ends in an escape": ('"' + "a" * LENGTH + '\\"', "line 2, column 13"),
    "an unknown escape": ('"' + "a" * LENGTH + '\\q"', "line 2, column 13"),
    "a vertical tab": ('"' + "a" * LENGTH + '\v"', "line 2, column 13"),
    "many escapes": ('"' + "\\n" * LENGTH, "line 2, column 13"),
    "many quotes": ('"' * LENGTH + "\n" + '"' * (LENGTH + 1), f"line 3, column {LENGTH + 1}"),
    "a symbol": ('@"' + "a" * LENGTH, "line 2, column 14"),
}


@pytest.mark.parametrize("kind", STRINGS)
def test_unterminated_strings_are_refused(kind: str) -> None:
    line, place = STRINGS[kind]
    text = f"builtin.module {{\n{' ' * 12}{line}\n}}\n"
    with in_time(), pytest.raises(ParseError, match="a string literal does not end") as caught:
        parse_ir(text, Compilation(), "a.mlir")
    assert caught.value.where == f"a.mlir, {place}"


def test_quotes_in_strings_and_comments() -> None:
    text = """module attributes {a = "// \\\\", b = "\\22 \\" /", c = "é"} { // "an open one
    } // and another "
    """
    assert parse_ir(text, Compilation())


DOORS: dict[str, Callable[[str], list[str]]] = {
    "opt": lambda path: ["opt", path, "-p", "canonicalize"],
    "print": lambda path: ["print", path],
    "run": lambda path: ["run", path, "--random"],
    "info": lambda path: ["info", path],
    "emit": lambda path: ["emit", path, "-o", "out"],
}


@pytest.mark.parametrize("door", DOORS)
def test_commands_refuse_unterminated_strings(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text('builtin.module {\n  "' + "a" * LENGTH + "\n}\n")
    with in_time():
        result = CliRunner().invoke(app, DOORS[door](str(path)))
    assert result.exit_code == 1 and "a string literal does not end" in result.output


NODE = """builtin.module {{
  onnx.Model {{ir_version = 10 : i64, opsets = [#onnx.opset<"", 20>]}} {{
    onnx.Graph "g" inputs ("x" : tensor<4xf32>) outputs ("y" : tensor<4xf32>) {{
    ^bb0(%x: tensor<4xf32>):
      {}
      onnx.Yield %y : tensor<4xf32>
    }}
  }}
}}
"""
TYPE = "tensor<4xf32>"
MISTAKES = {
    f'%y = onnx.Relu.v14(%x) -> ["y"] {TYPE}': "0 result types for 1 named outputs",
    f'%y = onnx.Relu.v14(%x) -> ["y"] : {TYPE}, {TYPE}': "2 result types for 1 named outputs",
    f'%y = onnx.Custom "a" "B" (%x) -> ["y"] {TYPE}': "0 result types for 1 named outputs",
    f'%y = onnx.If.v19(%x) -> ["y"] : {TYPE}': "expected the graph else_branch",
    f'%y = onnx.If.v19(%x) else_branch = {{}} -> ["y"] : {TYPE}': "a region with one onnx.Graph",
    f'%y = onnx.Elu.v6(%x) {{alpha = ""}} -> ["y"] : {TYPE}': "expected one number, not 0",
    f'%y = onnx.Elu.v6(%x) {{alpha = "nan:fffffffff"}} -> ["y"] : {TYPE}': "expected numbers",
    f'%y = onnx.Custom "%ff" "B" (%x) -> ["y"] : {TYPE}': "is not UTF-8",
    f'%y = onnx.Relu.v14(%x) -> ["%ff"] : {TYPE}': "is not UTF-8",
    f'%y = onnx.Initializer "y" #onnx.tensor<#pg.data<"0" : {TYPE}>>': "pairs of hexadecimal",
    f'%y = onnx.Initializer "y" #onnx.tensor<#pg.data<"00" : {TYPE}>>': "1 bytes are not the elem",
    '%y = onnx.Initializer "y" #onnx.tensor<"00">': "cannot be the elements of a tensor",
}


ORDERS = {
    "a cycle": "%1 = arith.addf %2, %2 : f32\n%2 = arith.addf %1, %1 : f32",
    "a value of another region": """scf.if %c {
        %1 = arith.constant 1.0 : f32 }
    scf.if %c {
        %2 = arith.addf %1, %1 : f32 }""",
}


@pytest.mark.parametrize("kind", ORDERS)
def test_values_used_before_their_definition_are_refused(kind: str) -> None:
    text = f"func.func @f(%c: i1) {{\n{ORDERS[kind]}\nfunc.return }}"
    with pytest.raises(ParseError, match=r"addf uses operand 0 before it is defined|not defined"):
        parse_ir(text, Compilation())


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_in_nodes_are_named(line: str) -> None:
    assert parse_ir(NODE.format(f'%y = onnx.Relu.v14(%x) -> ["y"] : {TYPE}'), Compilation())
    with pytest.raises(ParseError, match=MISTAKES[line]):
        parse_ir(NODE.format(line), Compilation())
