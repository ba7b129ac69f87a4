"""Pipeline stages: numbers them, and computes how many batches late each updates its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from popgraph.passes.graphcore.stages.places import Pipeline
from popgraph.support.memo import cached_property


def merge_stages(homes: Mapping[int, int | None]) -> dict[int, int]:
    """Merges consecutive stages on the same IPU; returns old number -> new number."""
    found: dict[int, int] = {}
    fewer, before = 0, None
    for place, stage in enumerate(sorted(homes)):
        if place and homes[stage] is not None and homes[stage] == before:
            fewer += 1
        before = homes[stage]
        found[stage] = stage - fewer
    return found


@dataclass(frozen=True)
class StageNode:
    """A node: its stage and IPU, and the tensors that it reads and computes."""

    stage: int
    ipu: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Stages:
    """
    A pipeline of nodes in program order.

    In cycle c, stage s works on batch c - s. If `loss` is trained, the gradients of stage s are
    computed in stage 2 L - s, where L is the stage of the loss. With `separate_backward`, backward
    stages start one later, so that the last forward stage runs without gradients, and stages are
    not merged.
    """

    nodes: tuple[StageNode, ...]
    loss: str | None = None
    trained: Collection[str] = field(default=frozenset())
    separate_backward: bool = False

    @property
    def last(self) -> int:
        """The stage of the loss."""
        found = (node.stage for node in self.nodes if self.loss in node.outputs)
        return next(found, max((node.stage for node in self.nodes), default=0))

    @cached_property
    def final_numbers(self) -> Mapping[int, int]:
        """Final number of each stage, backward stages included."""
        homes = {node.stage: node.ipu for node in self.nodes}
        for stage in {node.stage for node in self.nodes if node in self._differentiated}:
            homes.setdefault(self.backward_stage(stage), homes[stage])
        return {stage: stage for stage in homes} if self.separate_backward else merge_stages(homes)

    def backward_stage(self, stage: int) -> int:
        """The backward stage of a stage."""
        return 2 * self.last + self.separate_backward - stage

    @property
    def count(self) -> int:
        return len(set(self.final_numbers.values()))

    @property
    def first_missing(self) -> int | None:
        """The first stage without nodes that is followed by one with nodes."""
        held = set(self.final_numbers.values())
        return next((stage for stage in range(len(held)) if stage not in held), None)

    @cached_property
    def _differentiated(self) -> set[StageNode]:
        """Nodes on a path from a trained weight to the loss."""
        if self.loss is None:
            return set()
        moving, downstream = set(self.trained), set()
        for node in self.nodes:
            if not moving.isdisjoint(node.inputs):
                downstream.add(node)
                moving.update(node.outputs)
        needed, upstream = {self.loss}, set()
        for node in reversed(self.nodes):
            if node in downstream and not needed.isdisjoint(node.outputs):
                upstream.add(node)
                needed.update(node.inputs)
        return upstream

    def delay(self, weight: str) -> int:
        """
        Staleness of a weight: the batches whose gradients it lacks when a batch reads it.

        The stages of a cycle run in order, so a weight is read before it is updated. Between the
        forward and the backward stage of a batch, later batches pass through the forward stage.
        """
        stages = self.stages_of(weight)
        return (
            self._number(self.backward_stage(stages[0])) - self._number(stages[0]) if stages else 0
        )

    @property
    def pipeline(self) -> Pipeline:
        """The stages with their final numbers and devices."""
        moved = {node.stage for node in self._differentiated}
        own = {node.stage: node.stage if node.ipu is None else node.ipu for node in self.nodes}
        homes = {self._number(stage): home for stage, home in own.items()}
        homes |= {self._number(self.backward_stage(stage)): own[stage] for stage in moved}
        back = {self._number(stage): self._number(self.backward_stage(stage)) for stage in moved}
        weights = {id: self.delay(id) for id in self.trained}
        return Pipeline(dict(sorted(homes.items())), back, weights)

    @property
    def stage_of_tensor(self) -> dict[str, int]:
        """The stage that computes each tensor."""
        return {id: self._number(node.stage) for node in self.nodes for id in node.outputs}

    @property
    def stage_of_gradient(self) -> dict[str, int]:
        """The stage that computes the gradient of the node of each tensor."""
        moved = self._differentiated
        return {
            id: self._number(self.backward_stage(node.stage))
            for node in moved
            for id in node.outputs
        }

    def _number(self, stage: int) -> int:
        return self.final_numbers.get(stage, stage)

    def stages_of(self, weight: str) -> list[int]:
        """The stages that read a weight and lead to the loss."""
        found = {node.stage for node in self._differentiated if weight in node.inputs}
        return sorted(found)
