"""Options of a training step: one table for Python, the command and `train` sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from popgraph.support.determinism import CHOICES
from popgraph.support.errors import RunError

AUTO = "auto"
RECOMPUTED = {"none": "", "checkpoints": "standard", "norms": "norms"}
"""{name of a recomputation mode: value of `Options.recompute`}."""
PRECISIONS = {"f32": "", "bf16": "bf16"}
"""{name of a precision: value of `Options.precision`}."""
QUANTIZED = ("none", "int8")
"""The types of weights and activations that training rounds in place."""


@dataclass(frozen=True)
class StepOption:
    """An option, its valid values and its effect."""

    name: str
    default: object
    requirement: str
    """The requirement on a value, for messages."""
    is_valid: Callable[[object], bool]
    example: str
    """An example value and its effect."""
    help: str
    metavar: str = ""

    def checked(self, value: object, where: str = "") -> object:
        """The value; RunError if it is invalid."""
        if not self.is_valid(value):
            raise RunError(
                f"{self.name} must be {self.requirement}, not {value!r}",
                where or self.name,
                self.example,
            )
        return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isfinite(value) and value > 0  # type: ignore[arg-type, operator]


STEP_OPTIONS = {
    one.name: one
    for one in (
        StepOption(
            "accumulate",
            1,
            "an integer of at least 1",
            _is_count,
            "accumulate=8 splits a batch of 64 into micro-batches of 8 rows",
            "Split each batch into this many micro-batches, and accumulate their gradients.",
            "N",
        ),
        StepOption(
            "clip",
            None,
            "a positive number",
            _is_positive,
            "clip=1.0 scales the gradients of all weights down to a joint norm of at most 1",
            "The largest joint norm of the gradients of all weights.",
            "NORM",
        ),
        StepOption(
            "loss_scale",
            None,
            "a positive number or 'auto'",
            lambda value: value == AUTO or _is_positive(value),
            "loss_scale='auto' adapts to the gradients, loss_scale=128.0 is constant",
            "Multiply the loss for the gradients of f16 models: a number, or auto.",
            "SCALE|auto",
        ),
        StepOption(
            "recompute",
            "none",
            f"one of {', '.join(RECOMPUTED)}",
            lambda value: isinstance(value, str) and value in RECOMPUTED,
            "recompute='checkpoints' keeps few activations and computes the others again",
            "Compute activations again for gradients: checkpoints, or only norms.",
            "MODE",
        ),
        StepOption(
            "precision",
            "f32",
            f"one of {', '.join(PRECISIONS)}",
            lambda value: isinstance(value, str) and value in PRECISIONS,
            "precision='bf16' multiplies in bf16 and adds in f32; weights stay f32",
            "Type of the factors of matmuls and convolutions: f32, or bf16 with f32 sums.",
            "TYPE",
        ),
        StepOption(
            "determinism",
            "",
            f"one of {', '.join(CHOICES)}",
            lambda value: isinstance(value, str) and value in ("", *CHOICES),
            "determinism='portable' computes the same bits on every machine",
            "Where results have the same bits: on one machine, or portable, on all.",
            "MODE",
        ),
        StepOption(
            "quantize",
            "none",
            f"one of {', '.join(QUANTIZED)}",
            lambda value: isinstance(value, str) and value in QUANTIZED,
            "quantize='int8' trains with rounded weights and activations, and saves them as int8",
            "Train with the rounding of int8 in place, and save a quantized model.",
            "TYPE",
        ),
        StepOption(
            "replicas",
            1,
            "an integer of at least 1",
            _is_count,
            "replicas=2 runs the halves of a batch of 64 on two threads",
            "Run copies of the program on as many threads, each on a part of the batch.",
            "N",
        ),
        StepOption(
            "stages",
            1,
            "an integer of at least 1",
            _is_count,
            "stages=2 with accumulate=8 sends 8 micro-batches through two halves of the model",
            "Cut the model into a pipeline of as many threads for the micro-batches.",
            "N",
        ),
    )
}
