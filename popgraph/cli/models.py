"""Reads and writes models and arrays for the commands, and sets symbolic dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from popgraph.cli.report import note
from popgraph.support.errors import ModelError, PopgraphError, RunError, UnsizedError
from popgraph.support.files import CONFIG, MODELS, is_language_model
from popgraph.support.garbage import while_importing
from popgraph.support.reading import no_such_file
from popgraph.support.writing import is_writable, write_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp, TensorType
    from xdsl.ir import Attribute

    from popgraph.backends.interface import KnownCall
    from popgraph.compiler import BuildRequest
    from popgraph.passes.base import Compilation
    from popgraph.passes.options import Options
    from popgraph.support.arrays import Array
    from popgraph.support.description import TensorSpec
    from popgraph.support.dtypes import DType
    from popgraph.training.device_step import DeviceStep
    from popgraph.training.lora_model import LoraSettings
    from popgraph.training.task import Task


def load(path: Path) -> tuple[ModuleOp, Compilation]:
    """Loads the model of a file."""
    check_file(path)
    with while_importing():
        from popgraph import compiler

    return compiler.load(path)


def check_file(path: Path) -> None:
    """ModelError if a path cannot be a model file."""
    if is_language_model(path) and path.exists():
        return
    if path.is_dir():
        raise ModelError(
            "this is a folder, not a model", str(path), f"a language model has a {CONFIG}"
        )
    if not path.is_file():
        raise ModelError(no_such_file(path), str(path))
    if path.suffix not in MODELS:
        raise ModelError(
            f"{path.suffix or 'a file without a suffix'} is not a model format",
            str(path),
            f"models are {', '.join(MODELS)}",
        )


def opened(
    path: Path,
    dim: Iterable[str] | None,
    value: Iterable[str] | None = None,
    *,
    train: bool = False,
    static: bool = True,
    assumed: bool = False,
    ranged: bool = False,
    step: DeviceStep | None = None,
    lora: LoraSettings | None = None,
) -> tuple[ModuleOp, Compilation, DeviceStep | None]:
    """
    Loads the model of a file; with `train`, its training step, unless it is given as `step`.

    `with_step` adds the step to compiler options. With `lora`, the model has adapters, as
    `training_task` adds them to a step.

    `dim` sets symbolic dimensions, `value` structural inputs. ModelError if some of either stay
    unknown and the model is to be `static`. With `assumed`, unknown sizes become 1; with `ranged`,
    sizes may stay open up to a bound.
    """
    from popgraph.compiler.sizes import specialise

    if train and step is None:
        step = _training_step(path)
    if lora is not None:
        from popgraph.passes.base import Compilation
        from popgraph.training.lora_model import opened as open_model

        found = lora.apply(open_model(path))
        module, compilation = found.module(), Compilation(found.weights)
    elif step is None:
        module, compilation = load(path)
    else:
        from popgraph.passes.base import Compilation

        module, compilation = step.task.module, Compilation(step.task.weights)
    given = values(value, specs_of(module)) if value else {}
    known, bounds = ranges(dim or ()) if ranged else (sizes(dim or ()), {})
    specialise(module, compilation, known, bounds, given)
    if assumed:
        assume_ones(module, compilation)
    if static:
        check_structure(module, compilation)
        check_static(module)
    return module, compilation, step


def with_step(options: Options, step: DeviceStep | None) -> Options:
    """Compiler options, with those of a training step if there is one."""
    return options if step is None else step.options(options)


def _training_step(path: Path) -> DeviceStep:
    """The training step of a file on this machine, with the step options of its text."""
    from popgraph.compiler import for_this_machine
    from popgraph.passes.options import Options
    from popgraph.training.device_step import DeviceStep

    step = DeviceStep.of_text(training_task(path))
    for name, reason in step.left_out.items():
        note(f"{path}: {name} has no effect on a single step: {reason}")
    if step.period > 1:
        note(f"{path}: the program computes one of the {step.period} micro-batches of a step")
    machine = for_this_machine(Options()).machine
    assert machine is not None, "this machine is known"
    step.check(machine)
    return step


def of_model(path: Path, dim: Iterable[str]) -> list[str]:
    """The options `--dim` for dimensions of a model, without those of its `train` section."""
    specs = specs_of(load(path)[0]).values()
    names = {size for spec in specs for size in spec.shape or () if isinstance(size, str)}
    return [text for text in dim if text.partition("=")[0] in names]


def at_sizes(
    path: Path,
    dim: Iterable[str] | None,
    value: Iterable[str] | None,
    numbers: Sequence[int],
    *,
    train: bool = False,
) -> tuple[ModuleOp, Compilation]:
    """The model that `opened` leaves open up to bounds, with `numbers` as its sizes."""
    known, bounds = ranges(dim or ())
    found = {**known, **dict(zip(sorted(bounds), numbers, strict=True))}
    texts = [f"{name}={size}" for name, size in found.items()]
    module, compilation, _ = opened(path, texts, value, train=train)
    return module, compilation


def lower_to_sizes(
    request: BuildRequest,
    path: Path,
    dim: Iterable[str] | None,
    value: Iterable[str] | None,
    *,
    train: bool = False,
) -> None:
    """
    Lowers the module of a request, which `opened` loaded with the same options.

    UnsizedError unless one program serves all sizes up to the bounds in `dim`.
    """

    def probe(numbers: Mapping[str, int]) -> BuildRequest:
        others = [*numbers.values()]
        module, compilation = at_sizes(path, dim, value, others, train=train)
        return replace(request, module=module, compilation=compilation)

    _, bounds = ranges(dim or ())
    bounds = dict(sorted(bounds.items()))
    made = replace(request, probe=probe) if bounds else request
    try:
        made.lower(request.options)
    except UnsizedError as error:
        fixed = " ".join(f"--dim {name}={bound}" for name, bound in bounds.items())
        raise UnsizedError(
            f"one program cannot run for every size: {error.what}",
            error.where,
            f"give one size: {fixed}",
        ) from error


def training_task(
    path: Path,
    freeze: Sequence[str] = (),
    train_only: Sequence[str] = (),
    lora: LoraSettings | None = None,
) -> Task:
    """The training task of a file with a `train` section, for the weights that options select."""
    from popgraph.training.lora_model import opened as open_model
    from popgraph.training.selection import WeightPatterns
    from popgraph.training.task import task_of

    task = None
    if path.suffix == ".pgraph" and path.is_file():
        found = open_model(path)
        found = found if lora is None else lora.apply(found)
        assert found.document is not None, "a .pgraph file is a text"
        task = task_of(found.document)
    else:
        load(path)  # Mistakes in the file itself are reported first.
    if task is None or task.rule is None:
        missing = "optimizer" if task else "`train` section"
        example = (
            "`optimizer = Adam(0.001)` in its `train` section"
            if task
            else "`train (labels: i32[N]) { loss = nll(y, labels) ... }` in a .pgraph file"
        )
        raise ModelError(
            f"the file does not say how the model is trained: it has no {missing}",
            str(path),
            f"add {example}",
        )
    task = replace(task, patterns=WeightPatterns.of(freeze, train_only))
    if freeze or train_only:
        task.selection.check()
    return task


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parses `["x=a.npy"]` to a dict; BadParameter for a text without `=`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


def sizes(texts: Iterable[str]) -> dict[str, int]:
    """Parses `["N=4"]` to sizes of symbolic dimensions."""
    found: dict[str, int] = {}
    for name, value in pairs(texts, "--dim").items():
        if not value.isdigit() or not int(value):
            raise typer.BadParameter(f"{value!r} is not a size", param_hint="--dim")
        found[name] = int(value)
    return found


def ranges(texts: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Parses `["N=4", "L=..64"]` to sizes of symbolic dimensions, and bounds of open ones."""
    known, bounds = [], dict[str, int]()
    for text in texts:
        name, _, value = text.partition("=..")
        if value:
            (bounds[name],) = sizes([f"{name}={value}"]).values()
        else:
            known.append(text)
    return sizes(known), bounds


def values(texts: Iterable[str], inputs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """Parses `["shape=2,3"]` to arrays in the types of a model's inputs."""
    from popgraph.support.dtypes import from_numpy

    found: dict[str, Array] = {}
    known = {name: spec for name, spec in inputs.items() if spec.dtype is not None}
    for name, text in pairs(texts, "--value").items():
        if name not in known:
            raise ModelError(
                f"the model has no input {name!r} of numbers",
                hint=f"it has {', '.join(map(repr, known)) or 'none'}",
            )
        spec = known[name]
        found[name] = _numbers(name, text, from_numpy(spec.dtype), spec.shape or ())
    return found


def specs_of(module: ModuleOp) -> dict[str, TensorSpec]:
    """The specification of each input of a module at any level."""
    from popgraph.backends.reference import signature
    from popgraph.compiler.descriptions import spec

    return {name: spec(name, type_) for name, type_ in signature(module).items()}


def _numbers(name: str, text: str, dtype: DType, shape: Sequence[object]) -> Array:
    """Parses the numbers of an option to an array for an input."""
    import numpy as np

    if len(shape) > 1:
        raise _no_value(
            f"input {name!r} has {len(shape)} axes, and {text!r} gives it at most one",
            f"`popgraph run` takes it from a file: --input {name}=FILE.npy",
        )
    parts = text.split(",")
    if not shape and len(parts) > 1:
        raise _no_value(
            f"input {name!r} is a scalar, and {text!r} is a list of {len(parts)}",
            f"--value {name}={parts[0] or 1}",
        )
    kind, article = ("number", "a") if dtype.is_float else ("integer", "an")
    words = {"true": 1, "false": 0} if dtype.name == "bool" else {}
    try:
        read = [words.get(one) if one in words else _number(one, dtype) for one in parts]
        array = np.array(read, dtype.numpy)
    except (ValueError, OverflowError) as error:
        example = "true" if words else "2,3" if shape else "2"
        what = f"a list of {kind}s" if shape else f"{article} {kind}"
        raise _no_value(
            f"{text!r} is not {what}, the type of input {name!r}", f"--value {name}={example}"
        ) from error
    return array.reshape([-1] * len(shape))


def _number(text: str, dtype: DType) -> float:
    return float(text) if dtype.is_float else int(text)


def _no_value(what: str, hint: str) -> typer.BadParameter:
    return typer.BadParameter(f"{what}; try {hint}", param_hint="--value")


def cut(module: ModuleOp, names: Sequence[str]) -> None:
    """Cuts a model to the operations that these values need; they become its outputs."""
    from popgraph.dialects.levels import level_of
    from popgraph.dialects.onnx.outputs import cut_to

    if level_of(module) != "onnx":
        raise ModelError(
            f"a module of the {level_of(module)} level cannot be cut",
            hint="--output is for models: .onnx, .pgraph, and .mlir of the onnx level",
        )
    cut_to(module, names)


def assume_ones(module: ModuleOp, compilation: Compilation) -> None:
    """Sets unknown sizes of inputs to 1, and reports it in a note."""
    from xdsl.dialects.builtin import TensorType

    from popgraph.compiler.sizes import symbols
    from popgraph.dialects.levels import level_of
    from popgraph.dialects.onnx.containers import input_types
    from popgraph.dialects.onnx.types import dims, static_shape, tensor_type
    from popgraph.passes.onnx import infer_shapes

    types = input_types(module) if level_of(module) == "onnx" else {}
    open_types = {
        name: type_
        for name, type_ in types.items()
        if isinstance(type_, TensorType) and dims(type_) is not None and static_shape(type_) is None
    }
    if not open_types:
        return
    wanted = {
        name: tensor_type(
            type_.element_type, [one if isinstance(one, int) else 1 for one in dims(type_) or ()]
        )
        for name, type_ in open_types.items()
    }
    infer_shapes.specialise(module, wanted, compilation.weights)
    note_ones(symbols(open_types.values()))


def note_ones(dimensions: Iterable[str]) -> None:
    """Reports the dimensions that were set to 1 by default."""
    names = sorted(dimensions)
    taken = ", ".join(f"{name} = 1" for name in names) or "unnamed sizes are 1"
    note(f"{taken} by default" + (f" (set another size by --dim {names[0]}=4)" if names else ""))


def check_static(module: ModuleOp) -> None:
    """ModelError unless every input has a static shape."""
    from popgraph.compiler.sizes import symbols
    from popgraph.dialects.levels import level_of
    from popgraph.dialects.onnx.containers import input_types
    from popgraph.dialects.onnx.types import describe, static_shape

    if level_of(module) != "onnx":
        return
    for name, type_ in input_types(module).items():
        if static_shape(type_) is None:
            names = sorted(symbols([type_]))
            raise ModelError(
                f"the shape of input {name!r} is not known: {describe(type_)}",
                hint=" ".join(f"--dim {one}=4" for one in names) if names else "",
            )


def structural(module: ModuleOp, compilation: Compilation) -> tuple[str, ...]:
    """The inputs of a model whose values decide its structure."""
    from popgraph.compiler import interface_of

    interface = interface_of(module, compilation.weights)
    return () if interface is None else interface.structural


def program_lines(path: Path, module: ModuleOp, compilation: Compilation) -> Iterator[str]:
    """Comments on an open model: its structural inputs, and its compiled programs in the cache."""
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.compiler import interface_of

    interface = interface_of(module, compilation.weights)
    if interface is None:
        return
    for name in interface.structural:
        yield f"// input {name!r} decides the structure: a program for each of its values"
    if is_hosted(module):
        return
    known = backend_named(DEFAULT).shortcuts.known_calls(path)
    if known:
        yield f"// compiled programs in the cache: {len(known)}"
    elif interface.structural:
        yield "// compiled programs in the cache: none for this file as it is; calls compile them"
    for call in known:
        yield f"//   {_call_text(call)}"


def _call_text(call: KnownCall) -> str:
    """`shape = 2,3, x: [N, 2], N 1..64; 1 thread`."""
    from popgraph.support.sizes import symbolic_shape

    values = [f"{name} = {_value_text(value)}" for name, value in call.values.items()]
    shapes = [
        f"{name}: [{', '.join(map(str, symbolic_shape(name, tuple(shape), call.sizes)))}]"
        for name, shape in call.shapes.items()
        if name not in call.values
    ]
    threads = "1 thread" if call.threads == 1 else f"{call.threads} threads"
    return f"{', '.join([*values, *shapes, *map(str, call.sizes)])}; {threads}"


def _value_text(value: Any) -> str:
    """Formats a value as `--value` accepts it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def is_hosted(module: ModuleOp, *, trained: bool = False) -> bool:
    """Whether a model, or its training step, has host steps."""
    from popgraph.dialects.levels import ONNX, level_of
    from popgraph.passes.onnx.partition import host_nodes

    return level_of(module) == ONNX and bool(host_nodes(module, trained=trained))


def check_structure(
    module: ModuleOp, compilation: Compilation, given: Collection[str] = ()
) -> None:
    """ModelError if a structural input is not given."""
    from popgraph.dialects.onnx.containers import input_types
    from popgraph.dialects.onnx.types import dims

    for name in structural(module, compilation):
        if name not in given:
            example = "2,3" if dims(input_types(module)[name]) != () else "2"
            raise ModelError(
                f"input {name!r} decides the structure of the model, and its value is not known",
                hint=f"--value {name}={example} (`popgraph run` takes it from an array)",
            )


def check_place(path: Path, option: str) -> None:
    """BadParameter if a file cannot be written; checked before long work."""
    if path.is_dir():
        raise typer.BadParameter(f"{str(path)!r} is a folder", param_hint=option)
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(path.parent)!r}", param_hint=option)
    if not is_writable(path):
        raise typer.BadParameter(f"{str(path)!r} cannot be written", param_hint=option)


def read_array(text: str) -> Array:
    """Reads an .npy file."""
    from popgraph.support.array_files import read_npy
    from popgraph.support.reading import Unreadable

    try:
        return read_npy(Path(text))
    except Unreadable as error:
        raise RunError(
            f"the array cannot be read: {error}", text, "numpy.save writes arrays, one per file"
        ) from error


def read_arrays(texts: Iterable[str], option: str) -> dict[str, Array]:
    """Reads the arrays of `["x=a.npy"]`."""
    return {name: read_array(file) for name, file in pairs(texts, option).items()}


def given(
    module: ModuleOp, files: Mapping[str, str], texts: Iterable[str], *, complete: bool
) -> dict[str, Array]:
    """
    The arrays of `--input` (files by name) and `--value`, in the types of the model.

    Names are checked before files are read, and types before anything is compiled.
    """
    from popgraph.support.inputs import check_names

    types, also = _input_types(module)
    numbers = values(texts, specs_of(module))
    check_names({**files, **numbers}, types, overridable=also, complete=complete)
    if twice := [name for name in files if name in numbers]:
        raise typer.BadParameter(f"{twice[0]!r} is also in --value", param_hint="--input")
    arrays = {name: read_array(file) for name, file in files.items()} | numbers
    return _fitted(arrays, {**types, **also})


def parse_inputs(
    specs: Mapping[str, TensorSpec],
    files: Mapping[str, str],
    texts: Iterable[str],
    *,
    complete: bool,
) -> dict[str, Array]:
    """The same for a cached program, whose model is not loaded."""
    from popgraph.support.dtypes import from_numpy
    from popgraph.support.inputs import check_names

    numbers = values(texts, specs)
    check_names({**files, **numbers}, specs, complete=complete)
    found = {name: read_array(file) for name, file in files.items()} | numbers
    for name, array in found.items():
        if (dtype := specs[name].dtype) is not None:
            found[name] = _converted(name, array, from_numpy(dtype))
    return found


def _input_types(module: ModuleOp) -> tuple[Mapping[str, Attribute], Mapping[str, Attribute]]:
    """The types of a model's inputs, and of initializers that calls may override."""
    from popgraph.backends.reference import signature
    from popgraph.dialects.levels import ONNX, level_of
    from popgraph.dialects.onnx.containers import input_types, model_of

    if level_of(module) != ONNX:
        return signature(module), {}
    initializers = model_of(module).graph.initializers
    also = {one.value_name.text: one.result.type for one in initializers if one.input is not None}
    return input_types(module), also


def _fitted(arrays: Mapping[str, Array], types: Mapping[str, Attribute]) -> dict[str, Array]:
    """Converts arrays to the types of inputs; a note lists conversions."""
    from xdsl.dialects.builtin import TensorType

    from popgraph.dialects.element_types import from_ir, is_number
    from popgraph.dialects.onnx.types import tensor_type
    from popgraph.passes.onnx.infer_shapes import check_case

    found, symbols = dict(arrays), dict[str, int]()
    for name, array in arrays.items():
        type_ = types[name]
        if isinstance(type_, TensorType) and is_number(type_.element_type):
            found[name] = _converted(name, array, from_ir(type_.element_type))
            check_case(name, type_, tensor_type(type_.element_type, array.shape), symbols)
    return found


def _converted(name: str, array: Array, dtype: DType) -> Array:
    """Converts an array to the element type of the model; a note says so."""
    from popgraph.support.inputs import fitted

    found = fitted(name, array, dtype)
    if found.dtype != array.dtype:
        note(f"{name}: {array.dtype} is converted to {dtype.numpy}")
    return found


def check_outputs(module: ModuleOp, compilation: Compilation, names: Collection[str]) -> None:
    """RunError unless a model has these outputs."""
    if not names:
        return
    from popgraph.backends.reference import output_types
    from popgraph.dialects.levels import ONNX, level_of
    from popgraph.dialects.onnx.containers import model_of
    from popgraph.support.inputs import check_outputs

    if level_of(module) == ONNX:
        known: Sequence[str] = model_of(module).graph.output_names
    else:
        known = [name for name, _ in output_types(module, compilation.weights)]
    check_outputs(names, known)


def signature_of(module: ModuleOp) -> dict[str, TensorType[Attribute]]:
    """The types of numeric inputs of a module at any level."""
    from popgraph.backends.reference import signature
    from popgraph.dialects.element_types import is_number

    types = signature(module)
    return {name: type_ for name, type_ in types.items() if is_number(type_.element_type)}


def save_onnx_level(path: Path, module: ModuleOp, compilation: Compilation) -> None:
    from popgraph.compiler.saving import save_model

    if told := save_model(path, module, compilation):
        note(told)


def save_mlir(path: Path, module: ModuleOp, compilation: Compilation) -> None:
    from popgraph.dialects.program import BlobAttr

    text = f"{module!s}\n"
    write_text(path, text)
    if named := set(re.findall(f"#{BlobAttr.name}<[^>]*>", text)):
        note(
            f"{path.name} names large tensors ({len(named)}) without their elements: it can be "
            f"printed, but not run; .onnx and .pgraph files hold them"
        )


SAVERS: dict[str, Callable[[Path, Any, Any], None]] = {
    ".onnx": save_onnx_level,
    ".pgraph": save_onnx_level,
    ".mlir": save_mlir,
}


def save(path: Path, module: ModuleOp, compilation: Compilation) -> None:
    """Writes an onnx-level module in the format of the file's extension."""
    if path.suffix not in SAVERS:
        raise typer.BadParameter(
            f"{path.name!r} must end in {', '.join(SAVERS)}", param_hint="output"
        )
    from popgraph.dialects.levels import level_of

    if level_of(module) != "onnx" and path.suffix != ".mlir":
        raise PopgraphError(
            f"a module of the {level_of(module)} level has no {path.suffix} form",
            hint="only models as they were written can be converted",
        )
    SAVERS[path.suffix](path, module, compilation)
