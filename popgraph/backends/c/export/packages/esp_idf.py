"""A component of ESP-IDF."""

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
    "#include <esp_timer.h>\n",
    "    return 1e-6 * (double)esp_timer_get_time();\n",
    f"void app_main(void) {{ check({RUNS}); }}\n",
)
EXAMPLE = "examples/check"


def write(sources: Sources) -> Files:
    """The component's CMakeLists.txt and manifest, the sources, and an example project."""
    interface = sources.interface
    texts = {
        "CMakeLists.txt": _component(sources),
        "idf_component.yml": _manifest(interface),
        f"{EXAMPLE}/CMakeLists.txt": _project(interface),
        f"{EXAMPLE}/sdkconfig.defaults": "CONFIG_ESP_MAIN_TASK_STACK_SIZE=16384\n",
        f"{EXAMPLE}/main/CMakeLists.txt": 'idf_component_register(SRCS "main.c")\n',
    }
    made = sources_in("src", sources) | example(f"{EXAMPLE}/main", sources, PLACE)
    return made | files_of(texts)


def _component(sources: Sources) -> str:
    listed = " ".join(f'"src/{one}"' for one in units(sources))
    return f"""\
# {about(sources.interface)}
idf_component_register(SRCS {listed} INCLUDE_DIRS "src")
target_compile_options(${{COMPONENT_LIB}} PRIVATE {" ".join(flags(sources.interface))})
"""


def _manifest(interface: Interface) -> str:
    return f"""\
version: "{interface.form.version}"
description: "{about(interface)}"
dependencies:
  idf: ">=5.0"
"""


def _project(interface: Interface) -> str:
    return f"""\
# Runs {interface.form.name} on a test vector: idf.py set-target esp32s3 flash monitor
cmake_minimum_required(VERSION 3.16)
set(EXTRA_COMPONENT_DIRS "${{CMAKE_CURRENT_LIST_DIR}}/../..")
include($ENV{{IDF_PATH}}/tools/cmake/project.cmake)
project(check_{interface.form.name})
"""


PACKAGE = Package("esp-idf", write, weights=("array",), target=TARGET, check=check_form)
