"""Tests collectives whose replicas are distributed over ranks: the values of a single process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popgraph.backends.reference import evaluate
from popgraph.dialects.check import check_ir
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.spread_replicas import SpreadReplicas
from popgraph.passes.replication import Replication
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError
from popgraph.support.replicas import grouped
from tests.passes.test_spread_replicas import NUMPY, collected, program
from tests.ranks.threads import Thread, on_ranks


@dataclass(frozen=True)
class Drawn:
    """A collective: the shape of a row, the ranks, and the replicas of each rank."""

    kind: str
    combine: str
    shape: tuple[int, ...]
    ranks: int
    local: int
    stride: int
    size: int


@st.composite
def collectives(draw: st.DrawFn) -> Drawn:
    ranks, local = draw(st.sampled_from([(2, 1), (2, 2), (4, 1), (3, 2)]))
    total = ranks * local
    groups = [(1, total)]  # all replicas, those of one rank, or ranks with one replica each
    groups += [
        (stride, size) for stride in (1, 2) for size in (1, 2) if not local % (stride * size)
    ]
    if local == 1:
        groups += [(1, 2), (2, 2), (2, 1)] if ranks == 4 else []
    stride, size = draw(st.sampled_from(groups))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)))
    kind = draw(st.sampled_from(["reduce", "scatter", "gather"]))
    combine = draw(st.sampled_from([*NUMPY, "Local"]))
    return Drawn(kind, combine, shape, ranks, local, stride, size)


@given(collectives())
def test_fuzz_collectives(drawn: Drawn) -> None:
    total = drawn.ranks * drawn.local
    input_rows = [
        np.random.default_rng(at).integers(-2, 3, drawn.shape) / 2.0 for at in range(total)
    ]

    compilation, programs = Compilation(), []
    for rank in range(drawn.ranks):
        module = program(drawn.kind, drawn.combine, drawn.shape, drawn.stride, drawn.size)
        replicas = Replication(drawn.local, ranks=drawn.ranks, rank=rank)
        SpreadReplicas(str(replicas)).run(compilation, module)
        check_ir(module)
        programs.append((replicas, module))

    def work(one: Thread) -> list[Array]:
        replicas, module = programs[one.rank]
        mine = input_rows[replicas.first : replicas.first + drawn.local]
        inputs = dict(zip(replicas.copies("x"), mine, strict=True))
        found = evaluate(module, inputs, compilation.weights)[0]
        return [found[name] for name in replicas.copies("y")]

    found = [row for rows in on_ranks(drawn.ranks, work) for row in rows]
    for group in grouped(total, drawn.stride, drawn.size):
        wanted = collected(drawn.kind, drawn.combine, [input_rows[at] for at in group])
        for replica, row in zip(group, wanted, strict=True):
            np.testing.assert_allclose(found[replica], row, err_msg=f"replica {replica}")


def test_groups_across_ranks_with_several_replicas_are_refused() -> None:
    module = program("reduce", "Add", (2,), 2, 2)
    with pytest.raises(
        PassError, match="have members in several processes, but each process has 2"
    ):
        SpreadReplicas(str(Replication(2, ranks=2))).run(Compilation(), module)


@pytest.mark.parametrize("text", ["2 rank=2/2", "2 rank=a/2", "2 rank=0/0"])
def test_malformed_rank_texts_are_refused(text: str) -> None:
    with pytest.raises(PassError, match="is not a valid description of replicas"):
        Replication.parse(text)


def test_the_text_of_ranks_is_read_back() -> None:
    given_ranks = Replication(2, ("x",), ranks=4, rank=3)
    assert Replication.parse(str(given_ranks)) == given_ranks
    assert (given_ranks.first, given_ranks.total) == (6, 8)
