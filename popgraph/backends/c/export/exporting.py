"""Exports a planned program: an interface, its sources, weights, build files and a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.export import build_files, check_program, source
from popgraph.backends.c.export.image import image_of
from popgraph.backends.c.export.interface import Form, Interface, Weights, header
from popgraph.backends.c.export.names import check_name
from popgraph.backends.c.export.targets import HERE, target_of
from popgraph.backends.c.print.module import frame_header
from popgraph.backends.c.print.unit import POOL
from popgraph.backends.tools import Exported, ExportForm, Vector
from popgraph.dialects.program import WeightStore
from popgraph.support.machine import Machine


def export(
    module: ModuleOp,
    weights: WeightStore,
    form: Form,
    vectors: Sequence[Vector],
    program: str = "main",
) -> Exported:
    """Exports the program of that name from a fully lowered module."""
    check_name(form.name)
    image = image_of(module, weights, program)
    interface = Interface(form, image, frame_header(module, form.threads) == POOL)
    name = form.name
    texts = {
        f"{name}.h": header(interface),
        f"{name}.c": source.source(module, interface, program),
        f"{name}_runtime.h": source.runtime(interface.pooled),
        "main.c": check_program.main(interface),
        "check_data.h": check_program.data(interface, vectors),
        "Makefile": build_files.makefile(interface),
        "CMakeLists.txt": build_files.cmake(interface),
    }
    files = {}
    if packed := build_files.weights_source(interface):
        made = source.assembly if form.weights is Weights.INCBIN else source.array
        texts[packed] = made(interface)
    if form.weights is not Weights.ARRAY and (image.rom_bytes or form.weights is Weights.FILE):
        files[f"{name}_weights.bin"] = list(image.rom)
    files |= {file: [memoryview(text.encode())] for file, text in texts.items()}
    return Exported(files, image.rom_bytes, image.ram_bytes)


@dataclass(frozen=True)
class CExporter:
    """An exporter of C in one form; see `tools.Exporter`."""

    form: Form

    @property
    def machine(self) -> Machine:
        return self.form.target.machine

    @property
    def is_here(self) -> bool:
        return self.form.target.name == HERE

    @property
    def steps(self) -> int:
        return check_program.STEPS if self.form.train else 1

    def export(self, module: ModuleOp, weights: WeightStore, vectors: Sequence[Vector]) -> Exported:
        return export(module, weights, self.form, vectors)


def exporter(form: ExportForm) -> CExporter:
    """The exporter for these options; BackendError for an invalid name or target."""
    check_name(form.name)
    aim, weights = target_of(form.target), Weights(form.weights)
    return CExporter(Form(aim, form.name, weights, form.threads, form.malloc, form.train))
