"""`popgraph export`: writes a model as C with an interface, for use in other software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    ExtraPasses,
    Folders,
    Freeze,
    IndicesChoice,
    Load,
    Lora,
    LoraAlpha,
    LoraLayers,
    ModelFile,
    Ranges,
    ScheduleFile,
    Threads,
    TrainOnly,
    Values,
    lora_settings,
    options,
    step_option,
)
from popgraph.support.errors import UnsizedError
from popgraph.support.writing import write_files

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.tools import Exported, Exporter, Function, Step, Trained, Vector
    from popgraph.compiler import BuildRequest
    from popgraph.passes.options import Options
    from popgraph.support.arrays import Array
    from popgraph.support.sizes import Size
    from popgraph.training.device_step import DeviceStep
    from popgraph.training.lora_model import LoraSettings
    from popgraph.training.task import Task


class Goal(StrEnum):
    """The goal of the program, see `Options.optimize`."""

    SIZE = "size"
    BALANCED = "balanced"
    SPEED = "speed"


class Weights(StrEnum):
    """Storage of the constants; see the C backend's exporter."""

    INCBIN = "incbin"
    ARRAY = "array"
    FILE = "file"


def command(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output folder.")],
    name: Annotated[str, typer.Option(help="Prefix of file and function names.")] = "model",
    target: Annotated[
        str,
        typer.Option(
            help="Target machine: native, x86-64-v2, -v3 or -v4, aarch64, armv7e-m, riscv64, "
            "wasm32, or one of an extension (default: the package's, or native).",
            show_default=False,
        ),
    ] = "",
    package: Annotated[
        str,
        typer.Option(
            help="Kind of package to write instead of plain C: arduino, cargo, conan, esp-idf, npm "
            "(WebAssembly for browsers and Node), platformio or zephyr.",
            show_default=False,
        ),
    ] = "",
    package_version: Annotated[
        str,
        typer.Option(
            "--package-version", metavar="X.Y.Z", help="Version of the package, also for CMake."
        ),
    ] = "1.0.0",
    optimize: Annotated[
        Goal | None,
        typer.Option(
            case_sensitive=False,
            help="Goal: a small program, a fast one, or between (default: size for armv7e-m, else "
            "speed).",
        ),
    ] = None,
    weights: Annotated[
        Weights | None,
        typer.Option(
            case_sensitive=False,
            help="Storage of constants: included by the assembler (default), as a C array, or in "
            "a separate file.",
        ),
    ] = None,
    malloc: Annotated[
        bool,
        typer.Option("--malloc/--no-malloc", help="Export a function that allocates its memory."),
    ] = True,
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="Export a training step, as defined by the file's `train` section."
        ),
    ] = False,
    dropout: Annotated[
        bool,
        typer.Option(
            "--dropout/--no-dropout",
            help="With --train, whether Dropout nodes without a training_mode drop elements.",
        ),
    ] = True,
    run_dim: Annotated[
        list[str] | None,
        typer.Option(
            "--run-dim",
            metavar="NAME=SIZE",
            help="With --train, also export model_run, inference by the trained weights, for this "
            "size (npm: included, by default for the sizes of --dim).",
        ),
    ] = None,
    freeze: Freeze = None,
    train_only: TrainOnly = None,
    lora: Lora = None,
    lora_layers: LoraLayers = None,
    lora_alpha: LoraAlpha = None,
    accumulate: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --train, calls of model_step per update of weights."),
    ] = None,
    recompute: Annotated[str | None, step_option("recompute")] = None,
    derivatives: Annotated[
        str | None,
        typer.Option(
            "--derivatives",
            metavar="LIST",
            help="Export derivatives, too: a comma-separated list of jvp, vjp, jacobian and "
            "hessian-vector.",
        ),
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Input to differentiate by (default: all float ones)."),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="NAME",
            help="Output to differentiate (default: all float ones).",
        ),
    ] = None,
    casadi: Annotated[
        bool,
        typer.Option(
            "--casadi", help="With --derivatives, also write an external function for CasADi."
        ),
    ] = False,
    dim: Ranges = None,
    value: Values = None,
    example: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="NAME=FILE", help="Input of the test vector (default: random)."
        ),
    ] = None,
    schedule: ScheduleFile = None,
    portable: Annotated[
        bool,
        typer.Option("--portable", help="Compute the same bits on every target."),
    ] = False,
    indices: IndicesChoice = None,
    activations: ActivationsChoice = Activations.FLOAT,
    threads: Threads = 1,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Write a model as C with an interface, to be built into other software.

    \b
    popgraph export model.onnx --dim N=1 -o model_c
    make -C model_c check

    The folder then holds model.h (model_init, model_run, structs of inputs and outputs, sizes),
    model.c, the constants, a Makefile and a CMakeLists.txt, and main.c, which runs the model on a
    test vector that the reference backend computed. The code is C11 for GCC and Clang. It needs
    memcpy, memset and libm, has no globals unless --threads is given, and does not allocate memory.

    With --package npm, the folder is an npm package for browsers and Node.

    With --train, model_step is a training step: it computes the loss and updates the weights, which
    model_save and model_load store. With --accumulate 8, every eighth call updates them, by the
    gradients of eight batches; with --recompute checkpoints, the backward pass computes activations
    again. With --train-only 'head.*' or --freeze, all other weights are constants; with
    --train-only 'conv.w[:8]', only a slice of a weight is trained; with --lora, low-rank adapters
    are. model_get_delta and model_apply_delta exchange weights with a
    server. On the native target, `make check` compares the weights with those of PopGraph's
    trainer, bit by bit.

    A table shows the use of ROM and RAM, which operation needs most of it, and ways to need less;
    model.json has it, too.

    With --derivatives jvp,vjp,jacobian,hessian-vector, the functions model_jvp, model_vjp,
    model_jacobian and model_hvp compute exact derivatives in the same memory. With --optimize size,
    layers share plain loops; with balanced, small register tiles. With --dim N=..64, each call
    of model_run passes a struct of sizes, 1 to 64 (2 to 64 if the model treats size 1 differently);
    test vectors cover 64, the smallest size, and one in between.
    """
    from popgraph import compiler
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.backends.tools import ExportForm
    from popgraph.cli import models
    from popgraph.dialects.program.sizes import sizes_of
    from popgraph.support import determinism
    from popgraph.support.determinism import PORTABLE

    kinds = _kinds(derivatives, wrt, of, casadi=casadi, train=train, activations=activations)
    if run_dim and not train:
        raise typer.BadParameter(
            "belongs to --train; without it, use --dim", param_hint="--run-dim"
        )
    wanted = determinism.wanted(PORTABLE if portable else "")
    # Portable results have the order of speed, whatever the target's usual goal is.
    goal = optimize or (Goal.SPEED if wanted == PORTABLE else None)
    form = ExportForm(
        target,
        name,
        weights.value if weights else "",
        threads,
        malloc,
        train,
        casadi,
        package,
        package_version,
        goal.value if goal else None,
    )
    exporter = backend_named(DEFAULT).tools.exporter(form)
    if schedule and exporter.optimize != Goal.SPEED:
        raise typer.BadParameter("belongs to --optimize speed", param_hint="--schedule")
    adapters = lora_settings(lora, lora_layers, lora_alpha)
    step_options: dict[str, object] = {"accumulate": accumulate, "recompute": recompute}
    _check_training(
        train, {"freeze": freeze, "train-only": train_only, "lora": lora, **step_options}
    )
    step_options["determinism"] = PORTABLE if portable else None
    task = models.training_task(model, freeze or (), train_only or (), adapters) if train else None
    step = None if task is None else _device_step(task, step_options)
    module, compilation, _ = models.opened(model, dim, value, train=train, ranged=True, step=step)
    made = options(schedule=schedule, indices=indices, passes=extra, activations=activations)
    made = _options(replace(made, dropout=dropout, determinism=wanted), exporter, step, threads)
    given = models.given(module, models.pairs(example or (), "--input"), (), complete=False)
    request = compiler.BuildRequest(module, compilation, made, DEFAULT, threads)
    inputs = _inputs(module, made, given)
    _check_sizes(sizes_of(module), kinds, train=train)
    functions = [_derivative(request.copy(), inputs, kind, wrt or (), of or ()) for kind in kinds]
    if run_dim or exporter.adds_run:
        inferred = run_dim or models.of_model(model, dim or ())
        functions.append(_inference(request, model, inferred, value, given, adapters))
    exported = None
    if step is None:
        vectors = _lowered_to_sizes(request, model, dim, value, inputs, exporter.steps(1))
    else:
        request, vectors, exported = _lowered_step(request, step, exporter, inputs)
    found = exporter.export(request.module, compilation.weights, vectors, functions, exported)
    for folder in {(output / file).parent for file in found.files}:
        folder.mkdir(parents=True, exist_ok=True)
    write_files([(output / file, parts) for file, parts in found.files.items()])
    typer.echo(f"{output}: {', '.join(sorted(found.files))}")
    typer.echo(_needs(found))


def _options(made: Options, exporter: Exporter, step: DeviceStep | None, threads: int) -> Options:
    """The options of a program for the exporter's machine."""
    from popgraph import compiler

    made = replace(made, machine=exporter.machine, optimize=exporter.optimize)
    if step is not None:
        step.check(exporter.machine)
        made = step.options(made)
    if not exporter.is_here:
        made = replace(made, measured=())
    return compiler.for_this_machine(made, threads)


def _check_sizes(sizes: Sequence[Size], kinds: Sequence[str], *, train: bool) -> None:
    """An error for derivatives or a training step of a model for ranges of sizes."""
    if sizes and kinds:
        raise typer.BadParameter(
            f"derivatives need one size for each dimension: --dim {sizes[0].name}=4",
            param_hint="--derivatives",
        )
    if sizes and train:
        raise UnsizedError(
            f"a training step has one size for {sizes[0].name}: gradients are sums over the rows",
            "--dim",
            f"--dim {sizes[0].name}={sizes[0].bound}; --accumulate adds up several batches",
        )


def _lowered_to_sizes(
    request: BuildRequest,
    model: Path,
    dim: Sequence[str] | None,
    value: Sequence[str] | None,
    inputs: Mapping[str, Array],
    runs: int,
) -> list[Vector]:
    """Lowers a model for its ranges of sizes; returns its test vectors."""
    from popgraph.cli import models
    from popgraph.dialects.program.sizes import sizes_of

    vectors = [] if sizes_of(request.module) else [_vector(request.copy(), inputs, runs)]
    models.lower_to_sizes(request, model, dim, value)
    sizes = sizes_of(request.module)  # It is known by now which number each one begins at.
    for numbers in _numbers(sizes):
        parts = models.at_sizes(model, dim, value, numbers)
        own = replace(request, module=parts[0], compilation=parts[1])
        vectors.append(_vector(own, inputs, runs, sizes, numbers))
    return vectors


def _lowered_step(
    request: BuildRequest, step: DeviceStep, exporter: Exporter, inputs: Mapping[str, Array]
) -> tuple[BuildRequest, list[Vector], Step]:
    """The program of a training step, lowered, its test vector, and what the trainer computes."""
    runs = exporter.steps(step.period)
    vector, trained = _vector(request.copy(), inputs, runs), None
    # Loops that layers share are other code than the trainer's, which fuses other products.
    if request.options.is_portable or (exporter.is_here and exporter.optimize == Goal.SPEED):
        trained = _trained(step, request.copy(), vector.inputs, runs)
    request, exported = _lowered(step, request, trained)
    return request, [vector], exported


def _check_training(train: bool, given: Mapping[str, object]) -> None:
    """BadParameter for options of a training step without --train."""
    for option, value in given.items():
        if value is not None and value != [] and not train:
            raise typer.BadParameter("belongs to --train", param_hint=f"--{option}")


def _device_step(task: Task, given: Mapping[str, object]) -> DeviceStep:
    """The training step of a task, with step options of the command."""
    from popgraph.training.device_step import DeviceStep

    return DeviceStep.of(task, given)


def _lowered(
    step: DeviceStep, request: BuildRequest, trained: Trained | None
) -> tuple[BuildRequest, Step]:
    """The program of a call of the step, lowered, and its update, if that is another program."""
    from popgraph.backends.tools import Step

    request, update = step.programs(request)
    request.lower(request.options)
    if update is not None:
        update.lower(update.options)
    module = None if update is None else update.module
    facts = step.is_mean, step.accumulators, step.clips, step.recomputes
    return request, Step(
        step.weights, step.period, step.counter, module, *facts, trained, step.boxes
    )


def _trained(
    step: DeviceStep, request: BuildRequest, inputs: Mapping[str, Array], runs: int
) -> Trained | None:
    """The results of the trainer's program; None if no compiler works here."""
    from popgraph import compiler
    from popgraph.backends.tools import Trained
    from popgraph.support.errors import BackendError

    if request.options.is_portable:  # It has the same bits on this machine as on the target.
        options = replace(request.options, machine=None)
        request = replace(request, options=compiler.for_this_machine(options, request.threads))
    try:
        executable = step.executable(request)
    except BackendError:
        return None
    for _ in range(runs):
        outputs = executable.run(inputs)
    return Trained(outputs, {name: executable.read(name) for name in executable.variables})


def _kinds(
    derivatives: str | None,
    wrt: Sequence[str] | None,
    of: Sequence[str] | None,
    *,
    casadi: bool,
    train: bool,
    activations: Activations,
) -> list[str]:
    """The derivatives to export; BadParameter for wrong ones and for options without them."""
    if derivatives is None:
        for option, given in (("--wrt", wrt), ("--of", of), ("--casadi", casadi)):
            if given:
                raise typer.BadParameter("belongs to --derivatives", param_hint=option)
        return []
    if casadi and (wrt or of):
        raise typer.BadParameter(
            "CasADi differentiates all float outputs by all float inputs, without --wrt and --of",
            param_hint="--casadi",
        )
    if train:
        raise typer.BadParameter(
            "--train exports a training step, which has no derivatives", param_hint="--derivatives"
        )
    if activations != Activations.FLOAT:
        raise typer.BadParameter(
            "derivatives belong to --activations float: rounding has none",
            param_hint="--activations",
        )
    from popgraph.training.jacobian_products import DERIVATIVES

    kinds = [*dict.fromkeys(one.strip() for one in derivatives.split(","))]
    for kind in kinds:
        if kind not in DERIVATIVES:
            raise typer.BadParameter(
                f"{kind!r} is not one of {', '.join(DERIVATIVES)}", param_hint="--derivatives"
            )
    return kinds


def _derivative(
    request: BuildRequest,
    inputs: Mapping[str, Array],
    kind: str,
    wrt: Sequence[str],
    of: Sequence[str],
) -> Function:
    """A derivative, lowered, with its test vector."""
    from popgraph.backends.reference.meaning import random_inputs
    from popgraph.backends.tools import Function
    from popgraph.cli import models
    from popgraph.training.jacobian_products import DERIVATIVES, add_derivative

    module, compilation = request.module, request.compilation
    add_derivative(kind, module, compilation, request.options, wrt, of)
    vector = _vector(request.copy(), {**random_inputs(models.signature_of(module)), **inputs}, 1)
    request.lower(request.options)
    made = DERIVATIVES[kind]
    return Function(made.function, made.about, module, compilation.weights, vector)


def _inference(
    step: BuildRequest,
    model: Path,
    dim: Sequence[str] | None,
    value: Sequence[str] | None,
    given: Mapping[str, Array],
    adapters: LoraSettings | None,
) -> Function:
    """Inference by the weights of a training step, lowered, with its test vector."""
    from popgraph.backends.tools import Function
    from popgraph.cli import models
    from popgraph.training.inference_form import to_inference

    module, compilation, _ = models.opened(model, dim, value, lora=adapters)
    to_inference(module)
    options = replace(step.options, training=None, variables=True, recompute="", precision="")
    request = replace(step, module=module, compilation=compilation, options=options)
    specs = models.specs_of(module)
    fitting = {
        name: array
        for name, array in given.items()
        if name in specs and specs[name].shape == array.shape
    }
    inputs = _inputs(module, options, fitting)
    vector = _vector(request.copy(), inputs, 1)
    request.lower(request.options)
    about = "Computes the outputs by the weights that the steps have reached."
    return Function("run", about, module, compilation.weights, vector)


def _inputs(module: ModuleOp, made: Options, given: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of the test vectors, random unless given."""
    from popgraph.backends.reference.meaning import random_inputs
    from popgraph.cli import models

    drawn = random_inputs(models.signature_of(module))
    if made.training:  # Every loss of classes has the labels 0 and 1.
        drawn = {name: _label(array) for name, array in drawn.items()}
    return {**drawn, **given}


def _numbers(sizes: Sequence[Size]) -> Iterator[tuple[int, ...]]:
    """Sizes to check: the bounds, different sizes in between, and the least."""
    if sizes:
        bounds = [size.bound for size in sizes]
        between = [bound * (2 + at % 2) // 5 | 1 for at, bound in enumerate(bounds)]
        yield from dict.fromkeys(map(tuple, (bounds, between, [size.least for size in sizes])))


def _vector(
    request: BuildRequest,
    inputs: Mapping[str, Array],
    steps: int,
    sizes: Sequence[Size] = (),
    numbers: Sequence[int] = (),
) -> Vector:
    """The inputs, cut to the sizes, and the reference's outputs."""
    from popgraph.backends.tools import Vector
    from popgraph.support.sizes import with_sizes

    executable = replace(request, backend="reference", threads=1).executable()
    shapes = {name: inputs[name].shape for name in executable.inputs}
    named = {size.name: number for size, number in zip(sizes, numbers, strict=True)}
    ends = with_sizes(shapes, sizes, named)
    slices = {
        name: inputs[name][tuple(slice(0, end) for end in shape)] for name, shape in ends.items()
    }
    given = executable.fitted(slices)
    for _ in range(steps):
        outputs = executable.run(given)
    return Vector(given, outputs, numbers)


def _label(array: Array) -> Array:
    return array % 2 if array.dtype.kind in "iu" else array


def _needs(found: Exported) -> str:
    code = " (and the code: make size)" if "Makefile" in found.files else ""
    return (
        f"ROM {found.rom:,} bytes of constants{code}, "
        f"RAM {found.ram:,} bytes beside inputs and outputs\n{found.use}"
    )
