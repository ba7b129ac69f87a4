"""`SessionOptions`, `RunOptions` and their enumerations."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Any

from popgraph.ort import errors
from popgraph.ort.errors import UnknownOption, WrongCall, WrongType, WrongValue
from popgraph.ort.values import OrtValue
from popgraph.support.names import closest


class GraphOptimizationLevel(IntEnum):
    """The optimization level; PopGraph's programs are the same at all levels."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether operators run concurrently; PopGraph's threads share each operator's loops."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order of nodes; PopGraph schedules them itself."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


def settings_of(kind: type) -> dict[str, Any]:
    """The defaults of a class of options, by name."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") and isinstance(value, bool | int | str)
    }


class _Settings:
    """Attributes with checked names and types; class attributes are the defaults."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            value = self._checked(name, value)
        object.__setattr__(self, name, value)

    def _checked(self, name: str, value: object) -> object:
        kind, known = type(self), settings_of(type(self))
        if name not in known:
            close = closest(name, known)
            raise UnknownOption(
                f"{kind.__name__} has no attribute {name!r}",
                hint=f"did you mean {close!r}?" if close else f"it has {', '.join(known)}",
            )
        wanted = type(known[name])
        if isinstance(value, wanted):
            return value
        if wanted is int and not isinstance(value, Enum) and hasattr(value, "__index__"):
            return operator.index(value)
        raise WrongType(
            f"{kind.__name__}.{name} must be {wanted.__name__}, not {type(value).__name__}",
            hint=f"the default is {known[name]!r}",
        )

    def _changed(self) -> list[str]:
        """The names of settings that differ from their defaults."""
        return [
            name for name, value in settings_of(type(self)).items() if getattr(self, name) != value
        ]

    def _set_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongType(
                f"a configuration entry must be two strings, not {key!r} and {value!r}",
                hint='for example ("session.use_env_allocators", "1")',
            )
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise WrongCall(
                f"{type(self).__name__} does not have configuration with key: {key}",
                hint=f"its keys are {', '.join(self._entries) or 'none'}",
            )
        return self._entries[key]


class SessionOptions(_Settings):
    """
    The options of a session, with onnxruntime's names and defaults.

    Options without a meaning in PopGraph are accepted; a session that uses one logs a note.
    """

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    def __init__(self) -> None:
        super().__init__()
        self._by_name: dict[str, int] = {}
        self._by_denotation: dict[str, int] = {}
        self._initializers: dict[str, OrtValue] = {}

    def _copied(self) -> SessionOptions:
        """A copy that later changes of the original do not affect."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            object.__setattr__(made, name, copy.copy(value))
        return made

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Sets the size of a symbolic dimension of inputs."""
        self._by_name[dim_name] = _size(dim_name, dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Sets the size of symbolic dimensions with this denotation."""
        self._by_denotation[denotation] = _size(denotation, dim_value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Stores a configuration entry."""
        self._set_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """A stored configuration entry; WrongCall (a RuntimeError) if there is none."""
        return self._entry(key)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replaces an initializer of the model by a tensor of the same type and shape."""
        if not isinstance(value, OrtValue):
            raise WrongType(
                f"initializer {name!r} is a {type(value).__name__}, not an OrtValue",
                hint="OrtValue.ortvalue_from_numpy(array)",
            )
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replaces several initializers."""
        if len(names) != len(values):
            raise WrongValue(
                f"{len(names)} names have {len(values)} values", hint="pass one value for each name"
            )
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[object], lengths: Sequence[int]
    ) -> None:
        """Always raises: external data are read from files."""
        raise errors.NotImplemented(
            "external data in memory are not supported",
            f"file {str(names[0])!r}" if names else "",
            "write the file beside the model",
        )

    def register_custom_ops_library(self, path: str) -> None:
        """Always raises: libraries of onnxruntime's kernels cannot be called."""
        raise errors.NotImplemented(
            "custom operators in a library of onnxruntime are not supported",
            f"file {str(path)!r}",
            "write the operator as a formula of others: docs/extend.md",
        )

    def has_providers(self) -> bool:
        """Always false: providers are an argument of the session."""
        return False


class RunOptions(_Settings):
    """The options of one run. `terminate` makes the run fail before it starts."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Stores a configuration entry, which has no effect."""
        self._set_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """A stored configuration entry; WrongCall (a RuntimeError) if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object) -> None:
        """Always raises: adapters change results, so they cannot be ignored."""
        raise errors.NotImplemented(
            "LoRA adapters are not supported",
            hint="merge the adapter into the weights before the session is created",
        )


def _size(name: str, size: int) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__") or operator.index(size) < 1:
        raise WrongValue(
            f"the size of dimension {name!r} is {size!r}", hint="it must be a positive integer"
        )
    return operator.index(size)


NOTES = {
    "enable_cpu_mem_arena": "each program plans its memory when it is compiled",
    "enable_mem_pattern": "each program plans its memory when it is compiled",
    "enable_mem_reuse": "each program plans its memory when it is compiled",
    "execution_mode": "operators run one after another; threads share the loops of each",
    "execution_order": "PopGraph schedules the operators itself",
    "graph_optimization_level": "programs are the same at all levels; see popgraph.Options",
    "inter_op_num_threads": "operators run one after another; set intra_op_num_threads",
    "use_per_session_threads": "each session has its own threads",
}
"""Session options without effect -> the reason, which a session logs."""
