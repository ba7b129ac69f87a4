"""An Arduino library."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.export.packages.microcontroller import (
    TARGET,
    about,
    check_form,
    files_of,
    sketch,
    sketch_check,
    sources_in,
)
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.tools import Files


def write(sources: Sources) -> Files:
    """library.properties, keywords.txt, the sources and an example."""
    interface = sources.interface
    name = interface.form.name
    texts = {
        "library.properties": _properties(interface),
        "keywords.txt": "".join(_keywords(interface)),
        f"examples/{name}/{name}.ino": sketch(interface),
        f"examples/{name}/check.h": sketch_check(sources),
    }
    vector = {f"examples/{name}/check_data.h": sources.files["check_data.h"]}
    return sources_in("src", sources) | vector | files_of(texts)


def _properties(interface: Interface) -> str:
    form = interface.form
    return f"""\
name={form.name.strip("_")}
version={interface.form.version}
author=unknown
maintainer=unknown <unknown@example.com>
sentence={about(interface)}
paragraph=It allocates nothing, and needs {interface.ram_bytes} bytes of RAM and \
{interface.image.rom_bytes} bytes of constants in flash memory, beside inputs, outputs and code.
category=Data Processing
url=https://example.com/{form.name}
architectures=*
includes={form.name}.h
"""


def _keywords(interface: Interface) -> Iterator[str]:
    """Types, functions and constants that editors highlight."""
    form = interface.form
    macro = form.name.upper()
    types = [form.name, f"{form.name}_tensor", f"{form.name}_description"]
    for one in interface.all:
        types += [f"{one.prefix}_inputs", f"{one.prefix}_outputs"]
    functions = [f"{form.name}_init", *(f"{form.name}_{one.verb}" for one in interface.all)]
    if interface.state_bytes:
        functions += [f"{form.name}_{one}" for one in ("save", "load", "variable")]
    constants = [f"{macro}_{one}" for one in ("MEMORY_BYTES", "ALIGNMENT", "OK", "BAD_INDEX")]
    for kind, words in (("KEYWORD1", types), ("KEYWORD2", functions), ("LITERAL1", constants)):
        for word in words:
            yield f"{word}\t{kind}\n"


PACKAGE = Package("arduino", write, weights=("array",), target=TARGET, check=check_form)
