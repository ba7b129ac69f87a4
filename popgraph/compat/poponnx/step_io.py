"""PopONNX's `PyStepIO`, which looked only at the arrays that it needed, and not at their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from popgraph.compat.eras import PLAIN_POPONNX, Era
from popgraph.session import step_io as modern


class PyStepIO(modern.PyStepIO):
    __doc__ = modern.PyStepIO.__doc__
    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        super().__init__(inputs, outputs)
        self.enableRuntimeAsserts(self.ERA.checked)

    def offered_outputs(self) -> list[str]:
        return super().offered_outputs() if self.ERA.checked else []

    def offered_inputs(self) -> list[str]:
        return super().offered_inputs() if self.ERA.checked else []
