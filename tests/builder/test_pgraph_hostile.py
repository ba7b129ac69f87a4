"""Tests hostile texts: unbounded expansion, deep nesting, damaged files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popgraph import Options
from popgraph.builder import pgraph
from popgraph.builder.budget import TEXTS, factor
from popgraph.builder.pgraph import parse
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.builder.pgraph.tools.language_service import LanguageService
from popgraph.compiler import lower
from popgraph.passes.base import Compilation
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError

SECONDS = 10
"""CPU time that a text may take."""


def in_graph(*lines: str) -> str:
    return "graph g(x: f32[4]) -> y {\n" + "\n".join(lines) + "\ny = x\n}\n"


def templates(count: int, call: str) -> str:
    """A chain of `count` templates: each calls the previous one through `call`."""
    head = "def f0(x: f32[N]) -> y { y = Relu(x) }\n"
    bodies = (
        f"def f{i}(x: f32[N]) -> y {{ y = {call.format(f'f{i - 1}')} }}\n" for i in range(1, count)
    )
    return f"{head}{''.join(bodies)}graph g(x: f32[4]) -> y {{ y = f{count - 1}(x) }}\n"


UNFOLDING = {
    "nested loops": (
        in_graph("for i in 0..300 { for j in 0..300 { for k in 0..300 { x = Relu(x) } } }"),
        "line 2",
    ),
    "each calls the last twice": (templates(24, "{0}({0}(x))"), "line 1"),
    "each adds the last twice": (templates(24, "{0}(x) + {0}(x)"), "line"),
    "a long range": (in_graph("for i in 0..1000000000000 { x = Relu(x) }"), "line 2"),
    "an empty loop": (in_graph("for i in 0..100000 { }"), "line 2"),
    "a list in a loop": (
        f"let a = [{'1, ' * 500}1]\n" + in_graph("for i in a { b = a }"),
        "line 3",
    ),
    "lists of lists": (
        f"let a = [{'1, ' * 99}1]\nlet b = [{'a, ' * 99}a]\nlet c = [{'b, ' * 99}b]\n" + in_graph(),
        "line 3",
    ),
    "functions that call the last twice": (
        "function d.f0(x) -> y { y = Relu(x) }\n"
        + "".join(
            f"function d.f{i}(x) -> y {{ y = d.f{i - 1}(d.f{i - 1}(x)) }}\n" for i in range(1, 40)
        )
        + in_graph("a = d.f39(x)"),
        "line",
    ),
    "failing again and again": (in_graph("for i in 0..90000 { x = Relu(u) }"), "line 2"),
}


@pytest.mark.parametrize(("text", "line"), UNFOLDING.values(), ids=UNFOLDING.keys())
def test_unbounded_expansion_is_refused(
    text: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEXTS, "0.01")
    with pytest.raises(PopgraphError, match=f"expands to too much: {line}.* took .* of the"):
        parse(text)


@pytest.mark.parametrize("initialiser", ["zeros", "normal", "orthogonal", "truncated_normal"])
def test_initial_values_have_a_budget(initialiser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = in_graph(f"for i in 0..9 {{ weight w: f32[300, 200] = {initialiser} }}")
    assert parse(text)
    monkeypatch.setenv(TEXTS, "0.001")
    with pytest.raises(PopgraphError, match=r"fills [0-9,]+ elements .* exceeds 536,870"):
        parse(text)


def test_the_budget_grows_with_the_text_and_with_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = in_graph("for i in 0..150 { x = Relu(x) }")
    monkeypatch.setenv(TEXTS, "0.001")
    with pytest.raises(ParseError, match="expands to too much"):
        parse(text)
    assert parse(in_graph(*[f"v{i} = Relu(x)" for i in range(150)]))
    monkeypatch.setenv(TEXTS, "0.1")
    assert parse(text)


@pytest.mark.parametrize("given", ["much", "-1", "0", "nan", "inf"])
def test_a_budget_is_a_number_above_zero(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEXTS, given)
    with pytest.raises(ParseError, match="not a positive number"):
        factor()


LONG = {
    "sum": "a = x" + " + x" * 2500,
    "pipe": "a = x" + " |> Relu" * 1000,
    "differences": "a = x" + " - 1" * 1000,
    "parentheses": "a = " + "(" * 2000 + "x" + ")" * 2000,
    "calls within calls": "a = " + "Add(x, " * 50 + "x" + ")" * 50,
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG.keys())
def test_long_expressions_are_not_deep(line: str) -> None:
    formatted = format_text(in_graph(line))
    assert format_text(formatted) == formatted
    assert str(parse(formatted).module) == str(parse(in_graph(line)).module)


DEEP = {
    "calls": "a = " + "Relu(" * 2000 + "x" + ")" * 2000,
    "conditions": "a = " + "x if x > 0 else " * 500 + "x",
    "lists": "a = " + "[" * 2000 + "1" + "]" * 2000,
    "signs": "a = " + "-" * 2000 + "x",
    "loops": "for i in 0..1 { " * 500 + "}" * 500,
    "types": "a: f32[" + "-" * 2000 + "1] = x",
}


@pytest.mark.parametrize("line", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting_is_refused_with_its_location(line: str) -> None:
    for read in (parse, format_text):
        with pytest.raises(ParseError, match="nested more than 200 levels deep") as raised:
            read(in_graph(line))
        assert raised.value.where.startswith("<text>:2:")
    assistant = LanguageService("a.pgraph")
    assistant.read(in_graph(line))
    assert "nested more than" in assistant.now.diagnostics[0].message


def test_chains_of_templates_do_not_recurse() -> None:
    assert parse(templates(60, "{0}(x)"))
    with pytest.raises(ParseError, match="nested more than 80 levels deep"):
        parse(templates(200, "{0}(x)"))
    with pytest.raises(ParseError, match="calls itself endlessly"):
        parse("def f(x: f32[N]) -> y { y = f(x) }\n" + in_graph("a = f(x)"))


NO_VALUES = {
    "too large a number": "a = Softmax(x) |> Mul(99999999999999999999)",
    "no range": "weight w: f32[4] = uniform(low=1e308, high=-1e308, seed=3)",
    "half a character": 'a = Foo("\\ud800")',
    "no character": 'a = Foo("\\U00110000")',
    "a path with NUL": 'weight w: f32[4] = load("a\\0b.npy")',
    "a path that goes round": 'weight w: f32[4] = load("loop.npy")',
    "a folder": 'weight w: f32[4] = load(".")',
    "a folder of a name": 'weight w: f32[4] = load("folder.npy")',
    "a long name": f'weight w: f32[4] = load("{"x" * 300}.npy")',
    "a damaged archive": 'weight w: f32[4] = load("z.npz", "w")',
    "a damaged array": 'weight w: f32[4] = load("t.npy")',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with damaged files, dangling links and folders named like files."""
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    (tmp_path / "loop.pgraph").symlink_to("loop.pgraph")
    (tmp_path / "folder.npy").mkdir()
    np.savez_compressed(tmp_path / "z.npz", w=np.arange(64, dtype=np.float32))
    damaged = bytearray((tmp_path / "z.npz").read_bytes())
    damaged[60] ^= 0xFF
    (tmp_path / "z.npz").write_bytes(damaged)
    np.save(tmp_path / "t.npy", np.arange(4, dtype=np.float32))
    damaged = bytearray((tmp_path / "t.npy").read_bytes())
    damaged[damaged.index(b"}")] = damaged[damaged.index(b")")] = 32
    (tmp_path / "t.npy").write_bytes(damaged)
    return tmp_path


@pytest.mark.parametrize("line", NO_VALUES.values(), ids=NO_VALUES.keys())
def test_invalid_values_end_in_errors(line: str, folder: Path) -> None:
    text = folder / "a.pgraph"
    text.write_text(in_graph(line))
    with pytest.raises((ParseError, TypeMismatchError)):
        pgraph.load(text)


@pytest.mark.parametrize("name", ["a\\0b", "loop.pgraph", "x" * 300, ".", "folder.npy"])
def test_importing_something_that_is_not_a_file_fails(name: str, folder: Path) -> None:
    text = folder / "a.pgraph"
    text.write_text(f'import "{name}"\n' + in_graph())
    with pytest.raises(ParseError):
        pgraph.load(text)


def test_lone_surrogates_are_refused() -> None:
    for read in (parse, format_text):
        with pytest.raises(ParseError, match="is not a valid character") as raised:
            read('"""\ud800"""\n' + in_graph())
        assert str(raised.value).encode()


# mutation

SEEDS = [
    *(text for text, _ in UNFOLDING.values()),
    in_graph('weight w: f32[4] = load("z.npz", "w")', "a = x + w"),
    'import "b.pgraph" (dense)\nopset 21\n' + in_graph("a = dense(x[_, :], 3) |> Relu"),
    """@doc("a") graph g(x: f32[N, 4], c: bool) -> (y: f32[N, 3], z) {
    const k: i64[2] = [0x10, -1]
    @ipu(1) @name("n") h = x @ [[1.0, 2, 3], [4, 5, 6], [7, 8, 9], [1e3, inf, nan]]
    z = if c { z = h[:, 0, _] } else { (z, _) = Dropout(-h[..., 1:2], _, false) }
    y = Softmax(h if h > 0 else -h, axis=-1)
}
""",
    """function my.f(x, *, alpha=1.0, k) -> (y) { opset 21
    y = LeakyRelu(x, alpha=alpha)
}
graph g(x: f32[4], n: i64) -> y {
    (y, s) = Loop(n, true, x, body=graph (i: i64, go: bool, v: f32[4]) -> (go, w, w) {
        w = v + Cast(i, to="f32") })
    a = my.f(x, k=2)
}
train (labels: i32[4]) { loss = ReduceSum(y, keepdims=0)
    freeze "w*", a
    optimizer = Adam(0.1, beta1=0.5) }
""",
]
PIECES = [
    *("(", ")", "[", "]", "{", "}", '"', '"""', "`", "#", "\n", "\0", "\\", "é", "\ud800", "\r"),
    *("..", "|>", "**", "-", "@", "_", "?", ",", ":", "=", "->", " if x > 0 else ", "\\ud83d"),
    *("0", "99999999999", "1" * 40, "0x" + "f" * 32, "1e999", "-1", "0.0", "nan", "true"),
    *("for i in 0..9 {", "if c {", "graph ", "def f(x) -> y {", "weight ", "let ", "freeze "),
    *("load(", "normal(", "tensor(", "sparse(", "bits(", "f32[", "i4", "string", "c64", "zeros"),
    *("Relu(", "Concat(", "Reshape(", "Constant(", "Loop(", "axis=", "x", "y", "a.b", "../x"),
]
places = st.floats(0, 1)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("put"), places, st.integers(0, 9), st.sampled_from(PIECES)),
        st.tuples(st.just("again"), places, st.integers(1, 40), st.integers(2, 300)),
        st.tuples(st.just("move"), places, st.integers(1, 60), places),
    ),
    min_size=1,
    max_size=5,
)


def mutated(text: str, changes: list[tuple[str, float, int, object]]) -> str:
    """A text with insertions, repetitions and moves; at most 10,000 characters."""
    for kind, place, length, what in changes:
        start = int(place * len(text))
        cut, rest = text[start : start + length], text[start + length :]
        if kind == "put":
            text = text[:start] + str(what) + rest
        elif kind == "again":
            assert isinstance(what, int)
            text = text[:start] + cut * what + rest
        else:
            assert isinstance(what, float)
            other = text[:start] + rest
            target = int(what * len(other))
            text = other[:target] + cut + other[target:]
    return text[:10_000]


@contextmanager
def in_time() -> Iterator[None]:
    """Raises in the running code after `SECONDS` of CPU time."""

    def late(*_: object) -> None:
        raise AssertionError(f"more than {SECONDS} seconds of computing")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
@given(st.sampled_from(SEEDS), edits)
def test_fuzz_of_mutated_texts(
    folder: Path, seed: str, changes: list[tuple[str, float, int, object]]
) -> None:
    """Every mutant ends in time, in a result or a PopgraphError, and writes no file."""
    (folder / "b.pgraph").write_text("def dense(x, n=2) -> y { y = x }\n")
    before = sorted(folder.parent.rglob("*"))
    text = mutated(seed, changes)
    with in_time():
        read_in_every_way(text, folder)
    assert sorted(folder.parent.rglob("*")) == before


def read_in_every_way(text: str, folder: Path) -> None:
    """Reads a text as `check`, `fmt` and editors do, and lowers it one level."""
    path = str(folder / "a.pgraph")
    document = None
    try:
        document = parse(text, path)
    except PopgraphError as error:
        for one in error.errors if isinstance(error, ErrorGroup) else [error]:
            assert one.what
            assert str(one).encode()
    try:
        formatted = format_text(text)
    except PopgraphError:
        formatted = None
    assistant = LanguageService(path)
    assistant.read(text)
    assert bool(assistant.now.document) == bool(document)
    for line in range(1, 4):
        assistant.hover(line, 9)
        assistant.definition(line, 9)
        assistant.completions(line, 9)
    if document is not None:
        assert formatted is not None
        if document.graphs:
            lowered(document)


def lowered(document: pgraph.Document) -> None:
    try:
        lower(document.module, Compilation(document.weights), Options(), level="graphcore")
    except PopgraphError as error:
        assert error.what
