"""Exports a planned program: an interface, its sources, weights, build files and a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr

from popgraph.backends.c.export import (
    build_files,
    casadi,
    check_program,
    cpp_header,
    deltas,
    source,
)
from popgraph.backends.c.export.image import ALIGNMENT, SMALLEST, Image, images_of
from popgraph.backends.c.export.interface import Form, Interface, Weights, header
from popgraph.backends.c.export.memory_use import MemoryUse
from popgraph.backends.c.export.names import check_name, check_version
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.c.export.packages.registry import package_of
from popgraph.backends.c.export.targets import HERE, SPELLINGS, target_of
from popgraph.backends.c.print.module import frame_header
from popgraph.backends.c.print.unit import POOL
from popgraph.backends.tools import Exported, ExportForm, Function, Step, Vector
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import ProgramOp
from popgraph.dialects.tile.loops.known import is_portable
from popgraph.support.errors import BackendError
from popgraph.support.machine import Machine

UPDATE = "update"
"""The name of the update after several steps, a program without a function of its own."""


def export(
    module: ModuleOp,
    weights: WeightStore,
    form: Form,
    vectors: Sequence[Vector],
    program: str = "main",
    functions: Sequence[Function] = (),
    step: Step | None = None,
) -> Exported:
    """Exports the program of that name from a fully lowered module, and other functions."""
    check_name(form.name)
    form = replace(form, portable=any(map(is_portable, module.ops)))
    others = [(one.name, one.about, one.module, one.weights) for one in functions]
    if step is not None and step.update is not None:
        others.append((UPDATE, "", step.update, weights))
    modules = [module, *(_own_programs(one, name) for name, _, one, _ in others)]
    programs = [program, *(f"{name}_main" for name, *_ in others)]
    stateful = {program, f"{UPDATE}_main"}
    stores = [weights, *(store for *_, store in others)]
    alignment = SMALLEST if form.target.machine.is_scalar else ALIGNMENT
    images = images_of(modules, stores, programs, stateful, alignment)
    if functions and not form.train:
        _check_stateless(images)
    pooled = POOL in (frame_header(one, form.threads) for one in modules)
    image, made, first = images[0], list[Interface](), len(images[0].table.slots)
    for (name, about, *_), own in zip(others, images[1:], strict=True):
        made.append(Interface(form, own, pooled, name, about, first))
        first += len(own.table.slots)
    update = made.pop() if step is not None and step.update is not None else None
    interface = Interface(form, image, pooled, others=tuple(made), step=step, update=update)
    use = MemoryUse.of(interface, modules, programs)
    steps = [source.steps_of(*one, form) for one in zip(modules, programs, strict=True)]
    name = form.name
    texts = {
        f"{name}.h": header(interface, use.comment(), deltas.declarations(interface)),
        f"{name}.hpp": cpp_header.header(interface),
        f"{name}.json": use.json(),
        f"{name}.c": source.source(interface, steps, programs),
        f"{name}_runtime.h": source.runtime(interface.pooled),
        "main.c": check_program.main(interface),
        "check_data.h": check_program.data(interface, vectors, [one.vector for one in functions]),
        "Makefile": build_files.makefile(interface),
        "CMakeLists.txt": build_files.cmake(interface),
    }
    if form.casadi:
        texts[f"{name}_casadi.c"] = casadi.casadi(interface)
    files = {}
    if packed := build_files.weights_source(interface):
        write = source.assembly if form.weights is Weights.INCBIN else source.array
        texts[packed] = write(interface)
    if form.weights is not Weights.ARRAY and (image.rom_bytes or form.weights is Weights.FILE):
        files[f"{name}_weights.bin"] = image.rom
    files |= {file: [memoryview(text.encode())] for file, text in texts.items()}
    if form.package:
        given = [one.vector for one in functions]
        files = package_of(form.package).write(Sources(interface, files, vectors, given))
    return Exported(files, image.rom_bytes, interface.ram_bytes, use.table())


def _check_stateless(images: Sequence[Image]) -> None:
    """BackendError unless derivatives can share memory: they keep nothing between runs."""
    if any(one.table.named("variable") or one.table.sizes for one in images):
        raise BackendError(
            "derivatives cannot be exported of a model with state or with open sizes",
            "--derivatives",
            "give every dimension one size, such as --dim N=4, and leave out random operators",
        )


def _own_programs(module: ModuleOp, prefix: str) -> ModuleOp:
    """A copy of a module whose programs have names that begin with `prefix_`."""
    copy = module.clone()
    names = {op.sym_name.data for op in copy.ops if isinstance(op, ProgramOp)}
    for op in copy.walk():
        if isinstance(op, ProgramOp):
            op.sym_name = StringAttr(f"{prefix}_{op.sym_name.data}")
            continue
        for key, value in op.properties.items():
            if isinstance(value, SymbolRefAttr) and value.string_value() in names:
                op.properties[key] = SymbolRefAttr(f"{prefix}_{value.string_value()}")
    return copy


@dataclass(frozen=True)
class CExporter:
    """An exporter of C in one form; see `tools.Exporter`."""

    form: Form

    @property
    def machine(self) -> Machine:
        return self.form.target.machine

    @property
    def optimize(self) -> str:
        return self.form.optimize

    @property
    def is_here(self) -> bool:
        return self.form.target.name == HERE

    @property
    def adds_run(self) -> bool:
        return (
            self.form.train and bool(self.form.package) and package_of(self.form.package).adds_run
        )

    def steps(self, period: int = 1) -> int:
        return check_program.steps(period) if self.form.train else 1

    def export(
        self,
        module: ModuleOp,
        weights: WeightStore,
        vectors: Sequence[Vector],
        functions: Sequence[Function] = (),
        step: Step | None = None,
    ) -> Exported:
        return export(module, weights, self.form, vectors, functions=functions, step=step)


def exporter(form: ExportForm) -> CExporter:
    """The exporter for these options; BackendError for an invalid name, target or package."""
    check_name(form.name)
    check_version(form.version)
    package = package_of(form.package) if form.package else Package()
    target = SPELLINGS.get(form.target, form.target)
    aim = target_of(package.choose("--target", target, package.targets) or package.target)
    weights = package.choose("--weights", form.weights, package.weights) or Weights.INCBIN
    made = Form(
        aim,
        form.name,
        Weights(weights),
        form.threads,
        form.malloc,
        form.train,
        form.casadi,
        form.package,
        form.version,
        optimize=form.optimize or aim.optimize,
    )
    package.check(made)
    return CExporter(made)
