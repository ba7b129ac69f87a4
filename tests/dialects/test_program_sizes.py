"""Tests that IR with wrong sizes or running loops is refused with a message."""

from __future__ import annotations

import pytest

from popgraph.dialects.registry import IRContext
from popgraph.dialects.text import parse
from popgraph.passes.options import Options
from popgraph.support.errors import ParseError
from tests.passes.test_bind_sizes import BOUND, FEW, INNER, MODELS, bound

TEXT = """
builtin.module attributes {
    sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 2) outputs ("y" axis 0 times 2)>]
} {
  pg.graph @g inputs [#pg.bytes<"x">, #pg.bytes<"N">] {
  ^bb0(%x: tensor<14x6xf32>, %N: tensor<i64>):
    %y = tile.map ins(%x : tensor<14x6xf32>) domain [14, 6] maps [affine_map<(i, j) -> (i, j)>] {
    ^bb0(%e: f32):
      tile.yield %e : f32
    } {running = #tile.running<loop 0 to 2 of size 0>} -> tensor<14x6xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<14x6xf32>
  }
}
"""
LOOP, SIZE = "loop 0 to 2 of size 0", 'inputs ("x" axis 0 times 2)'
WRONG = {
    ("loop 0", "loop 2"): "loop 2 ends at a size, but the operation has 2",
    ("of size 0", "of size 1"): "loop 0 ends at size 1, but the module has 1",
    (LOOP, "loop 0 to 1 of size 0"): "loop 0 has 14 iterations, but ends at 7 where size 0",
    (LOOP, "loop 1 to 2 of size 0"): "loop 1 has 6 iterations, but ends at 14",
    (LOOP, "loop 0 to 0 of size 0"): "must end at a size or at a multiple of one",
    (LOOP, f"{LOOP}, {LOOP}"): "each running loop must be listed once",
    ("#tile.running<loop 0 to 2 of size 0>", "3 : i64"): "running must be a #tile.running, not 3",
    ("%N: tensor<i64>", "%N: tensor<7xi64>"): "the last inputs of the graph must be its sizes",
    (
        '[#pg.bytes<"x">, #pg.bytes<"N">]',
        '[#pg.bytes<"N">, #pg.bytes<"x">]',
    ): "input 'x' is not: t",
    ('"x" axis 0', '"z" axis 0'): "axis 0 of input 'z', but the graph has no such input",
    ('"y" axis 0', '"z" axis 0'): "axis 0 of output 'z', but the graph has no such output",
    (
        '"x" axis 0',
        '"x" axis 1',
    ): "'N' is 14 at its bound, but axis 1 of input 'x' is not: tensor<14x6",
    ('"x" axis 0', '"x" axis 2'): "axis 2 of input 'x' is not",
    (SIZE, "inputs ()"): "size 'N' must be an axis of an input",
    (SIZE, 'inputs ("x" axis 0 times 2, "x" axis 0 times 2)'): "axis 0 of input 'x' is listed",
    ('"x" axis 0 times 2', '"x" axis 0 times 0'): "needs a factor of at least 1",
    ("1 to 7", "8 to 7"): "size 'N' cannot range from 8 to 7",
    ("1 to 7", "0 to 7"): "size 'N' cannot range from 0 to 7",
    ("sizes = [", "sizes = [1 : i64, "): "sizes of a module must be an array of #pg.size",
    (LOOP, "loop 0 to 2 of size"): "integer",
}
"""Replacements in the text, and the error of each."""


def test_the_text_with_sizes_verifies() -> None:
    parse(IRContext(), TEXT)


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change[1])
def test_wrong_sizes_do_not_verify(change: tuple[str, str]) -> None:
    assert change[0] in TEXT
    with pytest.raises(ParseError) as failure:
        parse(IRContext(), TEXT.replace(*change))
    assert WRONG[change] in str(failure.value)


def test_names_of_sizes_are_unique() -> None:
    text = TEXT.replace(" {running = #tile.running<loop 0 to 2 of size 0>}", "")
    parse(IRContext(), text)
    other = '#pg.size<"N" 1 to 3 inputs ("x" axis 1 times 2) outputs ()>'
    with pytest.raises(ParseError, match="duplicate size name"):
        parse(IRContext(), text.replace("sizes = [", f"sizes = [{other}, "))


def test_running_loops_need_a_module_with_sizes() -> None:
    text = "builtin.module {" + TEXT.split("} {", 1)[1]
    with pytest.raises(ParseError, match="loop 0 ends at size 0, but the module has 0"):
        parse(IRContext(), text)


@pytest.mark.parametrize("name", [*MODELS, *INNER])
def test_lowered_modules_with_sizes_verify(name: str) -> None:
    text, most = (MODELS | INNER)[name], BOUND if name in MODELS else FEW
    for level in ("graphcore", "structured", "loops"):
        module, _ = bound(text, Options(), level, most)
        module.verify()
