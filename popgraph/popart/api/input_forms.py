"""The forms in which PopART's builder takes inputs, weights and attributes of custom operators."""

from __future__ import annotations

from inspect import Parameter, Signature

import numpy as np

from popgraph.popart.api.input_settings import InputSettings
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.api.variable_settings import VariableSettings
from popgraph.popart.exceptions import popart_exception


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


def custom_attribute(name: str, value: object) -> object:
    """A word or a number, or a list of words or of numbers; anything else is refused."""
    if isinstance(value, list | tuple):
        # NumPy's whole numbers stand in lists only, as in all releases of PopART but its last.
        found = [int(one) if isinstance(one, np.integer) else one for one in value]
        kinds = {str if isinstance(one, str) else float for one in found if _is_plain(one)}
        if len(kinds) > 1 or not all(map(_is_plain, found)):
            raise popart_exception(
                f"Invalid or mismatched python list type provided in custom op attribute '{name}'"
            )
        return found
    if not _is_plain(value):
        raise popart_exception(f"Invalid type provided in custom op attribute '{name}'")
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)
