"""A PlatformIO library."""

from __future__ import annotations

import json

from popgraph.backends.c.export.check_program import HOSTED
from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.export.packages.microcontroller import (
    TARGET,
    about,
    check_form,
    example,
    files_of,
    flags,
    sketch,
    sketch_check,
    sources_in,
)
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.tools import Files

EXAMPLE = "examples/check"


def write(sources: Sources) -> Files:
    """library.json, the sources and an example with two environments: a board and this machine."""
    interface = sources.interface
    sketched = "#include <Arduino.h>\n\n" + sketch(interface)
    texts = {
        f"{EXAMPLE}/platformio.ini": _project(interface),
        f"{EXAMPLE}/src/sketch.cpp": sketched,
        f"{EXAMPLE}/src/check.h": sketch_check(sources),
    }
    made = example(f"{EXAMPLE}/src", sources, HOSTED) | files_of(texts)
    listed = [file.removeprefix(f"{EXAMPLE}/") for file in sorted(made)]
    manifest = json.dumps(_manifest(interface, listed), indent=2) + "\n"
    return sources_in("src", sources) | made | files_of({"library.json": manifest})


def _manifest(interface: Interface, listed: list[str]) -> dict[str, object]:
    return {
        "name": interface.form.name,
        "version": interface.form.version,
        "description": about(interface),
        "keywords": ["neural network", "machine learning", "popgraph"],
        "headers": [f"{interface.form.name}.h"],
        "frameworks": ["*"],
        "platforms": ["*"],
        "build": {"srcDir": "src", "includeDir": "src", "flags": flags(interface)},
        "examples": [{"name": "check", "base": EXAMPLE, "files": listed}],
    }


def _project(interface: Interface) -> str:
    name = interface.form.name
    return f"""\
; Runs {name} on a test vector: `pio run -e native -t exec` on this machine, `pio run -t upload` and
; `pio device monitor` on a board. Add an [env:...] for yours.
[platformio]
default_envs = board

[env]
lib_deps = {name}=symlink://../..

[env:board]
platform = ststm32
board = nucleo_f446re
framework = arduino
monitor_speed = 115200
build_src_filter = +<sketch.cpp>

[env:native]
platform = native
build_flags = -lm
build_src_filter = +<main.c>
"""


PACKAGE = Package("platformio", write, weights=("array",), target=TARGET, check=check_form)
