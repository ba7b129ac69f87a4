"""Models with sequences and optionals: one model of tensors per combination of lengths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

from xdsl.ir import Attribute

from popgraph.backends.base import ComputedBy, Executable
from popgraph.dialects.onnx.open_containers import Length, closed, opened
from popgraph.open_model import SPECIALISATIONS
from popgraph.runner import Runner
from popgraph.support.inputs import check_names
from popgraph.support.locks import Lock

Lengths: TypeAlias = Mapping[str, Length]
"""Lengths by input name."""


@dataclass
class ContainerModel:
    """
    Maps sequences and optionals to the tensor inputs and outputs of programs.

    Lengths are part of a program's signature, as shapes are. After many different lengths, no more
    programs are built; Python then holds the sequences.
    """

    inputs: Mapping[str, Attribute]
    """The types of inputs that are sequences or optionals."""
    outputs: Collection[str]
    """The outputs that are sequences or optionals."""
    input_names: Collection[str]
    """The names of all required inputs."""
    output_names: Collection[str]
    """The names of all outputs, in order."""
    build: Callable[[Lengths], Runner]
    """Builds the model of tensors for these lengths."""
    build_python: Callable[[], Runner]
    """Builds the model that keeps sequences in Python, for any length."""
    _runners: dict[tuple[Length, ...], Runner] = field(default_factory=dict)
    _python_runner: Runner | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def single(self) -> Runner:
        """The model of tensors, built at once if no input is a sequence."""
        made = self._runner({})
        assert made is not None, "one is not too many"
        return made

    def run(self, inputs: Mapping[str, Any], donate: Collection[str] = ()) -> dict[str, Any]:
        """The outputs for these inputs; see `Executable.run`."""
        lengths, tensors = self._opened(inputs)
        runner = self._runner(lengths)
        if runner is None:
            return self._python()(inputs, donate=donate)
        made = runner(tensors, donate=donate)
        return {
            name: closed(name, made) if name in self.outputs else made[name]
            for name in self.output_names
        }

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """The program of tensors for inputs like these."""
        lengths, tensors = self._opened(inputs)
        runner = self._runner(lengths)
        return self._python().program(inputs) if runner is None else runner.program(tensors)

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the runs so far."""
        with self._lock:
            made = [*self._runners.values(), *filter(None, [self._python_runner])]
        return reduce(or_, (runner.computed_by for runner in made), ComputedBy())

    def _opened(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Length], dict[str, Any]]:
        """The lengths of the given sequences, and their tensors by program input."""
        if any(name not in inputs for name in self.inputs):
            check_names(inputs, self.input_names)
        lengths, tensors = dict[str, Length](), dict[str, Any]()
        for name, value in inputs.items():
            if name in self.inputs:
                lengths[name], found = opened(name, self.inputs[name], value)
                tensors |= found
            else:
                tensors[name] = value
        return lengths, tensors

    def _runner(self, lengths: Lengths) -> Runner | None:
        """The model for these lengths; None if there are too many."""
        key = tuple(lengths[name] for name in self.inputs)
        with self._lock:
            if key not in self._runners and len(self._runners) < SPECIALISATIONS:
                self._runners[key] = self.build(lengths)
            return self._runners.get(key)

    def _python(self) -> Runner:
        with self._lock:
            if self._python_runner is None:
                self._python_runner = self.build_python()
            return self._python_runner
