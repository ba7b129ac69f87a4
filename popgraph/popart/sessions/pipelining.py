"""Virtual graphs and pipeline stages: PopART's checks, and the resulting pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from xdsl.ir import Attribute

from popgraph.builder.opset.enums import AnchorReturnTypeId, VirtualGraphMode
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.dialects.onnx.annotations import IPU, PHASE, STAGE, all_attributes
from popgraph.dialects.onnx.op import to_python
from popgraph.engine.plan import StepPlan
from popgraph.engine.stages import StageNode, Stages
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.settings import ExecutionPhaseSettings
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.ir import Placement
from popgraph.popart.model.model import SessionModel
from popgraph.popart.sessions.automatic_placement import IpuShares, place_automatically


@dataclass(frozen=True)
class _Node:
    """A node and its placement by the user."""

    op: OnnxOp
    ipu: int | None
    stage: int | None
    phase: int | None
    recomputed: bool

    @property
    def inputs(self) -> list[str]:
        names = (value_name(value) for value in self.op.input_values() if value is not None)
        return [name for name in names if name]

    @property
    def outputs(self) -> list[str]:
        return [name for name in self.op.output_names if name]

    def shown(self, homes: Mapping[str, int | None]) -> str:
        """
        The node in the format of PopART's messages; inputs from other IPUs have a `_c<ipu>` suffix.
        """
        inputs = [
            id if homes.get(id, self.ipu) == self.ipu else f"{id}_c{self.ipu}" for id in self.inputs
        ]
        return (
            f"Op({self.op.domain or 'ai.onnx'}.{self.op.op_type}:{self.op.since_version or 1}, "
            f"inputs=[{', '.join(inputs)}], outputs=[{', '.join(self.outputs)}])"
        )

    def __str__(self) -> str:
        return self.shown({})


def check_placement(
    model: SessionModel,
    options: SessionOptions,
    step: StepPlan,
    ipus: int | None,
    training: bool,
) -> Placement:
    """
    The placement of a model's nodes, with its pipeline if it has one.

    Refuses placements of only some nodes. `ipus` is the number per replica, if known.
    """
    nodes = list(_nodes_on_ipus(model))
    if options.virtualGraphMode is VirtualGraphMode.Manual:
        _check_virtual_graphs(nodes)
    if options.virtualGraphMode is VirtualGraphMode.ExecutionPhases:
        _check_phases(nodes, options.executionPhaseSettings)
    if options.enablePipelining:
        _check_stages(nodes)
    if options.virtualGraphMode is VirtualGraphMode.Auto:
        shares = IpuShares.of(options, ipus or 1, trains=training)
        nodes = _assign_ipus(list(_nodes_on_ipus(model, whole=True)), model, shares)
    homes = {id: node.ipu for node in nodes for id in node.outputs if node.ipu is not None}
    placement = Placement(homes, accumulates=options.enableGradientAccumulation)
    if not options.enablePipelining:
        return placement
    _check_options(options, ipus)
    stages = _check_pipeline(nodes, model, options, training)
    if options.enableGradientAccumulation:
        _check_depth("gradient accumulation factor", step.accumulate, stages)
    else:
        _check_depth("batchesPerStep", step.batches, stages)
    return replace(placement, stages=stages)


def _assign_ipus(nodes: Sequence[_Node], model: SessionModel, shares: IpuShares) -> list[_Node]:
    """Assigns nodes to IPUs by cost; readers of a weight share one IPU."""
    places = place_automatically(nodes, model, shares)
    homes: dict[str, int] = {}
    for node, ipu in places.items():
        for id in node.inputs:
            if id in model.weight_names:
                places[node] = homes.setdefault(id, ipu)
    return [replace(node, ipu=ipu) for node, ipu in places.items()]


def _pipeline(
    nodes: Sequence[_Node],
    stages: Mapping[_Node, int],
    model: SessionModel,
    training: bool,
    separate_backward: bool,
) -> Stages:
    staged = [
        StageNode(stages[node], node.ipu, tuple(node.inputs), tuple(node.outputs))
        for node in nodes
        if node in stages
    ]
    if not training:
        return Stages(tuple(staged))
    known = {id for node in nodes for id in node.outputs}
    last = max(staged, key=lambda node: node.stage, default=None)
    for op in model.graph.nodes:
        node = _node(op, model)  # what a session adds to sum losses up has no place of its own
        if last is not None and model.final_loss in node.outputs and model.final_loss not in known:
            staged.append(StageNode(last.stage, last.ipu, tuple(node.inputs), tuple(node.outputs)))
    return Stages(tuple(staged), model.final_loss, model.weight_names, separate_backward)


def check_device(
    model: SessionModel, options: SessionOptions, flow: DataFlow, ipus: int | None
) -> None:
    """Refuses, at compilation, invalid IPUs and anchors of every n-th batch in a pipeline."""
    if options.virtualGraphMode is VirtualGraphMode.Manual and ipus is not None:
        nodes = list(_nodes_on_ipus(model))
        homes = _ipu_of_tensors(nodes)
        for node in nodes:
            if node.ipu is not None and not 0 <= node.ipu < ipus:
                raise popart_exception(
                    f"{node.shown(homes)} has been assigned to an invalid virtual graph "
                    f"{node.ipu}. numIPUs = {ipus}."
                )
    every = [id for id in flow.anchors() if flow.art(id).id() is AnchorReturnTypeId.EveryN]
    if options.enablePipelining and every:
        raise popart_exception(
            "AnchorReturnType::EVERYN is not valid for pipelined models",
            f"anchor {every[0]}",
            'AnchorReturnType("All"), or options.enablePipelining = False',
        )


def _nodes_on_ipus(model: SessionModel, *, whole: bool = False) -> Iterator[_Node]:
    """
    The nodes that run on an IPU: all that depend on an input or a weight.

    The final loss is included if it has a placement, or with `whole`. The sum of several losses,
    which the session adds, has no placement.
    """
    graph = model.graph
    moving = {*graph.input_names, *model.weight_names}
    for op in graph.nodes:
        node = _node(op, model)
        if not op.operands or moving.isdisjoint(node.inputs):
            continue
        moving.update(node.outputs)
        if whole or node.ipu is not None or model.final_loss not in node.outputs:
            yield node


def _node(op: OnnxOp, model: SessionModel) -> _Node:
    notes = all_attributes(op, model.weights)
    ipu, stage, phase = (_number(notes.get(name)) for name in (IPU, STAGE, PHASE))
    return _Node(op, ipu, stage, phase, model.is_recomputed(op))


def _ipu_of_tensors(nodes: Sequence[_Node]) -> dict[str, int | None]:
    """{tensor: IPU of its producer, or else of its first reader}."""
    homes: dict[str, int | None] = {}
    for node in nodes:
        for id in (*node.inputs, *node.outputs):
            homes.setdefault(id, node.ipu)
    return homes


def _number(note: Attribute | None) -> int | None:
    return None if note is None else int(str(to_python(note)))


def _check_phases(nodes: Sequence[_Node], settings: ExecutionPhaseSettings) -> None:
    """
    Refuses phases on other IPUs than their number implies, and phases before those they depend on.
    """
    phases, stages = settings.phases, settings.stages
    known: dict[str, int] = {}
    for node in nodes if phases > 1 else ():
        if node.phase is None:
            continue  # PopART places it by cost
        if node.phase >= phases:
            raise popart_exception(
                f"[StreamingMemory] Maximum phase is {phases - 1}, but op {node} has phase "
                f"{node.phase}."
            )
        phase = max([node.phase, *(known[id] for id in node.inputs if id in known)])
        known |= dict.fromkeys(node.outputs, phase)
        if node.ipu is not None and (phase - node.ipu) % stages:
            raise popart_exception(
                f"[StreamingMemory] Op {node} inconsistent execution phase {phase} and virtual "
                f"graph ID {node.ipu}",
                "SessionOptions.executionPhaseSettings",
                f"with {stages} stages, phase n is on IPU n modulo {stages}",
            )


def _check_virtual_graphs(nodes: Sequence[_Node]) -> None:
    unplaced = [node for node in nodes if node.ipu is None]
    if not unplaced:
        return
    if len(unplaced) == len(nodes):
        raise popart_exception(
            "SessionOptions flag virtualGraphMode is VirtualGraphMode::Manual, but no Ops have "
            "been annotated with virtual graph information. This is an inconsistent combination. ",
            "SessionOptions.virtualGraphMode",
            "with builder.virtualGraph(0): ...",
        )
    placed = sorted({node.ipu for node in nodes if node.ipu is not None})
    counts = [f"  {ipu} : {sum(node.ipu == ipu for node in nodes)}" for ipu in placed]
    lines = [
        "Either all Ops must have their virtual graph ids set, or none must. Op count per virtual "
        "graph id",
        f"  -1 : {len(unplaced)}",
        *counts,
        "Ops with no virtual graph id :  ",
        *(f"  {node}" for node in unplaced),
    ]
    raise popart_exception("\n".join(lines))


def _check_options(options: SessionOptions, ipus: int | None) -> None:
    explicit = options.enableExplicitMainLoops
    off = options.virtualGraphMode is VirtualGraphMode.Off
    if explicit and off:
        raise popart_exception(
            "Pipelining requires the 'virtualGraphMode' session option to not be "
            "VirtualGraphMode::Off.",
            "SessionOptions.enablePipelining",
        )
    if explicit and not options.explicitRecomputation:
        raise popart_exception(
            "[Pipeline::addDynamicStashOps] Explicit pipelining requires explicit recomputation "
            "to be enabled.",
            "SessionOptions.explicitRecomputation",
        )
    if not explicit and (off or ipus == 1):
        raise popart_exception(
            f"Pipelining requires more than 1 IPU (currently {ipus or 1}) and the "
            "'virtualGraphMode' session option to not be VirtualGraphMode::Off (currently "
            f"VirtualGraphMode::{options.virtualGraphMode.name}).",
            "SessionOptions.enablePipelining",
        )
    if options.aliasZeroCopy and not explicit:
        raise popart_exception("Alias zero copy is not supported with implicit pipelining.")


def _check_pipeline(
    nodes: Sequence[_Node],
    model: SessionModel,
    options: SessionOptions,
    training: bool,
) -> Stages:
    if not options.enableExplicitMainLoops and any(node.recomputed for node in nodes):
        raise popart_exception(
            "When pipelining is enabled, user annotation for recomputation is not allowed"
        )
    stages = _stages(nodes)
    _check_order(nodes, stages)
    _check_weights(nodes, model)
    _check_called(nodes, model)
    separate_backward = options.createImplicitPipeliningFwdOnlyProgram
    found = _pipeline(nodes, stages, model, training, separate_backward)
    if found.first_missing is not None:
        raise popart_exception(
            f"The set of pipeline stages for all Ops contains {found.count} stages, but stage "
            f"{found.first_missing} is missing"
        )
    return found


def _stages(nodes: Sequence[_Node]) -> dict[_Node, int]:
    """{node: pipeline stage}; if no node has a stage, the IPU is the stage."""
    staged = any(node.stage is not None for node in nodes)
    given = {node: node.stage if staged else node.ipu for node in nodes}
    return {node: stage for node, stage in given.items() if stage is not None}


def _check_stages(nodes: Sequence[_Node]) -> None:
    """Requires stages on all nodes or none, and one IPU per stage."""
    staged = [node for node in nodes if node.stage is not None]
    for node in staged:
        if node.stage is not None and node.stage < 0:
            raise popart_exception(f"Op has bad pipeline stage {node.stage}", str(node))
    if staged and len(staged) < len(nodes):
        missing = [f"\n  {node}" for node in nodes if node.stage is None]
        raise popart_exception(
            "Only some ops have had their pipeline stage set. Ops missing the pipeline stage:"
            + "".join(missing)
        )
    for stage in sorted(set(_stages(staged).values())):
        members = [node for node in nodes if node.stage == stage]
        homes = sorted({-1 if node.ipu is None else node.ipu for node in members})
        if len(homes) > 1:
            raise popart_exception(
                f"Ops [{', '.join(map(str, members))}] have the same pipeline stage {stage}, but "
                f"different virtual graph ids {{{', '.join(map(str, homes))}}}. All ops with the "
                "same pipeline stage must also have the same virtual graph id"
            )


def _check_order(nodes: Sequence[_Node], stages: dict[_Node, int]) -> None:
    producers = {name: node for node in nodes for name in node.outputs}
    for node in nodes:
        for name in node.inputs:
            producer = producers.get(name)
            if producer in stages and node in stages and stages[producer] > stages[node]:
                raise popart_exception(
                    f"Tensor {name} is consumed in an earlier pipeline stage than it is produced\n"
                    f"Producer {producer} has pipeline stage {stages[producer]}\n"
                    f"Consumer {node} has pipeline stage {stages[node]}"
                )


def _check_weights(nodes: Sequence[_Node], model: SessionModel) -> None:
    """Requires all readers of a weight on one IPU."""
    homes: dict[str, set[int | None]] = {}
    for node in nodes:
        for id in node.inputs:
            homes.setdefault(id, set()).add(node.ipu)
    for id in sorted(model.weight_names):
        if len(homes.get(id, ())) > 1:
            raise popart_exception(
                f"Can not copy variable tensor {id} between virtual graphs when pipelining. All "
                "pipeline stages using this tensor should be on the same graph."
            )


def _check_called(nodes: Sequence[_Node], model: SessionModel) -> None:
    """Requires callees on the IPU of the call."""
    for node in nodes:
        if node.op.op_type != "Call":
            continue
        for graph in chain.from_iterable(node.op.graphs().values()):
            for op in graph.nodes:
                inner = _node(op, model)
                place = f'{inner} in subgraph "{graph.graph_name.text}"'
                if inner.ipu is None:
                    raise popart_exception(
                        f"Op {place} does not have a virtual graph id. When pipelining, subgraph "
                        "ops must have a virtual graph id set."
                    )
                if inner.ipu != node.ipu:
                    raise popart_exception(
                        f"The virtual graph id ({inner.ipu}) for Op {place} does not match the "
                        f"virtual graph id ({node.ipu}) of the calling op. When pipelining, "
                        "subgraph ops must have a virtual graph id matching the calling op. If you "
                        "are trying to call the same subgraph from different pipeline stages, you "
                        "will need to create a separate subgraph for each virtual graph."
                    )


def _check_depth(words: str, depth: int, stages: Stages) -> None:
    if depth < stages.count:
        raise popart_exception(
            f"For pipelining, depth ({words}) must equal at least the number of pipeline stages "
            f"({stages.count})"
        )
