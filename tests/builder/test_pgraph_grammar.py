"""Fuzzes texts that the grammar generates: parse, format, print and lower."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from hypothesis.strategies import SearchStrategy

from popgraph import Options
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import Document, parse, text_of
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.builder.pgraph.syntax.parser import built, parse_file
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.compiler import lower
from popgraph.passes.base import Compilation
from popgraph.support.errors import ErrorGroup, PopgraphError
from popgraph.testing import model_difference
from tests.sampling import examples

ANY = {
    "NAME": "x y c w i f Relu Add Concat Dropout Cast axis to f32 i64 N zeros name ipu SGD nll loss"
    " optimizer ReduceSum load tensor graphcore sequence",
    "QUOTED": r"`a` `graph` `\``",
    "INT": f"0 1 2 3 21 0x10 {'7' * 40}",
    "FLOAT": "0.5 1e3 1. 1e999 .25",
    "STRING": r'"" "f32" "a*" "\n\"" "é"',
    "BYTES": r'b"" b"a\x00" b"é"',
    "COMPARISON": "== != < <= > >=",
    "LOOP": "loop",
    "WHILE": "while",
    "WITH": "with",
}
"""Words of the terminals that have a choice or a context, separated by spaces."""
FEW = {
    **ANY,
    "NAME": " ".join(["x"] * 9) + " w c Relu Neg Add ReduceSum Concat axis f32",
    "QUOTED": "`x`",
    "INT": "0 1 2",
    "FLOAT": "0.5",
    "STRING": '"f32"',
}
"""Words that often make well-typed expressions."""
GAPS = {
    "DOC": ['"""d"""', '"""\n  a\n b """', '"""a"" """', '"""\na\n    b"""'],
    "_NEWLINE": ["\n", "  # c\n", "\n\n  # d\n"],
    "LPAR": ["("] * 6 + ["(  # p\n"],
    "LSQB": ["["] * 6 + ["[  # s\n"],
    "__IGNORE_0": ["\t"],
    "__IGNORE_1": [""],  # a comment anywhere would end the line
}
"""Terminals that may contain spaces or line ends."""
LEAVES = 24
"""Weight of an expansion to a single terminal: without it, texts have no expected end."""


class Short:
    """A compiled grammar in which expansions to a single terminal are more likely."""

    def __init__(self, grammar: Any) -> None:
        self.grammar = grammar

    def compile(self, start: Sequence[str], terminals_to_keep: Any) -> Any:
        terminals, rules, ignored = self.grammar.compile(start, terminals_to_keep)
        least: dict[str, int] = {}

        def words(rule: Any) -> int:
            return sum(1 if one.is_term else least.get(one.name, 99) for one in rule.expansion)

        for _ in range(20):  # deeper than any chain of rules
            least = {
                name: min(words(rule) for rule in rules if rule.origin.name == name)
                for name in {rule.origin.name for rule in rules}
            }
        leaves = [rule for rule in rules if words(rule) <= 1]
        return terminals, rules + leaves * (LEAVES - 1), ignored


GRAMMAR = built()
GRAMMAR.grammar = Short(GRAMMAR.grammar)  # type: ignore[assignment]


def texts_of(start: str, words: dict[str, str]) -> SearchStrategy[str]:
    """Texts of a rule; tokens are separated by spaces. The grammar is read at the first example."""
    return st.deferred(lambda: _texts_of(start, words))


def _texts_of(start: str, words: dict[str, str]) -> SearchStrategy[str]:
    terminals, _, _ = GRAMMAR.grammar.compile([start], ())
    explicit = {}
    for terminal in terminals:
        name, pattern = terminal.name, terminal.pattern.to_regexp()
        plain = words[name].split() if name in words else [re.sub(r"\\(.)", r"\1", pattern)]
        found = GAPS.get(name, [f"{word} " for word in plain])
        # after `while`, only a minus without a space begins a value
        explicit[name] = st.sampled_from(["-"] if name == "MINUS" else found)
    return from_lark(GRAMMAR, start=start, explicit=explicit)


HEAD = "graph g(x: f32[2], c: bool) -> y {\n    weight w: f32[2] = zeros\n"
statements = st.lists(texts_of("statement", ANY), min_size=1, max_size=3).map("\n".join)
graphs = statements.map(lambda lines: f"{HEAD}{lines}\ny = x\n}}\n")
trained = statements.map(lambda lines: f"{HEAD}y = x\n}}\ntrain (l: i64[2]) {{\n{lines}\n}}\n")
expressions = texts_of("expression", FEW).map(lambda one: f"{HEAD}y = ({one})\n}}\n")
texts = st.one_of(texts_of("file", ANY), graphs, trained, expressions, expressions)


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(texts)
def test_texts_of_the_grammar(text: str) -> None:
    """Each is formatted, or refused where its words depend on the context; then compiled or not."""
    meaning = accepted(text)
    if meaning is None:
        return
    once = format_text(text)
    assert accepted(once) == meaning, "formatting keeps the meaning"
    assert format_text(once) == once, "formatting twice changes nothing"
    try:
        document = parse(text)
    except PopgraphError as error:
        assert_located(error)
        return
    if document.graphs:
        assert_prints(document)
        assert_lowers(document)


def accepted(text: str) -> str | None:
    """The tree of a text without its positions; None if it is refused."""
    try:
        return re.sub(r"span=Span\([^)]*\)", "", repr(parse_file(Source(text, "t"))))
    except PopgraphError as error:
        assert_located(error)
        return None


def assert_located(error: PopgraphError) -> None:
    for one in error.errors if isinstance(error, ErrorGroup) else [error]:
        assert one.what
        assert re.search(r":\d+:\d+$", one.where.split("\n")[0]), one.where


def assert_prints(document: Document) -> None:
    """The text of the compiled module is a fixpoint, and its model is the same."""
    text = text_of(document.module, document.weights)
    again = parse(text)
    assert text_of(again.module, again.weights) == text
    model = export_model(document.module, document.weights)
    assert model_difference(model, export_model(again.module, again.weights)) == "", text


def assert_lowers(document: Document) -> None:
    try:
        lower(document.module, Compilation(document.weights), Options(), level="graphcore")
    except PopgraphError as error:
        assert error.what
