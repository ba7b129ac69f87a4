"""Chains of segments without host steps between them; values are looked up by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.hosted.part import LazyProgram, Values
from popgraph.passes.onnx.partition import Step
from popgraph.support.errors import NeedsHostError


@dataclass(frozen=True)
class Chain:
    """
    The steps of a model without host steps, where one program per segment fits all values.

    Looking values up by SSA value instead of by name takes 4 microseconds longer per call, since
    xDSL hashes values in Python.
    """

    steps: Sequence[Step]
    parts: Sequence[tuple[LazyProgram, tuple[str, ...]]]
    """The parts in order, with the names of their inputs."""
    values: Mapping[str, SSAValue]
    outputs: Mapping[str, str]
    """Output name -> name of its value."""

    @staticmethod
    def of(
        steps: Sequence[Step],
        parts: Sequence[LazyProgram],
        inputs: Mapping[str, SSAValue],
        outputs: Mapping[str, SSAValue],
    ) -> Chain | None:
        """
        None if a segment reads a value that neither an input nor a segment provides: a literal.
        """
        values = dict(inputs)
        for part in parts:
            if not _is_subset(part.piece.inputs, values):
                return None
            for name, value in part.piece.outputs.items():
                if values.setdefault(name, value) is not value:
                    return None
        named = {name: value_name(value) for name, value in outputs.items()}
        if not _is_subset({named[name]: value for name, value in outputs.items()}, values):
            return None
        return Chain(steps, [(part, tuple(part.piece.inputs)) for part in parts], values, named)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the chain; raises `SplitRequired` if a segment has to be split."""
        known = dict(inputs)
        for at, (part, names) in enumerate(self.parts):
            try:
                known |= part.call({name: known[name] for name in names})
            except NeedsHostError as error:
                raise SplitRequired(
                    at, {self.values[name]: known[name] for name in known}
                ) from error
        return {name: known[value] for name, value in self.outputs.items()}


class SplitRequired(Exception):
    """A segment of a chain has no program; the values computed before it remain valid."""

    def __init__(self, at: int, values: Values) -> None:
        super().__init__()
        self.at = at
        self.values = values


def _is_subset(subset: Mapping[str, SSAValue], values: Mapping[str, SSAValue]) -> bool:
    return all(values.get(name) is value for name, value in subset.items())
