"""PopART's names: sessions, what they are told to do, and the builder of their graphs."""

from __future__ import annotations

from importlib import import_module

from popgraph.builder.opset import enums as _enums
from popgraph.builder.popart.names import RESERVED_PREFIXES as _RESERVED_PREFIXES

_MODULES = {
    "popgraph.builder.popart.builder": "Builder",
    "popgraph.builder.opset.graphcore_opset": "AiGraphcoreOpset1",
    "popgraph.builder.popart.input_settings": "InputSettings",
    "popgraph.builder.opset.tensorinfo": "TensorInfo getTensorInfo",
    "popgraph.builder.opset.exceptions": """
        popart_exception popart_internal_exception popart_runtime_error optimizer_replacement_error
        popart_unsupported_exception OutOfMemoryException poplibs_exception poplar_exception
        poplar_runtime_error poplar_application_runtime_error poplar_system_runtime_error
        poplar_recoverable_runtime_error poplar_unrecoverable_runtime_error
        poplar_unknown_runtime_error
    """,
    "popgraph.session.about": """
        DebugContext OperatorIdentifier defaultAiGraphcoreOpset defaultAiOnnxMlOpset
        defaultAiOnnxOpset getSupportedOperations getUnsupportedOperations packageHash
        versionNumber versionString
    """,
    "popgraph.session.dataflow": "AnchorReturnType DataFlow InputShapeInfo",
    "popgraph.session.devices": """
        DeviceInfo DeviceManager syncPatternFromString syncPatternToString
    """,
    "popgraph.session.logger": "Logger getLogger",
    "popgraph.session.losses": "IdentityLoss L1Loss Loss NllLoss",
    "popgraph.session.optimizer_value": "ClipNormSettings OptimizerValue OptimizerValueMap",
    "popgraph.session.optimizers": "Adam Adaptive ConstSGD Optimizer SGD",
    "popgraph.session.options": "SessionOptions",
    "popgraph.session.patterns": "Patterns",
    "popgraph.session.session": "InferenceSession",
    "popgraph.session.settings": """
        AccumulateOuterFragmentSettings AutodiffSettings AutomaticLossScalingSettings
        BatchSerializationSettings CommGroup ExecutionPhaseSettings ExperimentalSettings
        ReplicatedCollectivesSettings TensorLocation TensorLocationSettings VariableSettings
    """,
    "popgraph.session.step_io": "PyStepIO PyStepIOCallback PyWeightsIO StepIO",
    "popgraph.session.training_session": "TrainingSession",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
_ENUMS = [
    name
    for name, value in vars(_enums).items()
    if isinstance(value, type)
    and issubclass(value, _enums.PopartEnum)
    and value is not _enums.PopartEnum
]
_HOMES |= dict.fromkeys(_ENUMS, "popgraph.builder.opset.enums")

__all__ = sorted([*_HOMES, *_RESERVED_PREFIXES])


def __getattr__(name: str) -> object:
    """Each name is imported when it is first used."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _RESERVED_PREFIXES:
        value = import_module("popgraph.session.about").PREFIX_FUNCTIONS[name]
    else:
        raise AttributeError(f"module 'popgraph.session' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
