"""Tests the exact messages for errors in `.pgraph` texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from popgraph.builder.pgraph import parse
from popgraph.builder.pgraph.syntax import advice, mistakes
from popgraph.builder.pgraph.syntax.parser import language
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError

CASES = Path(__file__).with_name("test_pgraph_errors.txt")
"""Each case is `===== its name`, a text, `-----` and the message; `pytest --bless` rewrites."""


def cases() -> list[tuple[str, str, str]]:
    found = []
    for block in CASES.read_text().split("===== ")[1:]:
        name, _, rest = block.partition("\n")
        text, _, message = rest.partition("-----\n")
        found.append((name, text, message))
    return found


def message_of(text: str) -> str:
    with pytest.raises(PopgraphError) as raised:
        parse(text, "bad.pgraph")
    return f"{type(raised.value).__name__}\n{raised.value}\n"


@pytest.mark.parametrize(("name", "text", "message"), cases(), ids=[case[0] for case in cases()])
def test_error_messages_are_exact(
    name: str, text: str, message: str, request: pytest.FixtureRequest
) -> None:
    found = message_of(text)
    if request.config.getoption("--bless", default=False) and found != message:
        written = CASES.read_text()
        head = f"===== {name}\n{text}-----\n"
        CASES.write_text(written.replace(head + message, head + found))
        return
    assert found == message


def test_there_are_many_cases_of_both_kinds() -> None:
    kinds = [message.partition("\n")[0] for _, _, message in cases()]
    assert len(kinds) >= 60
    assert {"ParseError", "TypeMismatchError", "ErrorGroup"} == set(kinds)


@pytest.mark.parametrize("known", mistakes.TABLE, ids=lambda known: known.what)
def test_every_example_of_the_table_is_broken(known: mistakes.Advice) -> None:
    for example in known.examples:
        advice.stuck(language(), example)


def test_errors_are_in_the_order_of_the_text() -> None:
    text = "graph g(x: f32[2]) -> y {\n    y = Relu(a)\n    z = Foo(x)\n    q = x + b\n}"
    with pytest.raises(ErrorGroup) as raised:
        parse(text, "bad.pgraph")
    lines = [error.where.split(":")[1] for error in raised.value.errors]
    assert lines == ["2", "3", "4"]
    assert all(isinstance(error, ParseError) for error in raised.value.errors)


def test_consequential_errors_are_not_reported() -> None:
    text = "graph g(x: f32[2]) -> y {\n    a = Rellu(x)\n    b = a + a\n    y = b * x\n}"
    with pytest.raises(ParseError, match="Rellu"):
        parse(text)


def test_a_shape_error_is_a_type_mismatch() -> None:
    with pytest.raises(TypeMismatchError) as raised:
        parse("graph g(a: f32[2], b: f32[3]) -> y {\n    y = a + b\n}", "m.pgraph")
    assert raised.value.where.startswith("m.pgraph:2:11\n")


def in_graph(statement: str) -> str:
    return f"graph g(x: f32[2]) -> y {{\n    {statement}\n}}"


HOSTILE = {
    "minus": in_graph("y = " + "-" * 5000 + "x"),
    "powers": in_graph("y = x" + " ** x" * 5000),
    "parentheses": in_graph("y = " + "(" * 9000 + "x"),
    "brackets": in_graph("y = " + "[" * 9000),
    "deep list": in_graph("y = " + "[" * 900 + "1" + "]" * 900),
    "deep call": in_graph("y = " + "f(" * 3000 + ")" * 3000),
    "huge dimension": "graph g(x: f32[99999999999999999999]) -> y {\n    y = x\n}",
    "huge weight": in_graph("weight y: f32[99999999999] = zeros"),
    "huge number": in_graph("y = x + " + "9" * 6000),
    "nul": "\0",
    "unicode": "graph \ud7ff",
    "byte order mark": "\ufeff",
    "braces": "{" * 3000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_end_in_an_error(text: str) -> None:
    with pytest.raises(PopgraphError):
        parse(text)
