"""PopART's IR of a session as programs see it: outlined, in place and in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from popgraph.builder.opset.enums import (
    RecomputationType,
    RecomputeType,
)
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.dialects.onnx.annotations import PARTIALS
from popgraph.session.popart_ir.dot_files import DotFiles
from popgraph.session.popart_ir.duplicates import merge_duplicates
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.inplace import InPlace
from popgraph.session.popart_ir.matmuls import NO_PASS
from popgraph.session.popart_ir.moves import simplify_views
from popgraph.session.popart_ir.outline import Outliner
from popgraph.session.popart_ir.remote_ops import number_buffers
from popgraph.session.popart_ir.schedule import Scheduler
from popgraph.session.popart_ir.serialise import serialised
from popgraph.session.popart_ir.transforms import FEWEST_PHASES, Asked, Transforms, tell


class Ir:
    """
    The operators that PopART would run for a session, under its names and after its patterns.

    It is a view: what this machine runs is compiled from the model itself, and has no such
    operators. Programs that look at PopART's IR see what they would see there. Independent
    operators stand in the order that PopART's scheduler looks for; where several are as good, and
    in graphs of thousands of operators, it may be another one.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._enabled = asked.patterns.enabled()
        self._dots = DotFiles(asked.options)
        transforms = Transforms(asked, self._dots)
        self._made, self._stages = transforms.run(), transforms.stages

    @cached_property
    def _graphs(self) -> dict[str, OpGraph]:
        """All graphs in the end; outlining takes as long as the rest, and only who looks waits."""
        return {graph.name: graph for graph in self._ended(self._made)}

    @cached_property
    def _orders(self) -> dict[str, Sequence[Op]]:
        return {name: self._scheduler.order(graph) for name, graph in self._graphs.items()}

    @cached_property
    def _scheduler(self) -> Scheduler:
        options = self._asked.options
        phases = options.executionPhaseSettings.phases >= FEWEST_PHASES
        again = options.autoRecomputation is not RecomputationType.NoRecompute or any(
            op.settings.recompute is RecomputeType.Recompute for op in self._made[0].ops
        )
        loss = self._asked.loss if again and not options.explicitRecomputation else None
        return Scheduler.of(options, loss, phases=phases)

    def graphNames(self) -> list[str]:
        """The main graph first."""
        return list(self._graphs)

    def operators(self, graph: str) -> Sequence[Op]:
        return self._orders[graph]

    def body(self, graph: str) -> tuple[Sequence[str], Sequence[str]]:
        """What a graph takes and gives that an operator calls."""
        found = self._graphs[graph]
        return found.inputs, found.results

    def infos(self) -> Mapping[str, TensorInfo]:
        """The tensors of the main graph."""
        return next(iter(self._graphs.values())).infos

    def serialised(self) -> str:
        """The JSON of all graphs."""
        return serialised(self._orders, self._graphs)

    def _ended(self, graphs: list[OpGraph]) -> list[OpGraph]:
        """The graphs with what stands in several places taken out, and operators in place."""
        options = self._asked.options
        for op in (op for graph in graphs for op in graph.ops if op.type == "MatMul"):
            if not options.enableFullyConnectedPass:
                op.attributes[NO_PASS] = True
            if options.partialsTypeMatMuls:
                op.attributes.setdefault(PARTIALS, options.partialsTypeMatMuls)
        if options.enableOutlining and options.batchSerializationSettings.factor <= 1:
            simplify_views(graphs[0])
        graphs = [*graphs, *self._outlined(graphs, self._stages)]
        tell("MergeDuplicateOps")
        merge_duplicates(graphs[0])
        if "InPlace" in self._enabled:
            over_products = "UpdateInplacePrioritiesForIpu" in self._enabled
            for graph in graphs:
                InPlace(graph, over_products=over_products).run()
        tell("RemoteSetup")
        number_buffers(graphs)
        self._dots.draw("FINAL", graphs)
        return graphs

    def _outlined(self, graphs: Sequence[OpGraph], others: int) -> list[OpGraph]:
        options = self._asked.options
        if not options.enableOutlining:
            return []
        in_phases = options.executionPhaseSettings.phases > 1
        copies = options.enableExplicitMainLoops or options.explicitRecomputation or in_phases
        tell("SubgraphOutline")
        outliner = Outliner(options.outlineThreshold, copies=copies, others=others)
        for graph in graphs:
            graph.ops = self._scheduler.order(graph)
        outliner.run(graphs)
        return list(outliner.graphs.values())
