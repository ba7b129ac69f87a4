"""Tests the language service: hover, definitions, completion, warnings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Error, Keyword, Name

from popgraph.builder.pgraph.print import highlighting
from popgraph.builder.pgraph.tools.diagnostics import checked
from popgraph.builder.pgraph.tools.language_service import LanguageService

TEXT = '''let width = 3

def dense(x: f32[B, inputs], outputs) -> y {
    """All to all."""
    weight w: f32[inputs, outputs] = zeros
    y = x @ w
}

graph g(image: f32[N, 4]) -> y {
    h = dense(image, width)
    y = Softmax(h, axis=-1)
}
'''


@pytest.fixture
def assistant() -> LanguageService:
    made = LanguageService("net.pgraph")
    made.read(TEXT)
    return made


def place(word: str, nth: int = 0) -> tuple[int, int]:
    """Line and column of the middle of a word."""
    start = -1
    for _ in range(nth + 1):
        start = TEXT.index(word, start + 1)
    return TEXT.count("\n", 0, start) + 1, start - TEXT.rfind("\n", 0, start)


@pytest.mark.parametrize(
    ("word", "nth", "said"),
    [
        ("image", 0, "image: f32[N, 4]"),
        ("image", 1, "image: f32[N, 4]"),
        ("h,", 0, "h: f32[N, 3]"),
        ("width)", 0, "let width = 3"),
        ("dense", 1, "All to all."),
        ("Softmax", 0, "since opset 13"),
        ("zeros", 0, "All 0."),
        ("f32", 0, "float32"),
    ],
)
def test_hover_says_types_meanings_and_operators(
    assistant: LanguageService, word: str, nth: int, said: str
) -> None:
    assert said in assistant.hover(*place(word, nth))


def test_spaces_have_no_hover(assistant: LanguageService) -> None:
    assert assistant.hover(2, 1) == ""


@pytest.mark.parametrize(("word", "nth", "line"), [("image", 1, 9), ("dense", 1, 3), ("h,", 0, 10)])
def test_definitions_are_found(assistant: LanguageService, word: str, nth: int, line: int) -> None:
    span = assistant.definition(*place(word, nth))
    assert span is not None
    assert span.line == line


def words(assistant: LanguageService, text: str) -> set[str]:
    """The completions at `|` in a text."""
    before, _, after = text.partition("|")
    assistant.read(before + after)
    line = before.count("\n") + 1
    return {one.word for one in assistant.completions(line, len(before) - before.rfind("\n"))}


def test_completions_fit_the_context(assistant: LanguageService) -> None:
    assert {"axis=", "h", "image", "dense", "Relu"} <= words(
        assistant, TEXT.replace("axis=-1)", "|")
    )
    assert {"f32", "bf16"} <= words(assistant, TEXT.replace("image: f32", "image: |"))
    assert "he_normal" in words(assistant, TEXT.replace("= zeros", "= |"))
    assert {"ipu", "stage", "name"} <= words(assistant, TEXT.replace("    h =", "    @|\n    h ="))
    assert {"weight", "for"} <= words(assistant, TEXT.replace("    h =", "    |\n    h ="))
    assert "outputs=" in words(assistant, TEXT.replace("image, width", "image, |"))


def test_names_are_kept_while_the_text_is_broken(assistant: LanguageService) -> None:
    broken = TEXT.replace("y = Softmax(h, axis=-1)", "y = Softmax(")
    assistant.read(broken)
    assert [one.severity for one in assistant.now.diagnostics] == ["error"]
    assert "image" in {one.word for one in assistant.completions(11, 17)}


def test_unused_names_have_warnings() -> None:
    text = TEXT.replace("axis=-1)", "axis=-1)\n    const c = [1]\n    weight v: f32[1] = zeros")
    found = [(one.severity, one.message) for one in checked(text).diagnostics]
    assert found == [
        ("warning", "nothing uses the constant `c`"),
        ("warning", "nothing uses the weight `v`"),
    ]


def test_underscore_marks_unused_results() -> None:
    text = (
        "def f(x) -> (y, z) {\n    y = x * 2\n    z = x * 3\n}\n"
        "graph g(x: f32[2]) -> (a, d) {\n    (y, mask) = Dropout(x)\n    (a, _) = f(y)\n"
        "    (d, e) = if ReduceSum(a, keepdims=0) > 0 {\n        d = a\n        e = a\n"
        "    } else {\n        d = y\n        e = y\n    }\n}\n"
    )
    found = [(one.message, one.hint) for one in checked(text).diagnostics]
    hint = "write `_` in its place, or make it an output"
    assert found == [
        ("nothing uses the result `mask`", hint),
        ("nothing uses the result `e`", hint),
    ]
    for unused, wanted in (("mask", "_"), ("e)", "_)"), ("        e = a\n", ""), ("e = y", "")):
        text = text.replace(unused, wanted)
    assert checked(text).diagnostics == ()


def test_names_used_by_loops_and_calls_have_no_warning() -> None:
    text = (
        "def f(x, a) -> y {\n    y = x * a\n}\n"
        "graph g(x: f32[2]) -> y {\n    for i in 0..3 {\n        x = f(x, i)\n    }\n"
        "    y = if ReduceSum(x, keepdims=0) > 0 { y = x } else { y = -x }\n}\n"
    )
    assert checked(text).diagnostics == ()


def test_pygments_highlights_the_language() -> None:
    lexer = get_lexer_by_name("pgraph")
    found = list(lexer.get_tokens(TEXT))
    assert not [value for kind, value in found if kind is Error]
    assert (Keyword.Declaration, "def") in found
    assert (Keyword.Type, "f32") in found
    assert (Name.Function, "Softmax") in found


def test_the_grammar_for_editors_is_up_to_date() -> None:
    path = Path(highlighting.__file__).with_name("pgraph.tmLanguage.json")
    assert path.read_text() == highlighting.textmate()
    assert json.loads(path.read_text())["scopeName"] == "source.pgraph"
