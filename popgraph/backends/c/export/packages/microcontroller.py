"""The parts that packages for microcontrollers share: sources, examples and checks of options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from popgraph.backends.c.export.build_files import compile_flags
from popgraph.backends.c.export.check_program import Place, comparison, main, runs, tolerance
from popgraph.backends.c.export.cpp_header import count
from popgraph.backends.c.export.interface import Form, Interface, c_type
from popgraph.backends.c.export.packages.package import Sources
from popgraph.backends.tools import Files
from popgraph.support.errors import BackendError

TARGET = "armv7e-m"
"""The default target: its C needs no vector instructions, and builds for other machines, too."""
RUNS = 10
"""The runs that an example times."""


def check_form(form: Form) -> None:
    """BackendError if an option needs an operating system."""
    if form.threads > 1:
        raise BackendError(
            f"a package for {form.package} cannot have {form.threads} threads",
            "--threads",
            "leave it out: code for microcontrollers has no thread pool",
        )
    if form.casadi:
        raise BackendError(
            f"a package for {form.package} has no external function for CasADi",
            "--casadi",
            "export it without --package",
        )


def sources_in(folder: str, sources: Sources) -> Files:
    """The headers and sources of the library, in a folder."""
    name = sources.interface.form.name
    kept = (f"{name}.h", f"{name}.hpp", f"{name}.c", f"{name}_runtime.h", f"{name}_weights.c")
    return {f"{folder}/{file}": sources.files[file] for file in kept if file in sources.files}


def units(sources: Sources) -> list[str]:
    """The file names of the translation units."""
    name = sources.interface.form.name
    return [one for one in (f"{name}.c", f"{name}_weights.c") if one in sources.files]


def flags(interface: Interface) -> list[str]:
    """Flags of any machine, without the standard and the level of optimization."""
    return [one for one in compile_flags(interface) if not one.startswith(("-std", "-O"))]


def example(folder: str, sources: Sources, place: Place) -> Files:
    """The check of the export, for a system."""
    return files_of({f"{folder}/main.c": main(sources.interface, place)}) | {
        f"{folder}/check_data.h": sources.files["check_data.h"]
    }


def files_of(texts: Mapping[str, str]) -> Files:
    """Files of texts."""
    return {name: [memoryview(text.encode())] for name, text in texts.items()}


def about(interface: Interface) -> str:
    """One sentence on the package."""
    verb = "trains" if interface.form.train else "runs"
    return f"{interface.form.name}: C that {verb} a neural network, made by PopGraph."


def sketch(interface: Interface) -> str:
    """A sketch of Arduino that runs the model on its test vector and prints the outputs."""
    form = interface.form
    name, macro = form.name, form.name.upper()
    buffers = "".join(
        f"alignas({macro}_ALIGNMENT) static {c_type(slot)} found_{member}[{max(1, count(slot))}];\n"
        for member, (_, slot) in interface.outputs.items()
    )
    end = "_0" if interface.sizes else ""
    given = ", ".join(
        f"(const {c_type(slot)} *)given_{member}" for member, (_, slot) in interface.inputs.items()
    )
    found = ", ".join(f"found_{member}" for member in interface.outputs)
    bounds = ", ".join(interface.bound(member) for member in interface.sizes)
    sizes = f"    const {name}_sizes sizes = {{{bounds}}};\n" if bounds else ""
    call = f"{name}_{form.verb}(&model, {'&sizes, ' if bounds else ''}&inputs, &outputs)"
    steps, each = f"    if (code == {macro}_OK) code = {call};\n", ""
    if (number := runs(interface)) > 1:
        steps = f"    for (int at = 0; at < {number} && code == {macro}_OK; at++) code = {call};\n"
        each = f" / {number}"
    compared = "".join(
        f"    good &= compare({name}_about.outputs[{number}], found_{member}, "
        f"wanted_{member}{end}, {tolerance(slot):g});\n"
        for number, (member, (_, slot)) in enumerate(interface.outputs.items())
    )
    return f"""\
/*
 * Runs {name} on a test vector again and again: prints the outputs, whether they are those of
 * PopGraph's reference, and the time of a {form.verb}. This is also an example of a call.
 */
#include <{name}.h>

#include "check.h"

alignas({macro}_ALIGNMENT) static unsigned char memory[{macro}_MEMORY_BYTES];
static {name} model;
{buffers}
void setup() {{
    Serial.begin(115200);
    while (!Serial && millis() < 3000) {{
    }}
}}

void loop() {{
    const {name}_inputs inputs = {{{given or "nullptr"}}};
    const {name}_outputs outputs = {{{found or "nullptr"}}};
{sizes}    int code = {name}_init(&model, memory);
    const unsigned long start = micros();
{steps}    const unsigned long passed = micros() - start;
    bool good = code == {macro}_OK;
{compared}    Serial.print(good ? "good, " : "BAD, ");
    Serial.print(passed{each});
    Serial.println(" us");
    delay(5000);
}}
"""


def sketch_check(sources: Sources) -> str:
    """check.h, which the sketch includes: a comparison with the test vector that prints."""
    name = sources.interface.form.name
    return f"""\
/* Compares outputs of {name} with those of the test vector. */
#include <math.h>
#include <string.h>

#include "check_data.h"

{comparison(sources.interface)}{_number(sources.interface)}
/* Prints the first elements of an output, and how far it is from the one that is wanted. */
static bool compare(
    const {name}_tensor &tensor, const void *found, const void *wanted, double tolerance) {{
    const double apart = distance(&tensor, found, wanted);
    const bool good = apart >= 0.0 && apart <= tolerance;
    Serial.print(tensor.name);
    Serial.print(" =");
    for (size_t at = 0; at < tensor.elements && at < 10; at++) {{
        Serial.print(' ');
        Serial.print(number(tensor.type, found, at), 4);
    }}
    Serial.println(tensor.elements > 10 ? " ..." : "");
    if (!good) Serial.println("  not the output of the test vector");
    return good;
}}
"""


def _number(interface: Interface) -> str:
    """A C++ function that returns any element of an output as a number."""
    cases = "".join(
        f'    if (!strcmp(type, "{kind}")) return (double)((const {element} *)data)[at];\n'
        for kind, element in dict.fromkeys(_integers(interface))
    )
    return f"""
static double number(const char *type, const void *data, size_t at) {{
{cases}    return element(type, data, at);
}}
"""


def _integers(interface: Interface) -> Iterator[tuple[str, str]]:
    """The types of outputs that are not floats, with the type in C."""
    for _, slot in interface.outputs.values():
        assert slot.dtype is not None
        element = c_type(slot)
        if element not in ("float", "double") and slot.dtype.name not in ("f16", "bf16"):
            yield slot.dtype.name, element
