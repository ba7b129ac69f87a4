"""Tests that deeply nested IR text is refused with an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from popgraph.compiler import lower, parse_ir
from popgraph.dialects.text import DEEPEST, deepest
from popgraph.passes.base import Compilation
from popgraph.support.errors import ParseError

TEXTS: dict[str, Callable[[int], str]] = {
    "modules": lambda n: "builtin.module {\n" * n + "}\n" * n,
    "branches": lambda n: (
        "module { func.func @f(%c: i1) {\n" + "scf.if %c {\n" * n + "}\n" * n + "func.return }\n}\n"
    ),
    "arrays": lambda n: attribute("[" * n + "]" * n),
    "dictionaries": lambda n: attribute("{a = " * n + "1" + "}" * n),
    "types": lambda n: attribute("tuple<" * n + "i32" + ">" * n),
    "sequences": lambda n: attribute("!onnx.seq<" * n + "tensor<f32>" + ">" * n),
    "parentheses": lambda n: attribute(affine("(" * n + "d0" + ")" * n)),
    "negations": lambda n: attribute(affine("-" * n + "d0")),
    "a sum": lambda n: attribute(affine(" +\n".join(["d0 floordiv 2"] * n))),
    "divisions": lambda n: attribute(affine("d0" + " floordiv 3 mod 7" * n)),
    "numbers": lambda n: attribute("dense<" + "[" * n + "1" + "]" * n + "> : tensor<1xi32>"),
    "places": lambda n: "module {} loc(" + 'callsite("a":1:1 at ' * n + "unknown" + ")" * n + ")",
}


def attribute(text: str) -> str:
    return f"module attributes {{a = {text}}} {{}}"


def affine(text: str) -> str:
    return f"affine_map<(d0) -> ({text})>"


@pytest.mark.parametrize("count", [DEEPEST + 1, 30_000])
@pytest.mark.parametrize("kind", TEXTS)
def test_deeply_nested_ir_is_refused(kind: str, count: int) -> None:
    with pytest.raises(ParseError, match=rf"nested more than {DEEPEST} levels deep"):
        parse_ir(TEXTS[kind](count), Compilation())


@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind != "numbers"])
def test_the_deepest_accepted_ir_compiles(kind: str) -> None:
    """The deepest accepted text can be compiled and printed."""
    text = next(
        text for n in range(DEEPEST, 0, -1) if deepest(text := TEXTS[kind](n))[0] <= DEEPEST
    )
    compilation = Compilation()
    module = parse_ir(text, compilation)
    lower(module, compilation)
    assert str(module)


def test_depth_of_brackets() -> None:
    assert deepest("") == (0, 1)
    assert deepest("(a,\n[b])") == (2, 2)
    assert deepest('"((((" // ((((\n(a) -> (b >= 1)') == (1, 2)
    assert deepest("(a + b + c, d)") == (3, 1)
    assert deepest("(a + b)(c + d)\n(e)") == (2, 1)
    assert deepest("x = -1 : i32\n" * 500) == (1, 1)
    assert deepest("))))(") == (1, 1)
