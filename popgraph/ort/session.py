"""`InferenceSession`: a model, compiled, with onnxruntime's methods."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from popgraph.ort.binding import IOBinding
from popgraph.ort.errors import (
    Fail,
    InvalidArgument,
    NoSuchFile,
    OrtError,
    WrongType,
    at_run,
    loading,
)
from popgraph.ort.feeds import Feeds, check_outputs, output
from popgraph.ort.logs import VERBOSE, log, note
from popgraph.ort.memory import CPU_MEMORY, OrtMemoryInfo
from popgraph.ort.options import NOTES, RunOptions, SessionOptions
from popgraph.ort.profile import Profile
from popgraph.ort.providers import (
    CPU,
    KNOWN,
    Provider,
    check_and_normalize_provider_args,
    unknown_provider,
    usable_cpus,
)
from popgraph.ort.values import ModelMetadata, NodeArg, OrtValue, element_of, numpy_type
from popgraph.runner import Runner
from popgraph.start import compile
from popgraph.support.description import TensorSpec
from popgraph.support.errors import PopgraphError
from popgraph.support.garbage import while_importing
from popgraph.support.memo import cached_property

Feed: TypeAlias = Mapping[str, Any]
_IGNORED = ("disabled_optimizers", "read_config_from_model", "enable_fallback")


class InferenceSession:
    """
    A compiled model: `session.run(None, {"x": array})` returns a list of its outputs.

    `path_or_bytes` is a file (.onnx, .pgraph) or the bytes of an ONNX model. Programs are compiled
    for the shapes of a call and cached on disk, so the first call of a new shape takes seconds.
    Without `intra_op_num_threads`, a session uses all CPUs of the process.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **ignored: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(
                f"sess_options is a {type(sess_options).__name__}, not SessionOptions",
                hint="popgraph.ort.SessionOptions(); onnxruntime's own options do not fit",
            )
        self._options = (sess_options or SessionOptions())._copied()
        self._provider_options: dict[str, dict[str, str]] = {}
        self._note_options(ignored)
        self._set_providers(providers, provider_options)
        options = self._options
        self._profile = Profile(options.profile_file_prefix) if options.enable_profiling else None
        with loading(), self._event("model_loading"):
            self._model = self._prepared(_model(path_or_bytes))
            threads = options.intra_op_num_threads
            self._runner: Runner = compile(
                self._model, threads=threads if threads > 0 else usable_cpus(), quick=False
            )
        self._log("the session is ready")

    def _prepared(self, model: str | bytes) -> Any:
        """The model, loaded and changed if options require it."""
        options = self._options
        changes = (options._by_name, options._by_denotation, options._initializers)
        if not any(changes) and not options.optimized_model_filepath:
            return model
        made = _compiler().prepared(model, *changes)
        if options.optimized_model_filepath:
            self._note(
                "optimized_model_filepath", "PopGraph optimizes below ONNX: `popgraph print`"
            )
            _compiler().save(made, options.optimized_model_filepath)
        return made

    def run(
        self,
        output_names: Iterable[str] | None,
        input_feed: Feed,
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs with these names, or all in the model's order."""
        if isinstance(output_names, str):
            raise WrongType(
                "output_names is a string, not a list of names", hint=f"[{output_names!r}], or None"
            )
        if run_options is not None and run_options.terminate:
            raise Fail(
                "Exiting due to terminate flag being set to true.", hint="set terminate to False"
            )
        try:
            if self._profile is None:
                found = self._runner(self._feeds.converted(input_feed))
            else:
                with self._profile.event("model_run"):
                    found = self._runner(self._feeds.converted(input_feed))
        except OrtError:
            raise
        except PopgraphError as error:
            raise at_run(error) from error
        if names := [] if output_names is None else list(output_names):
            check_outputs(names, found)
            values = [found[name] for name in names]
        else:
            values = [*found.values()]
        return values if self._are_arrays else [output(value) for value in values]

    def run_with_ort_values(
        self,
        output_names: Iterable[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """The outputs as `OrtValue`, for inputs that are `OrtValue`."""
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise WrongType(
                    f"input {name!r} is a {type(value).__name__}, not an OrtValue",
                    hint="OrtValue.ortvalue_from_numpy(array), or session.run",
                )
        return list(map(OrtValue, self.run(output_names, input_dict_ort_values, run_options)))

    def run_async(
        self,
        output_names: Iterable[str] | None,
        input_feed: Feed,
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs in a thread, then calls `callback(outputs, user_data, error)`; "" means success."""

        def work() -> None:
            found, failed = [], ""
            try:
                found = self.run(output_names, input_feed, run_options)
            except Exception as error:  # passed to the callback as a text
                failed = str(error)
            callback(found, user_data, failed)

        threading.Thread(target=work, name="popgraph.ort.run_async").start()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs in given memory, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Runs with bound inputs; bound outputs are filled."""
        iobinding._run(run_options)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run requires."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that a run may replace by inputs."""
        return list(self._overridable)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of each input, always the CPU's."""
        return [CPU_MEMORY for _ in self._inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of each output, always the CPU's."""
        return [CPU_MEMORY for _ in self._outputs]

    def get_input_epdevices(self) -> list[None]:
        """None for each input: the CPU is not a separate device."""
        return [None for _ in self._inputs]

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model; loads the model on first use."""
        return self._metadata

    def get_providers(self) -> list[str]:
        """The providers, always only the CPU's."""
        return list(self._provider_options)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each provider, which have no effect."""
        return {name: dict(options) for name, options in self._provider_options.items()}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Checks providers; the session stays on the CPU."""
        for one in providers or ():
            name = one if isinstance(one, str) else one[0]
            if name not in KNOWN:
                raise unknown_provider(name)
        self._set_providers(providers, provider_options)

    def get_session_options(self) -> SessionOptions:
        """A copy of the options."""
        return self._options._copied()

    def end_profiling(self) -> str:
        """Writes the profile and returns its file name; "" without `enable_profiling`."""
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """The time at which profiling began."""
        return 0 if self._profile is None else self._profile.start_ns

    def enable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """An empty list: tuning results are part of PopGraph's cache."""
        return []

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any
    ) -> OrtValue:
        """A value of zeros."""
        return OrtValue.ortvalue_from_shape_and_type(shape, numpy_type(element_type))

    @cached_property
    def _inputs(self) -> tuple[NodeArg, ...]:
        with loading():
            return _arguments(self._runner.inputs)

    @cached_property
    def _outputs(self) -> tuple[NodeArg, ...]:
        with loading():
            return _arguments(self._runner.outputs)

    @cached_property
    def _are_arrays(self) -> bool:
        """Whether all outputs are arrays of numbers, which are returned as they are."""
        return all(element_of(one.type) for one in self._outputs)

    @cached_property
    def _overridable(self) -> tuple[NodeArg, ...]:
        if self._runner.overriding is None:
            return ()
        names = self._runner.overriding.names
        with loading():
            found = self._runner.parameters
        return _arguments({name: one for name, one in found.items() if name in names})

    @cached_property
    def _metadata(self) -> ModelMetadata:
        with loading():
            made: ModelMetadata = _compiler().metadata(self._model)
        return made

    @cached_property
    def _feeds(self) -> Feeds:
        return Feeds(self._inputs, self._overridable)

    def _event(self, name: str) -> Any:
        return nullcontext() if self._profile is None else self._profile.event(name)

    def _note_options(self, ignored: Mapping[str, Any]) -> None:
        options = self._options
        for name in options._changed():
            if name in NOTES:
                self._note(name, NOTES[name])
        for key in options._entries:
            self._note(f"configuration entry {key}", "PopGraph does not read it")
        for name in ignored:
            if name not in _IGNORED:
                self._note(f"argument {name}", "InferenceSession does not read it")

    def _note(self, what: str, why: str) -> None:
        note(f"{what} has no effect: {why}", self._options.log_severity_level, self._options.logid)

    def _log(self, text: str) -> None:
        log(VERBOSE, text, self._options.log_severity_level, self._options.logid)

    def _set_providers(
        self,
        providers: Sequence[Provider] | None,
        provider_options: Sequence[Mapping[Any, Any]] | None,
    ) -> None:
        names, given = check_and_normalize_provider_args(providers, provider_options, [CPU])
        found = dict(zip(names, given, strict=True))
        self._provider_options = {CPU: found.get(CPU, {})}


def _model(path_or_bytes: object) -> str | bytes:
    """The bytes, or the path of an existing file."""
    if isinstance(path_or_bytes, bytes | bytearray | memoryview):
        return bytes(path_or_bytes)
    if not isinstance(path_or_bytes, str | os.PathLike):
        serial = hasattr(path_or_bytes, "SerializeToString")
        raise WrongType(
            f"Unable to load from type '{type(path_or_bytes)}'",
            hint="model.SerializeToString()" if serial else "give a path or the bytes of a model",
        )
    path = os.fspath(path_or_bytes)
    if not Path(path).is_file():
        raise NoSuchFile(
            f"Load model from {path} failed: File doesn't exist", hint="check the path"
        )
    if Path(path).suffix == ".ort":
        raise InvalidArgument(
            "the ORT format is not supported", f"file {path!r}", "give the .onnx model"
        )
    return path


def _arguments(specs: Mapping[str, TensorSpec]) -> tuple[NodeArg, ...]:
    return tuple(map(NodeArg.of, specs.values()))


def _compiler() -> Any:
    """The module that imports the compiler, on first use."""
    with while_importing():
        return import_module("popgraph.ort.prepared")
