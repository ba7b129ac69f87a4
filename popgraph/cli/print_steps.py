"""The steps of a model of which Python computes some nodes, as `popgraph print` shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import signature
from popgraph.compiler import BuildRequest, interface_of
from popgraph.dialects.onnx.types import describe
from popgraph.hosted import Run, step_line
from popgraph.measure.inputs import made_up_inputs
from popgraph.passes.onnx.partition import Segment
from popgraph.support.arrays import Array

Text = Callable[[BuildRequest], str]
"""The text of a segment that may be lowered."""


def step_lines(request: BuildRequest) -> Iterator[str]:
    """One line for each step, in order."""
    model = request.hosted(request.runner_of)
    for number, step in enumerate(model.steps):
        yield f"// {step_line(number, step)}"


def lowered_steps(request: BuildRequest, text: Text) -> Iterator[str]:
    """A line for each step, and the text of each that is compiled."""
    texts: dict[int, str] = {}

    def start(part: ModuleOp, number: int) -> Run:
        def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            called, rest = request.segment(part, number).for_call(inputs)
            shapes = {name: describe(type_) for name, type_ in signature(called.module).items()}
            listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
            sizes = f"// for {listed}: the sizes that made-up inputs give\n"
            known = interface_of(part, request.compilation.weights) is None
            made = called.copied().executable().run(rest)
            texts[number] = ("" if known else sizes) + text(called.copied())
            return made

        return run

    model = request.hosted(start)
    segments = {n: step for n, step in enumerate(model.steps) if isinstance(step, Segment)}
    if any(interface_of(one.module, request.compilation.weights) for one in segments.values()):
        model.run(made_up_inputs(request.module))
    else:
        texts |= {n: text(request.segment(one.module, n).copied()) for n, one in segments.items()}
    for number, step in enumerate(model.steps):
        yield f"// {step_line(number, step)}"
        if number in texts:
            yield f"{texts[number]}\n"
