"""Tests that the formatter keeps meaning and comments, and is idempotent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.builder.pgraph.syntax import tree
from popgraph.builder.pgraph.syntax.parser import language, parse_file
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.support.errors import ParseError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.pgraph"))

TEXT = '''"""About all.

    Second paragraph."""
opset 21
let width = 0x40
import "layers.pgraph" (dense, norm)
function my.own.F(x, y=1.0, *, alpha, beta=2) -> (z, `a b`) {
    """About F."""
    opset 20
    z = x * y
    `a b` = z
}
def block(x: f32[N, D], width, act=Relu) -> y {
    weight w: f32[D, 2 * width] = normal(std=1e-3)
    y = act(x @ w) |> Reshape([0, -1]) if width > 3 and not false else x[:, 0, ..., ::-2, _]
}
@ir_version(8) @producer("me", "1.0")
graph g(x: f32[N, width], s: sequence(f32[?]), m: map(i64, string)) -> (y: f32[N, 4], z) {
    for (i, c) in [[1, 2], [3, 4]] {
        x = block(x, c)
    }
    @ipu(0) @stage(1) {
        h = -x ** 2 % 3 @ x
    }
    y = if ReduceSum(h) > 0 {
        y = h
    } else {
        y = h - 1
    }
    @recompute
    (_, z) = Loop(4, true, y, body=graph (i: i64, go: bool, v: f32[N, 4]) -> (go, w) {
        w = v + 1
    })
}
train g (labels: i32[N]) {
    freeze x, "layer0/*"
    train_only y, "layer1/*"
    loss = nll(y, labels)
    optimizer = SGD(0.1)
}
'''


def placeless(node: object) -> object:
    """A tree without source spans, for comparison."""
    if isinstance(node, tuple):
        return [placeless(item) for item in node]
    if isinstance(node, tree.Node):
        values = {key: placeless(value) for key, value in vars(node).items() if key != "span"}
        return type(node), values
    return node


def meaning(text: str) -> object:
    return placeless(parse_file(Source(text, "t")))


def test_formatting_keeps_meaning_and_is_idempotent() -> None:
    once = format_text(TEXT)
    assert meaning(once) == meaning(TEXT)
    assert format_text(once) == once


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_formatted(path: Path) -> None:
    text = path.read_text()
    assert format_text(text) == text


def test_comments_and_spellings_of_numbers_are_kept() -> None:
    text = (
        "# top\nlet a=0x10   # ten\n\n\n\nlet b = 1e-3\ngraph g( x:f32[N,3] ,) -> y {# open\n"
        "  # why\n  y=x*a+b   # how\n\n\n  # end\n\n}\n# last"
    )
    assert format_text(text) == (
        "# top\nlet a = 0x10  # ten\n\nlet b = 1e-3\n\ngraph g(x: f32[N, 3]) -> y {  # open\n"
        "    # why\n    y = x * a + b  # how\n\n    # end\n}\n\n# last\n"
    )


def test_lines_with_comments_between_their_words_stay_as_they_are() -> None:
    text = (
        "graph g(\n    x: f32[2],   # left\n    z: f32[2],   # right\n) -> y {\n"
        "      y = Add(x,   # one\n              z)\n}\n"
    )
    assert format_text(text) == text.replace("      y = Add(x,", "    y = Add(x,").replace(
        "              z)", "            z)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "{ y = Neg(\n# a\n(x)) }",
        "@ipu(0) { let a = [\n# a\n1] } # b",
        "{ for i in [\n# a\n1] { } }",
    ],
)
def test_a_statement_kept_for_its_comments_leaves_out_the_braces_around_it(line: str) -> None:
    text = f"graph g(x: f32[2]) -> y {{\n{line}\n}}"
    once = format_text(text)
    assert meaning(once) == meaning(text)
    assert _comments(once) == _comments(text)
    assert format_text(once) == once


@pytest.mark.parametrize(
    ("written", "doc"),
    [("\n a\n   b", "a\n  b"), ("\n  a\n b", " a\nb"), ('a"" ', 'a""'), ("a \n b ", "a\nb")],
)
def test_a_doc_string_keeps_its_indentation_and_quotes(written: str, doc: str) -> None:
    text = f'"""{written}"""\ngraph g(x: f32[2]) -> y {{\n"""{written}"""\ny = x\n}}'
    once = format_text(text)
    assert parse_file(Source(text, "t")).doc == doc
    assert meaning(once) == meaning(text)
    assert format_text(once) == once


def test_a_doc_string_inside_unchanged_lines_keeps_its_indentation() -> None:
    text = '  def f(  # p\n) -> x { """\na\n    b"""\n}\n'
    once = format_text(text)
    assert meaning(once) == meaning(text)
    assert format_text(once) == once


def test_malformed_text_is_refused() -> None:
    with pytest.raises(ParseError):
        format_text("graph g(x: f32[2]) -> y {\n    y = = x\n}")


WORDS = [token for token in language().lex(TEXT) if token.type != "_NEWLINE"]
LINES = sorted({token.end_line for token in WORDS if token.type != "DOC"})


def commented(lines: list[int], own: bool) -> str:
    """The text with a comment at the end of some lines, or on lines of their own after them."""
    inside_doc = {2}
    found = TEXT.split("\n")
    for number in sorted(set(lines) - inside_doc, reverse=True):
        mark = f"# {number}"
        if own:
            found.insert(number, mark)
        else:
            found[number - 1] += f" {mark}"
    return "\n".join(found)


@given(st.lists(st.sampled_from(LINES), max_size=8), st.booleans())
def test_no_comment_is_lost(lines: list[int], own: bool) -> None:
    text = commented(lines, own)
    once = format_text(text)
    assert meaning(once) == meaning(text)
    assert sorted(_comments(once)) == sorted(_comments(text))
    assert format_text(once) == once


def _comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.split("\n") if "#" in line]
