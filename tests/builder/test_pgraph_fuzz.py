"""Fuzzes `.pgraph` texts: each compiles or ends in an error, in linear time."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popgraph.builder.pgraph import parse
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.builder.pgraph.syntax.parser import language
from popgraph.builder.pgraph.tools.diagnostics import checked
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError

TEXT = """opset 21
let width = 3
def dense(x: f32[B, inputs], outputs, act=Relu) -> y {
    weight w: f32[inputs, outputs] = normal(std=0.1, seed=1)
    y = act(x @ w) if outputs > 2 else x @ w
}
graph g(x: f32[N, 4], c: bool) -> (y: f32[N, 3], z, rows, q) {
    for i in 0..2 {
        @ipu(1) x = x + dense(x, 4)
    }
    y = x |> dense(width) |> Softmax(axis=-1)
    z = if c {
        z = y[:, 0, _]
    } else {
        (z, _) = Dropout(-y[..., 1:2], _, false)
    }
    (h, rows) = loop i in 0.., row in x with h: f32[4] = x[0] {
        h = h + row
        rows = h * 2
    }
    (_, k) = loop i in 0..3 while on with (on = true, k = h) -> turn(go, new: f32[4]) {
        go = k[0] < 9
        new = k + Cast(i, to=f32)
    }
    q = loop while q < 1 with q = k[0] {
        q = if c -> a {
            a = q + 1
        } else -> no(b) {
            b = q + 2
        }
    }
}
train (labels: i32[N]) {
    loss = nll(y, labels)
    optimizer = SGD(0.1, momentum=0.9)
}
"""
WORDS = sorted({str(token) for token in language().lex(TEXT) if token.type != "_NEWLINE"})
EXTRA = ["\n", "{", "}", "(", ")", "[", "]", '"', '"""', "#", "|>", "..", "é", "\0", "1e999", "`"]

places = st.integers(0, len(TEXT))
changes = st.lists(
    st.tuples(places, st.integers(0, 12), st.sampled_from(["", *WORDS, *EXTRA])),
    min_size=1,
    max_size=4,
)


def changed(edits: list[tuple[int, int, str]]) -> str:
    """The text with some spans replaced by words of the language."""
    text = TEXT
    for place, length, word in edits:
        text = f"{text[:place]}{word}{text[place + length :]}"
    return text


@given(changes)
def test_a_changed_text_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = changed(edits)
    found = checked(text)
    errors = [one for one in found.diagnostics if one.severity == "error"]
    assert (found.document is None) == bool(errors)
    try:
        parse(text)
    except PopgraphError as error:
        assert errors
        for one in error.errors if isinstance(error, ErrorGroup) else [error]:
            assert type(one) in (ParseError, TypeMismatchError)
            assert one.what
            assert one.where.startswith("<text>")
    else:
        assert not errors
        assert parse(format_text(text))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(PopgraphError):
        parse(text)


def test_the_original_text_is_valid() -> None:
    assert not checked(TEXT).diagnostics


def chain(length: int) -> str:
    lines = "".join(f"    v{i + 1} = Relu(v{i})\n" for i in range(length))
    return f"graph g(x: f32[2]) -> v{length} {{\n    v0 = x\n{lines}}}\n"


def test_ten_thousand_lines_are_read() -> None:
    assert len(list(parse(chain(10_000)).module.walk())) > 10_000


def test_parsing_takes_linear_time() -> None:
    """Counts function calls, including C functions, since times vary between runs."""

    def calls(text: str) -> int:
        count, before = 0, sys.getprofile()

        def counted(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            parse(text)
        finally:
            sys.setprofile(before)
        return count

    parse(chain(10))  # Fills the caches.
    assert 1.8 < calls(chain(1000)) / calls(chain(500)) < 2.2
