"""The forms in which PopART's builder takes inputs and weights."""

from __future__ import annotations

from inspect import Parameter, Signature

import numpy as np

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.input_settings import InputSettings
from popgraph.builder.popart.variable_settings import VariableSettings


def _form(**parameters: object) -> Signature:
    """A form of a method: parameters with annotations, and a debug context."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    found = [Parameter(name, kind, annotation=one) for name, one in parameters.items()]
    return Signature([*found, Parameter("debugContext", kind, default="", annotation=str)])


INPUTS = (
    _form(tensorInfo=TensorInfo, settings=InputSettings),
    _form(tensorInfo=TensorInfo),
    _form(tensorInfo=tuple),
    _form(dataType=object, shape=list, settings=InputSettings),
    _form(dataType=object, shape=list),
)
WEIGHTS = (
    _form(initVal=np.ndarray, variableSettings=VariableSettings),
    _form(initVal=np.ndarray),
)
