"""
Measures the networks of MLPerf Tiny on a Cortex-M4: code, constants, RAM, executed instructions.

    python benchmarks/embedded.py                          all networks, as a Markdown table
    python benchmarks/embedded.py ds_cnn --kinds int8      one network in int8
    python benchmarks/embedded.py --emx PATH --onnx2c PATH beside emx-onnx-cgen and onnx2c

Every generator gets the same ONNX file, whose BatchNormalization is folded into weights already,
and its C is compiled by arm-none-eabi-gcc with the same flags, once for each of -Os and -O2. QEMU
runs the programs without an operating system and counts instructions.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from chosen import one_of
from onnx import ModelProto, helper, numpy_helper

import popgraph
from popgraph import zoo
from popgraph.builder.onnx.write import export_model
from popgraph.compiler import load
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.quantization.preparation import prepared
from popgraph.support.arrays import Array
from popgraph.support.tables import markdown_table

HERE = Path(__file__).parent
NETWORKS = ("resnet8", "ds_cnn", "mobilenet_v1", "autoencoder")
KINDS = ("f32", "int8")
ARCH = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
FLAGS = (
    *("-std=c11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffunction-sections", "-fdata-sections", "-w"),
)
"""Flags of the other generators' C. The Makefile of our export has its own."""
LEVELS = ("-Os", "-O2")
COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
TICK = 40
"""Instructions per tick of the timer: 25 MHz of 1 GHz."""
HEADINGS = (
    *("network", "type", "generator", "level", "code", "constants", "RAM", "of it stack"),
    *("instructions", "differs by"),
)


def obstacle() -> str:
    """The reason why nothing can be measured here; "" if it can."""
    missing = [name for name in (COMPILER, EMULATOR, "make") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


# Networks


def network(name: str, kind: str, **parameters: object) -> ModelProto:
    """A network of the zoo for one input, with random weights, in f32 or int8."""
    rng = np.random.default_rng(0)
    module, compilation = load(zoo.load(name, **parameters))
    shapes = {
        each.name: (1, *(dim.dim_value for dim in each.type.tensor_type.shape.dim[1:]))
        for each in export_model(module, compilation.weights).graph.input
    }
    specialise(module, shapes, compilation.weights)
    found = as_trained(export_model(module, compilation.weights), rng)
    if kind == "int8":
        samples = [inputs_of(found, rng) for _ in range(8)]
        return popgraph.quantize(found, samples, measure_errors=False).model
    module, weights = prepared(found, 13)
    return export_model(module, weights)


def as_trained(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """The model with random biases and statistics, and without nodes that change nothing."""
    graph = model.graph
    for tensor in graph.initializer:
        kind, shape = tensor.name.rpartition("/")[2], tuple(tensor.dims)
        if kind in ("mean", "bias", "b"):
            array = rng.normal(0, 0.1, shape)
        elif kind in ("variance", "scale"):
            array = rng.uniform(0.5, 1.5, shape)
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    idle = [node for node in graph.node if node.op_type in ("Dropout", "Identity")]
    same = {node.output[0]: node.input[0] for node in idle}
    for node in idle:
        graph.node.remove(node)
    for node in graph.node:
        for position, value in enumerate(node.input):
            while value in same:
                value = same[value]
            node.input[position] = value
    spell_windows_out(model)
    used = {value for node in graph.node for value in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return model


def spell_windows_out(model: ModelProto) -> None:
    """Writes kernel_shape and pads of convolutions: onnx2c derives neither of them correctly."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {one.name: shape_of(one) for one in (*inferred.input, *inferred.value_info)}
    kernels = {each.name: list(each.dims)[2:] for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Conv":
            continue
        found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        kernel, strides = kernels[node.input[1]], found["strides"]
        begin, end = [], []
        windows = zip(shapes[node.input[0]][2:], kernel, strides, strict=True)
        for size, width, stride in windows:
            around = max(0, (-(-size // stride) - 1) * stride + width - size)
            begin.append(around // 2)
            end.append(around - around // 2)
        made = {"strides": strides, "group": found.get("group", 1), "pads": begin + end}
        del node.attribute[:]
        for name, value in {"kernel_shape": kernel, **made}.items():
            node.attribute.append(helper.make_attribute(name, value))


def inputs_of(model: ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    """A random input of each kind."""
    return {
        each.name: rng.standard_normal(shape_of(each)).astype(np.float32)
        for each in model.graph.input
    }


def shape_of(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


# Generators


@dataclass(frozen=True)
class Source:
    """C of one generator: objects to link, and how the program calls it."""

    objects: Sequence[Path]
    declarations: str
    """Declares what `call` needs, except `inputs` and `outputs`."""
    call: str
    prepare: str = ""


Generator = Callable[[Path, Path, str], Source]
"""Writes C of an ONNX file into a folder, and compiles it at a level."""


def ours(optimize: str, path: Path, folder: Path, level: str) -> Source:
    """Our export, built by its Makefile; of several levels, GCC applies the last one."""
    options = ["--optimize", optimize] if optimize else []
    target = ("--target", "armv7e-m", "--no-malloc")
    run(sys.executable, "-m", "popgraph", "export", path, "-o", folder, *target, *options)
    compiler = folder / "compiler"
    keeps = f"-ffunction-sections -fdata-sections {level}"
    compiler.write_text(f'#!/bin/sh\nexec {COMPILER} "$@" {keeps}\n')
    compiler.chmod(0o755)
    run("make", "-C", folder, "libmodel.a", f"CC={compiler}", f"AR={COMPILER[:-3]}ar")
    return Source(
        [folder / "libmodel.a"],
        f'#include "{folder}/model.h"\n'
        "static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];\n"
        "static model held;\n",
        "const model_inputs read = {inputs};\n"
        "const model_outputs written = {outputs};\n"
        "(void)model_run(&held, &read, &written);\n",
        "(void)model_init(&held, memory);\n",
    )


def emx(command: str, path: Path, folder: Path, level: str) -> Source:
    """emx-onnx-cgen's C, with its tensors on the stack and its weights embedded."""
    source = folder / "model.c"
    keeps = ("--large-weight-threshold", "0", "--large-temp-threshold", "0")
    run(command, "compile", *keeps, path, source)
    return plain(source, level)


def onnx2c(command: str, path: Path, folder: Path, level: str) -> Source:
    """onnx2c's C, with its tensors in static memory."""
    source = folder / "model.c"
    source.write_text(run(command, "-f", "model", path))
    return plain(source, level)


def plain(source: Path, level: str) -> Source:
    """A source with one function, `model(inputs, outputs)`."""
    made = source.with_suffix(".o")
    run(COMPILER, *ARCH, *FLAGS, level, "-c", source, "-o", made)
    return Source([made], "void model();\n", "model(inputs, outputs);\n")


# Measurement


@dataclass(frozen=True)
class Figures:
    """Bytes and instructions of one program."""

    code: int
    constants: int
    stored: int
    """Static RAM, without the arrays of inputs and outputs."""
    stack: int
    instructions: int
    result: Array

    @property
    def ram(self) -> int:
        return self.stored + self.stack


def measured(source: Source, folder: Path, given: Array, count: int) -> Figures:
    """Links and runs a program, and subtracts the sizes of one with an empty model."""
    empty = linked(Source([], "", ""), folder / "empty.elf", given, count)
    program = linked(source, folder / "program.elf", given, count)
    before, after = sizes(empty), sizes(program)
    ticks, stack, *bits = executed(program)
    least, none, *_ = executed(empty)
    return Figures(
        after[".text"] - before[".text"],
        after[".rodata"] + after[".data"] - before[".rodata"] - before[".data"],
        after[".data"] + after[".bss"] - before[".data"] - before[".bss"],
        stack - none,
        (ticks - least) * TICK,
        np.array(bits, np.uint32).view(np.float32),
    )


def linked(source: Source, path: Path, given: Array, count: int) -> Path:
    """The program `embedded.c` with a model, an input and an array of `count` outputs."""
    values = ",".join(float(value).hex() + "f" for value in given.reshape(-1))
    folder = path.parent / path.stem
    folder.mkdir()
    (folder / "model.inc").write_text(
        f"static const _Alignas(16) float inputs[] = {{{values}}};\n"
        f"static _Alignas(16) float outputs[{count}];\n"
        f"{source.declarations}"
        f"static void prepare_model(void) {{\n{source.prepare}}}\n"
        f"static __attribute__((noinline)) void run_model(void) {{\n"
        f'__asm__ volatile("" :: "r"(inputs), "r"(outputs) : "memory");\n{source.call}}}\n'
    )
    flags = ("-O1", "-w", "-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections")
    places = (f"-T{HERE / 'embedded.ld'}", f"-I{folder}")
    run(COMPILER, *ARCH, *flags, *places, HERE / "embedded.c", *source.objects, "-lm", "-o", path)
    return path


def sizes(program: Path) -> dict[str, int]:
    """Sizes of the sections of a program."""
    lines = run(f"{COMPILER[:-3]}size", "-A", program).splitlines()
    found = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(".")}
    return {name: found.get(name, 0) for name in (".text", ".rodata", ".data", ".bss")}


def executed(program: Path) -> list[int]:
    """The numbers that a program prints."""
    machine = ("-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "none")
    counted = ("-icount", "shift=0", "-semihosting-config", "enable=on,target=native")
    said = run(EMULATOR, *machine, *counted, "-kernel", program, both=True)
    return [int(word, 16) for word in said.split()]


def run(*command: str | Path, both: bool = False) -> str:
    """The output of a command; `both` adds stderr, where semihosting writes."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(next((line for line in lines if "rror" in line), str(lines[-1:])))
    return done.stdout + done.stderr if both else done.stdout


def figures(generator: Generator, model: Path, level: str) -> Figures:
    """The figures of a generator for an ONNX file."""
    proto = onnx.load(model)
    given = inputs_of(proto, np.random.default_rng(1))
    (array,) = given.values()
    (result,) = proto.graph.output
    with TemporaryDirectory() as folder:
        (made := Path(folder) / "c").mkdir()
        source = generator(model, made, level)
        return measured(source, Path(folder), array, int(np.prod(shape_of(result))))


def expected(model: Path) -> Array:
    """The result of the program on this machine, as the reference of all generators."""
    given = inputs_of(onnx.load(model), np.random.default_rng(1))
    (result,) = popgraph.compile(str(model), quick=False)(**given).values()
    return np.asarray(result).reshape(-1)


# Table


def rows(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """The rows of all networks and generators; progress on stderr."""
    generators: dict[str, Generator] = {
        " ".join(["PopGraph", optimize]).strip(): partial(ours, optimize)
        for optimize in arguments.optimize
    }
    for name, command, write in (
        ("emx-onnx-cgen", arguments.emx, emx),
        ("onnx2c", arguments.onnx2c, onnx2c),
    ):
        if command:
            generators[name] = partial(write, command)
    with TemporaryDirectory() as folder:
        for name in arguments.names or NETWORKS:
            for kind in arguments.kinds:
                model = Path(folder) / f"{name}.{kind}.onnx"
                onnx.save(network(name, kind), model)
                wanted = expected(model)
                for title, generator in generators.items():
                    for level in arguments.levels:
                        cells = row(generator, model, level, wanted)
                        print(name, kind, title, level, *cells, file=sys.stderr)
                        yield [name, kind, title, level, *cells]


def row(generator: Generator, model: Path, level: str, wanted: Array) -> list[str]:
    try:
        found = figures(generator, model, level)
    except RuntimeError as error:
        return [f"refused: {str(error)[:70]}", *[""] * 5]
    apart = float(np.max(np.abs(found.result - wanted)) / np.max(np.abs(wanted)))
    sized = (found.code, found.constants, found.ram, found.stack, found.instructions)
    return [*(f"{size:,}" for size in sized), f"{apart:.0e}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", type=one_of("network", NETWORKS), help="all networks if not given"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--levels", nargs="+", default=LEVELS, help="optimization levels of GCC")
    parser.add_argument(
        "--optimize", nargs="+", default=[""], help="values of `popgraph export --optimize`"
    )
    parser.add_argument("--emx", metavar="PATH", default=shutil.which("emx-onnx-cgen"))
    parser.add_argument("--onnx2c", metavar="PATH", default=shutil.which("onnx2c"))
    arguments = parser.parse_args()
    if why := obstacle():
        raise SystemExit(f"Error: {why}")
    print(markdown_table(HEADINGS, list(rows(arguments)), "    rrrrrr"))


if __name__ == "__main__":
    main()
