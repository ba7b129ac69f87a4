"""The texts of a model with host steps for `popgraph print`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import SSAValue

from popgraph.backends.reference import signature
from popgraph.compiler import BuildRequest, interface_of
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import describe
from popgraph.hosted import HostedModel
from popgraph.measure.inputs import random_inputs
from popgraph.measure.recorded_steps import RanSegment, run_steps, segment_request
from popgraph.passes.onnx.partition import HostStep, Segment, Step, read_by, why_hosted
from popgraph.support.errors import NeedsHostError

Text = Callable[[BuildRequest], str]
"""The text of a segment, which is lowered in place."""


def step_lines(request: BuildRequest) -> Iterator[str]:
    """One line per step, in order."""
    for number, step in enumerate(request.steps().steps):
        yield f"// {step_line(number, step)}"


def lowered_steps(
    request: BuildRequest, text: Text, reason: NeedsHostError | None = None
) -> Iterator[str]:
    """
    A line per step, and the text of each compiled one.

    `reason` is the error that splits a model without host nodes.
    """
    model = request.steps(reason)
    texts = _texts(request, model, text)
    for number, step in enumerate(model.steps):
        yield f"// {step_line(number, step)}"
        if step in texts:
            yield f"{texts[step]}\n"


def lowered_whole(request: BuildRequest, text: Text) -> Iterator[str]:
    """The text of a model, or of its steps if lowering finds that it needs the host."""
    try:
        yield text(request)
    except NeedsHostError as error:
        if not request.may_split:
            raise
        yield from lowered_steps(request.before_lowering(error), text, error)


def _texts(request: BuildRequest, model: HostedModel, text: Text) -> dict[Step, str]:
    """The texts of segments; unknown sizes are taken from a run on random inputs."""
    segments = [step for step in model.steps if isinstance(step, Segment)]
    wanted = [(step, segment_request(request, model, step)) for step in segments]
    if all(_is_static(one) for _, one in wanted):
        try:
            return {step: text(one) for step, one in wanted}
        except NeedsHostError:
            pass  # It is split when it runs.
    ran = run_steps(request, model, random_inputs(request.module))
    found = [one for one in ran if isinstance(one, RanSegment)]
    return {one.step: _for_what_it_got(request, model, one) + text(one.request) for one in found}


def _for_what_it_got(request: BuildRequest, model: HostedModel, ran: RanSegment) -> str:
    """A comment with the sizes of a segment, if they are not static."""
    if _is_static(segment_request(request, model, ran.step)):
        return ""
    shapes = {name: describe(type_) for name, type_ in signature(ran.request.module).items()}
    listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    return f"// for {listed}: the sizes that made-up inputs give\n"


def _is_static(request: BuildRequest) -> bool:
    return interface_of(request.module, request.compilation.weights, request.role.known) is None


MAX_OPERATORS = 6
"""Most operators of a segment to name in a line."""


def step_line(number: int, step: Step) -> str:
    """Describes a step in one line: its kind, operators, inputs and outputs."""
    if isinstance(step, HostStep):
        does = f"in Python: {step.op.op_type} ({why_hosted(step.op)})"
        given: list[SSAValue] = list(read_by(step.op))
        made: list[SSAValue] = list(step.op.results)
    else:
        names = list(dict.fromkeys(op.op_type for op in step.nodes))
        does = ", ".join([*names[:MAX_OPERATORS], *(["..."] if names[MAX_OPERATORS:] else [])])
        does = f"compiled: {does}"
        given, made = list(step.inputs.values()), list(step.outputs.values())
    return f"step {number + 1}, {does}; {_described(given)} -> {_described(made)}"


def _described(values: Iterable[SSAValue]) -> str:
    texts = [f"{value_name(value)}: {describe(value.type)}" for value in dict.fromkeys(values)]
    return ", ".join(texts) or "nothing"
