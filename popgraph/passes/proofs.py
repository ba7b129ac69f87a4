"""The rewrites of the passes, with the reasons why they keep the meaning."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from popgraph.dialects.tile import affine
from popgraph.passes.graphcore import (
    canonicalize,
    contract_in_floats,
    contract_in_words,
    contract_quantized,
    expand,
    fold_constants,
    fold_depth,
    fuse_softmax_loss,
    round_activations,
    round_cheaply,
    scale_sums,
    skip_padding,
)
from popgraph.passes.graphcore.canonicalize.by_law import ByLaw
from popgraph.passes.graphcore.canonicalize.rewriting import AnyRule
from popgraph.passes.structured.analysis.operand_maps import DROP_ROUNDING
from popgraph.passes.structured.analysis.permute_results import PERMUTE_RESULTS
from popgraph.passes.structured.fusion import (
    fuse_attention,
    fuse_channels,
    fuse_elementwise,
    fuse_epilogue,
    fuse_rows,
    merge_maps,
    sum_in_blocks,
)
from popgraph.support.laws import Proof, Rewrite

RULES: dict[str, tuple[type[AnyRule[Any]], ...]] = {
    "canonicalize": canonicalize.RULES,
    "fuse-softmax-loss": (fuse_softmax_loss.SubtractLabels,),
    "contract-in-floats": (contract_in_floats.SumInFloats,),
    "contract-in-words": (
        contract_in_words.SumInWords,
        contract_in_words.SumHalvesInWords,
        contract_in_words.SumAsStored,
    ),
    "skip-padding": (skip_padding.SumElements,),
    "fold-depth": (fold_depth.SumOverDepth,),
    "contract-quantized": (
        contract_quantized.ContractIntegers,
        contract_quantized.ScaleBeforeRounding,
        contract_quantized.RectifyByClipping,
    ),
    "round-cheaply": (round_cheaply.MultiplyByHalves,),
    "round-activations": (round_activations.RoundByBlocks,),
    "scale-sums": (scale_sums.ScaleAfterwards,),
}
"""The rule classes of each pass."""
REWRITES: dict[str, tuple[Rewrite, ...]] = {
    "fold-constants": (fold_constants.FOLD,),
    "fuse-elementwise": fuse_elementwise.REWRITES,
    "merge-maps": (merge_maps.MERGE, merge_maps.MERGE_EXTREMES),
    "fuse-epilogue": (*fuse_epilogue.REWRITES, PERMUTE_RESULTS, DROP_ROUNDING),
    "fuse-rows": (fuse_rows.FUSE,),
    "fuse-attention": (fuse_attention.FUSE,),
    "fuse-channels": (fuse_channels.FUSE,),
    "sum-in-blocks": (sum_in_blocks.SUM_BLOCKS,),
    "index maps": affine.REWRITES,
}
"""Rewrites of passes without rule classes, and of the index maps that all later passes use."""


@dataclass(frozen=True)
class Stated:
    """A rewrite of a pass, with its proof."""

    where: str
    """The pass, or `index maps`."""
    name: str
    """Its name in `popgraph.support.laws.FIRED`."""
    about: str
    """`before -> after`."""
    proof: Proof
    is_derived: bool = False
    """Whether the pass matches and builds the terms of the laws."""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        status = self.proof.status
        return "derived" if self.is_derived and status == "proven" else status


def stated() -> Iterator[Stated]:
    """All rewrites that have a proof or a reason for its absence, by pass."""
    for where, rules in RULES.items():
        for rule in rules:
            yield Stated(
                where, rule.__name__, _first_line(rule), rule.PROOF, issubclass(rule, ByLaw)
            )
    for title, proof in sorted(expand.expansions().items()):
        yield Stated("expand", f"expand {title}", f"{title}  ->  its expansion", proof)
    for where, rewrites in REWRITES.items():
        for rewrite in rewrites:
            yield Stated(where, rewrite.name, rewrite.about, rewrite.proof)


def _first_line(rule: type[object]) -> str:
    return (inspect.getdoc(rule) or "").split("\n")[0]
