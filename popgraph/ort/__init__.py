"""onnxruntime's Python API over PopGraph: `import popgraph.ort as onnxruntime`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from popgraph import __version__ as __version__
from popgraph.support.garbage import while_importing as _while_importing
from popgraph.support.names import closest as _closest

if TYPE_CHECKING:
    from popgraph.ort.binding import IOBinding as IOBinding
    from popgraph.ort.logs import set_default_logger_callback as set_default_logger_callback
    from popgraph.ort.logs import set_default_logger_severity as set_default_logger_severity
    from popgraph.ort.logs import set_default_logger_verbosity as set_default_logger_verbosity
    from popgraph.ort.memory import OrtAllocatorType as OrtAllocatorType
    from popgraph.ort.memory import OrtArenaCfg as OrtArenaCfg
    from popgraph.ort.memory import OrtMemoryInfo as OrtMemoryInfo
    from popgraph.ort.memory import OrtMemType as OrtMemType
    from popgraph.ort.memory import create_and_register_allocator as create_and_register_allocator
    from popgraph.ort.options import ExecutionMode as ExecutionMode
    from popgraph.ort.options import ExecutionOrder as ExecutionOrder
    from popgraph.ort.options import GraphOptimizationLevel as GraphOptimizationLevel
    from popgraph.ort.options import RunOptions as RunOptions
    from popgraph.ort.options import SessionOptions as SessionOptions
    from popgraph.ort.providers import disable_telemetry_events as disable_telemetry_events
    from popgraph.ort.providers import enable_telemetry_events as enable_telemetry_events
    from popgraph.ort.providers import get_all_providers as get_all_providers
    from popgraph.ort.providers import get_available_providers as get_available_providers
    from popgraph.ort.providers import get_build_info as get_build_info
    from popgraph.ort.providers import get_device as get_device
    from popgraph.ort.providers import get_version_string as get_version_string
    from popgraph.ort.providers import set_seed as set_seed
    from popgraph.ort.session import InferenceSession as InferenceSession
    from popgraph.ort.values import ModelMetadata as ModelMetadata
    from popgraph.ort.values import NodeArg as NodeArg
    from popgraph.ort.values import OrtDevice as OrtDevice
    from popgraph.ort.values import OrtValue as OrtValue

_HOMES = {
    "IOBinding": "binding",
    "set_default_logger_callback": "logs",
    "set_default_logger_severity": "logs",
    "set_default_logger_verbosity": "logs",
    "OrtAllocatorType": "memory",
    "OrtArenaCfg": "memory",
    "OrtMemoryInfo": "memory",
    "OrtMemType": "memory",
    "create_and_register_allocator": "memory",
    "ExecutionMode": "options",
    "ExecutionOrder": "options",
    "GraphOptimizationLevel": "options",
    "RunOptions": "options",
    "SessionOptions": "options",
    "disable_telemetry_events": "providers",
    "enable_telemetry_events": "providers",
    "get_all_providers": "providers",
    "get_available_providers": "providers",
    "get_build_info": "providers",
    "get_device": "providers",
    "get_version_string": "providers",
    "set_seed": "providers",
    "InferenceSession": "session",
    "ModelMetadata": "values",
    "NodeArg": "values",
    "OrtDevice": "values",
    "OrtValue": "values",
}
"""Public name -> module of this package."""

_ELSEWHERE = {
    "SparseTensor": "pass dense arrays: sparse inputs are not supported",
    "LoraAdapter": "merge the adapter into the weights before the session is created",
    "ModelCompiler": "`popgraph compile` fills the cache, `popgraph export` writes one folder of C",
    "quantization": "docs/quantize.md",
    "training": "popgraph.compat.ort_training for on-device training, or popgraph.train",
    "transformers": "PopGraph fuses operators itself; pass the exported model",
    "tools": "popgraph --help",
}
"""onnxruntime's name -> PopGraph's way, for names that this module does not have."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name on first use, so that `import popgraph.ort` stays fast."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _HOMES:
        with _while_importing():
            value: object = getattr(import_module(f"popgraph.ort.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    way = _ELSEWHERE.get(name) or _closest(name, _HOMES)
    hint = f"\n  try: {way}" if way else ""
    raise AttributeError(f"module 'popgraph.ort' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
