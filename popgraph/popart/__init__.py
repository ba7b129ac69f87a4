"""PopART's names: sessions, what they are told to do, and the builder of their graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from popgraph.builder.opset import enums as _enums
from popgraph.popart.api.names import RESERVED_PREFIXES as _RESERVED_PREFIXES

if TYPE_CHECKING:
    from popgraph.builder.opset.comm_group import *  # noqa: F403
    from popgraph.builder.opset.enums import *  # noqa: F403
    from popgraph.builder.opset.graphcore_opset import *  # noqa: F403
    from popgraph.popart.about import *  # noqa: F403
    from popgraph.popart.api.contexts import *  # noqa: F403
    from popgraph.popart.api.dataflow import *  # noqa: F403
    from popgraph.popart.api.debugging import *  # noqa: F403
    from popgraph.popart.api.devices import *  # noqa: F403
    from popgraph.popart.api.graph_transformer import *  # noqa: F403
    from popgraph.popart.api.input_settings import *  # noqa: F403
    from popgraph.popart.api.logger import *  # noqa: F403
    from popgraph.popart.api.losses import *  # noqa: F403
    from popgraph.popart.api.opsets import *  # noqa: F403
    from popgraph.popart.api.optimizer_base import *  # noqa: F403
    from popgraph.popart.api.optimizer_value import *  # noqa: F403
    from popgraph.popart.api.optimizers import *  # noqa: F403
    from popgraph.popart.api.options import *  # noqa: F403
    from popgraph.popart.api.patterns import *  # noqa: F403
    from popgraph.popart.api.settings import *  # noqa: F403
    from popgraph.popart.api.step_io import *  # noqa: F403
    from popgraph.popart.api.tensorinfo import *  # noqa: F403
    from popgraph.popart.api.variable_settings import *  # noqa: F403
    from popgraph.popart.builder import *  # noqa: F403
    from popgraph.popart.exceptions import *  # noqa: F403
    from popgraph.popart.numerics import *  # noqa: F403
    from popgraph.popart.operators import *  # noqa: F403
    from popgraph.popart.sessions.inference_session import *  # noqa: F403
    from popgraph.popart.sessions.training_session import *  # noqa: F403

_MODULES = {
    "popgraph.builder.opset.graphcore_opset": "AiGraphcoreOpset1",
    "popgraph.popart.api.opsets": """
        AiOnnxOpset6 AiOnnxOpset7 AiOnnxOpset8 AiOnnxOpset9 AiOnnxOpset10 AiOnnxOpset11
    """,
    "popgraph.popart.api.contexts": """
        AttributeContextManager KeyValueContextManager NameContextManager
    """,
    "popgraph.popart.api.graph_transformer": "GraphTransformer",
    "popgraph.popart.api.input_settings": "InputSettings",
    "popgraph.builder.opset.comm_group": "CommGroup",
    "popgraph.popart.api.variable_settings": "VariableSettings",
    "popgraph.popart.api.tensorinfo": "TensorInfo getTensorInfo",
    "popgraph.popart.exceptions": """
        popart_exception popart_internal_exception popart_runtime_error optimizer_replacement_error
        popart_unsupported_exception OutOfMemoryException poplibs_exception poplar_exception
        poplar_runtime_error poplar_application_runtime_error poplar_system_runtime_error
        poplar_recoverable_runtime_error poplar_unrecoverable_runtime_error
        poplar_unknown_runtime_error
    """,
    "popgraph.popart.about": """
        defaultAiGraphcoreOpset defaultAiOnnxMlOpset defaultAiOnnxOpset packageHash versionNumber
        versionString
    """,
    "popgraph.popart.builder": "Builder",
    "popgraph.popart.api.dataflow": "AnchorReturnType DataFlow InputShapeInfo",
    "popgraph.popart.api.debugging": """
        DebugContext DebugInfo NumIOTiles OutOfMemoryError SourceLocation closePoplarDebugInfo
        initializePoplarDebugInfo
    """,
    "popgraph.popart.api.devices": """
        DeviceInfo DeviceManager syncPatternFromString syncPatternToString
    """,
    "popgraph.popart.numerics": "NumericsReport",
    "popgraph.popart.operators": """
        OpDefinition OperatorIdentifier getSupportedOperations getSupportedOperationsDefinition
        getUnsupportedOperations
    """,
    "popgraph.popart.api.logger": "Logger getLogger",
    "popgraph.popart.api.losses": "IdentityLoss L1Loss Loss NllLoss",
    "popgraph.popart.api.optimizer_value": "ClipNormSettings OptimizerValue OptimizerValueMap",
    "popgraph.popart.api.optimizer_base": "Optimizer",
    "popgraph.popart.api.optimizers": "Adam Adaptive ConstSGD SGD",
    "popgraph.popart.api.options": "SessionOptions",
    "popgraph.popart.api.patterns": "Patterns",
    "popgraph.popart.sessions.inference_session": "InferenceSession",
    "popgraph.popart.api.settings": """
        AccumulateOuterFragmentSettings AutodiffSettings AutomaticLossScalingSettings
        BatchSerializationSettings ExecutionPhaseSettings ExperimentalSettings
        ReplicatedCollectivesSettings TensorLocation TensorLocationSettings
    """,
    "popgraph.popart.api.step_io": """
        IStepIO IWeightsIO PyStepIO PyStepIOCallback PyWeightsIO StepIO
    """,
    "popgraph.popart.thrown": """
        _throw_popart_error _throw_popart_internal_error _throw_popart_runtime_error
        _throw_poplibs_error _throw_poplar_error _throw_poplar_runtime_error
        _throw_application_runtime_error _throw_system_runtime_error
        _throw_recoverable_runtime_error _throw_unrecoverable_runtime_error
        _throw_unknown_runtime_error
    """,
    "popgraph.popart.sessions.training_session": "TrainingSession",
}
_CORES = {
    "_BuilderCore": "Builder",
    "_InferenceSessionCore": "InferenceSession",
    "_TensorInfoCore": "TensorInfo",
    "_TrainingSessionCore": "TrainingSession",
}
"""What PopART calls the classes below its own, which are one with them here."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
_ENUMS = [
    name
    for name, value in vars(_enums).items()
    if isinstance(value, type)
    and issubclass(value, _enums.PopartEnum)
    and value is not _enums.PopartEnum
]
_HOMES |= dict.fromkeys(_ENUMS, "popgraph.builder.opset.enums")


def __getattr__(name: str) -> Callable[[], str]:
    """Each name is imported when it is first used; the rest are functions of no arguments."""
    value: Callable[[], str]
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _CORES:
        return __getattr__(_CORES[name])
    elif name in _RESERVED_PREFIXES:
        value = partial(str, _RESERVED_PREFIXES[name])
    else:
        raise AttributeError(f"module 'popgraph.popart' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_CORES, *_HOMES, *_RESERVED_PREFIXES])


if not TYPE_CHECKING:  # A type checker takes a list that it cannot compute for an empty one.
    __all__ = __dir__()
