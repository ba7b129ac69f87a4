"""Tests the comparison of two modules: what one may lack that the other has."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.compiler import parse_ir
from popgraph.passes.base import Compilation
from popgraph.testing import assert_same_meaning

ZERO, ONE = (f'#pg.data<"{bits}" : tensor<f32>>' for bits in ("00000000", "0000803F"))


def module(*lines: str) -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    body = "\n".join(lines)
    text = (
        'pg.graph @main inputs [#pg.bytes<"x">] {\n^bb0(%x : tensor<f32>):\n'
        f'{body}\npg.return [#pg.bytes<"x">], %x : tensor<f32>\n}}'
    )
    return parse_ir(text, compilation), compilation


READ = f'%w = pg.variable #pg.bytes<"w"> = {ONE}'
CHANGED = "%y = graphcore.add %w, %x : (tensor<f32>, tensor<f32>) -> tensor<f32>"
UPDATED = 'pg.update <"w">, %y : tensor<f32>'


def test_a_variable_that_stays_as_it_was_may_be_missing() -> None:
    before, compilation = module(READ)
    after, _ = module()
    assert_same_meaning(before, after, compilation.weights)


def test_a_variable_that_changes_may_not() -> None:
    before, compilation = module(READ, CHANGED, UPDATED)
    for lines in ([], [READ]):
        after, _ = module(*lines)
        with pytest.raises(AssertionError, match="variable w"):
            assert_same_meaning(before, after, compilation.weights)


def test_a_variable_that_is_there_begins_as_it_did() -> None:
    before, compilation = module(READ)
    after, _ = module(READ.replace(ONE, ZERO))
    with pytest.raises(AssertionError, match="variable w"):
        assert_same_meaning(before, after, compilation.weights)
