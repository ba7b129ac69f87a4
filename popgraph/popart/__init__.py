"""PopART's names: sessions with their options, and the builder of their graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from popgraph.builder.opset.enums import PopartEnum as _PopartEnum
from popgraph.popart.api.names import RESERVED_PREFIXES as _RESERVED_PREFIXES

if TYPE_CHECKING:
    from popgraph.builder.opset.enums import *  # noqa: F403
    from popgraph.builder.opset.graphcore_opset import *  # noqa: F403
    from popgraph.popart.about import *  # noqa: F403
    from popgraph.popart.api.annotations import *  # noqa: F403
    from popgraph.popart.api.dataflow import *  # noqa: F403
    from popgraph.popart.api.debugging import *  # noqa: F403
    from popgraph.popart.api.devices import *  # noqa: F403
    from popgraph.popart.api.graph_transformer import *  # noqa: F403
    from popgraph.popart.api.logger import *  # noqa: F403
    from popgraph.popart.api.losses import *  # noqa: F403
    from popgraph.popart.api.opsets import *  # noqa: F403
    from popgraph.popart.api.optimizer_base import *  # noqa: F403
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
    "builder.opset.enums": "CommGroup",
    "builder.opset.graphcore_opset": "AiGraphcoreOpset1",
    "popart.about": """
        defaultAiGraphcoreOpset defaultAiOnnxMlOpset defaultAiOnnxOpset packageHash versionNumber
        versionString
    """,
    "popart.api.annotations": "AttributeContextManager KeyValueContextManager NameContextManager",
    "popart.api.dataflow": "AnchorReturnType DataFlow InputShapeInfo",
    "popart.api.debugging": """
        DebugContext DebugInfo NumIOTiles OutOfMemoryError SourceLocation closePoplarDebugInfo
        initializePoplarDebugInfo
    """,
    "popart.api.devices": "DeviceInfo DeviceManager syncPatternFromString syncPatternToString",
    "popart.api.graph_transformer": "GraphTransformer",
    "popart.api.logger": "Logger getLogger",
    "popart.api.losses": "IdentityLoss L1Loss Loss NllLoss",
    "popart.api.opsets": """
        AiOnnxOpset6 AiOnnxOpset7 AiOnnxOpset8 AiOnnxOpset9 AiOnnxOpset10 AiOnnxOpset11
    """,
    "popart.api.optimizer_base": """
        ClipNormSettings Optimizer OptimizerValue OptimizerValueMap
    """,
    "popart.api.optimizers": "Adam Adaptive ConstSGD SGD",
    "popart.api.options": "SessionOptions",
    "popart.api.patterns": "Patterns",
    "popart.api.settings": """
        AccumulateOuterFragmentSettings AutodiffSettings AutomaticLossScalingSettings
        BatchSerializationSettings ExecutionPhaseSettings ExperimentalSettings InputSettings
        ReplicatedCollectivesSettings TensorLocation TensorLocationSettings
    """,
    "popart.api.step_io": "IStepIO IWeightsIO PyStepIO PyStepIOCallback PyWeightsIO StepIO",
    "popart.api.tensorinfo": "TensorInfo getTensorInfo",
    "popart.api.variable_settings": "VariableSettings",
    "popart.builder": "Builder",
    "popart.exceptions": """
        OutOfMemoryException optimizer_replacement_error popart_exception popart_internal_exception
        popart_runtime_error popart_unsupported_exception poplar_application_runtime_error
        poplar_exception poplar_recoverable_runtime_error poplar_runtime_error
        poplar_system_runtime_error poplar_unknown_runtime_error poplar_unrecoverable_runtime_error
        poplibs_exception _throw_application_runtime_error _throw_poplar_error
        _throw_poplar_runtime_error _throw_poplibs_error _throw_popart_error
        _throw_popart_internal_error _throw_popart_runtime_error _throw_recoverable_runtime_error
        _throw_system_runtime_error _throw_unknown_runtime_error _throw_unrecoverable_runtime_error
    """,
    "popart.numerics": "NumericsReport",
    "popart.operators": """
        OpDefinition OperatorIdentifier getSupportedOperations getSupportedOperationsDefinition
        getUnsupportedOperations
    """,
    "popart.sessions.inference_session": "InferenceSession",
    "popart.sessions.training_session": "TrainingSession",
}
"""Modules below `popgraph` -> public names."""
_CORES = {
    "_BuilderCore": "Builder",
    "_InferenceSessionCore": "InferenceSession",
    "_TensorInfoCore": "TensorInfo",
    "_TrainingSessionCore": "TrainingSession",
}
"""Names of PopART's core classes, which are the same classes here."""
_HOMES = {
    name: f"popgraph.{module}" for module, names in _MODULES.items() for name in names.split()
}
_HOMES |= {one.__name__: one.__module__ for one in _PopartEnum.__subclasses__()}


def __getattr__(name: str) -> Callable[[], str]:
    """Imports each name on first use; the remaining names are functions without arguments."""
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
