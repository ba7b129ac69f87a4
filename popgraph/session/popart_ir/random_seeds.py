"""Seeds of operators that draw numbers: one for each, made of that of the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from popgraph.builder.opset.exceptions import popart_internal_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import RESERVED_PREFIXES
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings

_DRAWING = {"RandomNormal": 0, "RandomUniform": 0, "Dropout": 1, "ShapedDropout": 1}
"""What draws numbers, and which of its inputs is its seed."""

_SEED, _MODIFIER = TensorInfo("UINT32", [2]), TensorInfo("UINT32", [])
_NAME = RESERVED_PREFIXES["reservedRandomSeedPrefix"]
_MODIFIED_BY = RESERVED_PREFIXES["reservedSeedModifierPrefix"]
_FROM_HOST, _UPDATED = f"{_NAME}fromHost", f"{_NAME}updated"
_FIRST_IN, _FIRST_OUT = 2, 1
"""Where a loop's graph has its first tensor that turns hand on."""


def add_seeds(
    main: OpGraph, called: Mapping[str, OpGraph], first: Settings, *, rounds: bool
) -> None:
    """
    Gives every operator that draws numbers a seed of its own, in called graphs, too.

    `first` is where the step's seed is read, which stochastic rounding needs as well.
    """
    seeds = _Seeds({main.name: main, **called}, first.phase)
    if not rounds and not seeds.strands(main):
        return
    main.add_tensor(_FROM_HOST, _SEED, Kind.STREAM)
    main.add_tensor(_UPDATED, _SEED)
    read = Op("GetRandomSeed", {0: _FROM_HOST}, {0: _UPDATED}, settings=first, writes=True)
    main.add(read, before=main.ops[0] if main.ops else None)
    for graph in called.values():
        seeds.hand_on(graph)
    for graph in (main, *called.values()):
        seeds.give(graph, is_main=graph is main)


@dataclass(frozen=True, order=True)
class _Strand:
    """Operators on one IPU and in one stage: seeds are made where they are used."""

    ipu: int
    stage: int

    @classmethod
    def of(cls, op: Op) -> _Strand:
        told = op.settings
        return cls(*(-1 if one is None else one for one in (told.ipu, told.stage)))

    def named(self, id: str) -> str:
        id += f"_vgid{self.ipu}" if self.ipu >= 0 else ""
        return id + (f"_stage{self.stage}" if self.stage >= 0 else "")


@dataclass
class _Seeds:
    graphs: Mapping[str, OpGraph]
    phase: int | None
    _known: dict[str, list[_Strand]] = field(default_factory=dict)

    def strands(self, graph: OpGraph) -> list[_Strand]:
        """Where numbers are drawn in a graph and in those that it calls."""
        if graph.name not in self._known:
            found: dict[_Strand, None] = {}
            for op in graph.ops:
                found |= dict.fromkeys(self._of(op))
            self._known[graph.name] = list(found)
        return self._known[graph.name]

    def _of(self, op: Op) -> list[_Strand]:
        """The strands for which an operator needs seeds."""
        if op.type in _DRAWING:
            return [] if _DRAWING[op.type] in op.inputs else [_Strand.of(op)]
        below = [one for name in op.called for one in self.strands(self.graphs[name])]
        if below and op.type not in ("Call", "Loop"):
            raise popart_internal_exception(
                "[RandomSetup] Random behaviour that requires instrumentation of "
                f"{op.type} ops is currently not supported"
            )
        return list(dict.fromkeys(below))

    def hand_on(self, graph: OpGraph) -> None:
        """Gives a called graph inputs for seeds, and outputs for those of a next turn."""
        at = min(_FIRST_IN, len(graph.inputs))
        back = max(0, min(at - _FIRST_IN + _FIRST_OUT, len(graph.results)))
        for strand in self.strands(graph):
            for ids, place, end in ((graph.inputs, at, "in"), (graph.results, back, "out")):
                ids.insert(place, graph.add_tensor(self._base(graph, strand, end), _SEED))

    def _base(self, graph: OpGraph, strand: _Strand, end: str) -> str:
        return f"{graph.name}/{strand.named(f'{_NAME}base')}_{end}"

    def give(self, graph: OpGraph, *, is_main: bool) -> None:
        """Modifies the seed of a graph for each operator that draws numbers, or calls some."""
        number = 0
        for op in list(graph.ops):
            seeds = {}
            for strand in self._of(op):
                seeds[strand] = self._modified(graph, strand, number, op, is_main=is_main)
                number += 1
            if op.type in _DRAWING:
                for seed in seeds.values():
                    graph.connect(op, _DRAWING[op.type], seed)
            elif seeds:
                self._pass_on(graph, op, seeds)
        for strand in () if is_main else self.strands(graph):
            self._modified(graph, strand, number, None, is_main=False)
            number += 1

    def _modified(
        self, graph: OpGraph, strand: _Strand, number: int, reader: Op | None, *, is_main: bool
    ) -> str:
        """Adds a ModifyRandomSeed; without a reader, for the next turn."""
        scope = "" if is_main else f"{graph.name}/"
        modifier = scope + strand.named(f"{_MODIFIED_BY}{number}")
        graph.add_tensor(modifier, _MODIFIER, Kind.CONSTANT)
        seed = scope + strand.named(f"{_NAME}modified{number}")
        if reader is None:
            seed = self._base(graph, strand, "out")
        graph.add_tensor(seed, _SEED)
        base = _UPDATED if is_main else self._base(graph, strand, "in")
        settings = Settings(
            ipu=strand.ipu if strand.ipu >= 0 else None,
            stage=strand.stage if strand.stage >= 0 else None,
            phase=self.phase,
        )
        made = Op("ModifyRandomSeed", {0: base, 1: modifier}, {0: seed}, settings=settings)
        graph.add(made, before=reader)
        return seed

    def _pass_on(self, graph: OpGraph, op: Op, seeds: Mapping[_Strand, str]) -> None:
        """Hands seeds to the graph that an operator calls, behind which others move up."""
        called = self.graphs[op.called[0]]
        behind = _FIRST_OUT if op.type == "Loop" else 0
        for strand, seed in seeds.items():
            at = called.inputs.index(self._base(called, strand, "in"))
            back = called.results.index(self._base(called, strand, "out")) - behind
            op.inputs = _moved(op.inputs, at)
            graph.connect(op, at, seed)
            op.inputs = dict(sorted(op.inputs.items()))
            op.outputs = _moved(op.outputs, back)
            carried = strand.named(f"{_NAME}_loopcarry{op.number}")
            scope = f"{graph.scope}/" if graph.scope else ""
            graph.rename_output(op, back, graph.add_tensor(scope + carried, _SEED))


def _moved(tensors: dict[int, str], place: int) -> dict[int, str]:
    """Makes room at an index."""
    return {index + (index >= place): id for index, id in tensors.items()}
