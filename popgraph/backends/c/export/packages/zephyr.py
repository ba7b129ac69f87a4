"""A module of Zephyr."""

from __future__ import annotations

from popgraph.backends.c.export.check_program import Place
from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.export.packages.microcontroller import (
    RUNS,
    TARGET,
    about,
    check_form,
    example,
    files_of,
    flags,
    sources_in,
    units,
)
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.tools import Files

PLACE = Place(
    "#include <zephyr/kernel.h>\n",
    "    return (double)k_uptime_ticks() / CONFIG_SYS_CLOCK_TICKS_PER_SEC;\n",
    f"int main(void) {{ return check({RUNS}); }}\n",
)
SAMPLE = "samples/check"


def write(sources: Sources) -> Files:
    """zephyr/module.yml, CMakeLists.txt and Kconfig, the sources, and a sample for twister."""
    interface = sources.interface
    texts = {
        "zephyr/module.yml": _module(interface),
        "zephyr/Kconfig": _kconfig(interface),
        "CMakeLists.txt": _library(sources),
        f"{SAMPLE}/CMakeLists.txt": _application(interface),
        f"{SAMPLE}/prj.conf": _configuration(interface),
        f"{SAMPLE}/sample.yaml": _tests(interface),
    }
    made = sources_in("src", sources) | example(f"{SAMPLE}/src", sources, PLACE)
    return made | files_of(texts)


def _option(interface: Interface) -> str:
    """The Kconfig option; other modules may have one of the model's name."""
    return f"POPGRAPH_{interface.form.name.upper()}"


def _module(interface: Interface) -> str:
    return f"""\
name: {interface.form.name}
build:
  cmake: .
  kconfig: zephyr/Kconfig
samples:
  - samples
"""


def _kconfig(interface: Interface) -> str:
    return f"""\
config {_option(interface)}
\tbool "{interface.form.name}, a neural network"
\tselect REQUIRES_FULL_LIBC
\timply FPU
\thelp
\t  {about(interface)}
\t  It allocates nothing: the memory of a model, {interface.ram_bytes} bytes, is the caller's.
"""


def _library(sources: Sources) -> str:
    listed = "".join(f" src/{one}" for one in units(sources))
    return f"""\
if(CONFIG_{_option(sources.interface)})
  zephyr_library()
  zephyr_library_sources({listed.strip()})
  zephyr_library_compile_options({" ".join(flags(sources.interface))})
  zephyr_include_directories(src)
endif()
"""


def _application(interface: Interface) -> str:
    name = interface.form.name
    return f"""\
# Runs {name} on a test vector: west build -b mps2/an386 -t run
cmake_minimum_required(VERSION 3.20)
list(APPEND EXTRA_ZEPHYR_MODULES ${{CMAKE_CURRENT_SOURCE_DIR}}/../..)
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project(check_{name} LANGUAGES C)
target_sources(app PRIVATE src/main.c)
"""


def _configuration(interface: Interface) -> str:
    return f"""\
CONFIG_{_option(interface)}=y
CONFIG_REQUIRES_FLOAT_PRINTF=y
CONFIG_MAIN_STACK_SIZE=16384
"""


def _tests(interface: Interface) -> str:
    name = interface.form.name
    kilobytes = interface.ram_bytes // 1024 + 32
    return f"""\
sample:
  name: {name}
  description: {about(interface).replace(": ", ", ")}
tests:
  sample.{name}.check:
    tags: {name}
    min_ram: {kilobytes}
    integration_platforms:
      - mps2/an386
    harness: console
    harness_config:
      type: one_line
      regex:
        - "^good$"
"""


PACKAGE = Package("zephyr", write, weights=("array",), target=TARGET, check=check_form)
