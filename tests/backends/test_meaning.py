"""Tests the comparison of two modules: which variables may be missing from the second."""

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


def test_a_constant_variable_may_be_missing() -> None:
    before, compilation = module(READ)
    after, _ = module()
    assert_same_meaning(before, after, compilation.weights)


def test_an_updated_variable_may_not_be_missing() -> None:
    before, compilation = module(READ, CHANGED, UPDATED)
    for lines in ([], [READ]):
        after, _ = module(*lines)
        with pytest.raises(AssertionError, match="variable w"):
            assert_same_meaning(before, after, compilation.weights)


def test_the_initial_value_of_a_variable_is_compared() -> None:
    before, compilation = module(READ)
    after, _ = module(READ.replace(ONE, ZERO))
    with pytest.raises(AssertionError, match="variable w"):
        assert_same_meaning(before, after, compilation.weights)
