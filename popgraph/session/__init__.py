"""PopART's names: sessions, what they are told to do, and the builder of their graphs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from popgraph.builder.opset import enums as _enums
from popgraph.builder.popart.names import RESERVED_PREFIXES as _RESERVED_PREFIXES

if TYPE_CHECKING:
    from popgraph.builder.opset.comm_group import *  # noqa: F403
    from popgraph.builder.opset.enums import *  # noqa: F403
    from popgraph.builder.opset.exceptions import *  # noqa: F403
    from popgraph.builder.opset.graphcore_opset import *  # noqa: F403
    from popgraph.builder.opset.opsets import *  # noqa: F403
    from popgraph.builder.opset.tensorinfo import *  # noqa: F403
    from popgraph.builder.popart.contexts import *  # noqa: F403
    from popgraph.builder.popart.graph_transformer import *  # noqa: F403
    from popgraph.builder.popart.input_settings import *  # noqa: F403
    from popgraph.builder.popart.variable_settings import *  # noqa: F403
    from popgraph.session.about import *  # noqa: F403
    from popgraph.session.builder import *  # noqa: F403
    from popgraph.session.dataflow import *  # noqa: F403
    from popgraph.session.debugging import *  # noqa: F403
    from popgraph.session.devices import *  # noqa: F403
    from popgraph.session.inference_session import *  # noqa: F403
    from popgraph.session.logger import *  # noqa: F403
    from popgraph.session.losses import *  # noqa: F403
    from popgraph.session.numerics import *  # noqa: F403
    from popgraph.session.op_definition import *  # noqa: F403
    from popgraph.session.optimizer_base import *  # noqa: F403
    from popgraph.session.optimizer_value import *  # noqa: F403
    from popgraph.session.optimizers import *  # noqa: F403
    from popgraph.session.options import *  # noqa: F403
    from popgraph.session.patterns import *  # noqa: F403
    from popgraph.session.settings import *  # noqa: F403
    from popgraph.session.step_io import *  # noqa: F403
    from popgraph.session.training_session import *  # noqa: F403

_MODULES = {
    "popgraph.builder.opset.graphcore_opset": "AiGraphcoreOpset1",
    "popgraph.builder.opset.opsets": """
        AiOnnxOpset6 AiOnnxOpset7 AiOnnxOpset8 AiOnnxOpset9 AiOnnxOpset10 AiOnnxOpset11
    """,
    "popgraph.builder.popart.contexts": """
        AttributeContextManager KeyValueContextManager NameContextManager
    """,
    "popgraph.builder.popart.graph_transformer": "GraphTransformer",
    "popgraph.builder.popart.input_settings": "InputSettings",
    "popgraph.builder.opset.comm_group": "CommGroup",
    "popgraph.builder.popart.variable_settings": "VariableSettings",
    "popgraph.builder.opset.tensorinfo": "TensorInfo getTensorInfo",
    "popgraph.builder.opset.exceptions": """
        popart_exception popart_internal_exception popart_runtime_error optimizer_replacement_error
        popart_unsupported_exception OutOfMemoryException poplibs_exception poplar_exception
        poplar_runtime_error poplar_application_runtime_error poplar_system_runtime_error
        poplar_recoverable_runtime_error poplar_unrecoverable_runtime_error
        poplar_unknown_runtime_error
    """,
    "popgraph.session.about": """
        OperatorIdentifier defaultAiGraphcoreOpset defaultAiOnnxMlOpset
        defaultAiOnnxOpset getSupportedOperations getUnsupportedOperations packageHash
        versionNumber versionString
    """,
    "popgraph.session.builder": "Builder",
    "popgraph.session.dataflow": "AnchorReturnType DataFlow InputShapeInfo",
    "popgraph.session.debugging": """
        DebugContext DebugInfo NumIOTiles OutOfMemoryError SourceLocation closePoplarDebugInfo
        initializePoplarDebugInfo
    """,
    "popgraph.session.devices": """
        DeviceInfo DeviceManager syncPatternFromString syncPatternToString
    """,
    "popgraph.session.numerics": "NumericsReport",
    "popgraph.session.op_definition": "OpDefinition getSupportedOperationsDefinition",
    "popgraph.session.logger": "Logger getLogger",
    "popgraph.session.losses": "IdentityLoss L1Loss Loss NllLoss",
    "popgraph.session.optimizer_value": "ClipNormSettings OptimizerValue OptimizerValueMap",
    "popgraph.session.optimizer_base": "Optimizer",
    "popgraph.session.optimizers": "Adam Adaptive ConstSGD SGD",
    "popgraph.session.options": "SessionOptions",
    "popgraph.session.patterns": "Patterns",
    "popgraph.session.inference_session": "InferenceSession",
    "popgraph.session.settings": """
        AccumulateOuterFragmentSettings AutodiffSettings AutomaticLossScalingSettings
        BatchSerializationSettings ExecutionPhaseSettings ExperimentalSettings
        ReplicatedCollectivesSettings TensorLocation TensorLocationSettings
    """,
    "popgraph.session.step_io": "IStepIO IWeightsIO PyStepIO PyStepIOCallback PyWeightsIO StepIO",
    "popgraph.session.thrown": """
        _throw_popart_error _throw_popart_internal_error _throw_popart_runtime_error
        _throw_poplibs_error _throw_poplar_error _throw_poplar_runtime_error
        _throw_application_runtime_error _throw_system_runtime_error
        _throw_recoverable_runtime_error _throw_unrecoverable_runtime_error
        _throw_unknown_runtime_error
    """,
    "popgraph.session.training_session": "TrainingSession",
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
        value = import_module("popgraph.session.about").PREFIX_FUNCTIONS[name]
    else:
        raise AttributeError(f"module 'popgraph.session' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_CORES, *_HOMES, *_RESERVED_PREFIXES])


if not TYPE_CHECKING:  # A type checker takes a list that it cannot compute for an empty one.
    __all__ = __dir__()
