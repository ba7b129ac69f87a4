"""Two Rust crates: NAME-sys, which builds and declares the C, and NAME, a safe wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files as resources

from popgraph.backends.c.build.toolchain import GCC_FLAGS
from popgraph.backends.c.export.build_files import architecture, compile_flags
from popgraph.backends.c.export.check_program import runs, tolerance
from popgraph.backends.c.export.cpp_header import count, elements, filled
from popgraph.backends.c.export.image import ALIGNMENT
from popgraph.backends.c.export.interface import MEANING, Form, Interface, c_type
from popgraph.backends.c.export.packages.microcontroller import about, files_of
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.c.export.source import padded_words, words_text
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.tools import Files
from popgraph.support.arrays import Array
from popgraph.support.errors import BackendError

_HERE = resources("popgraph.backends.c.export.packages") / "cargo_files"

_SPELLED = """
abstract as async await become box break const continue crate do dyn else enum extern false final fn
for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct
super trait true try type typeof unsafe unsized use virtual where while yield
"""
_WORDS = frozenset(_SPELLED.split())
"""The keywords of Rust."""
_CRATES = frozenset(["alloc", "core", "proc_macro", "std", "test"])
"""Crates of the compiler."""

TYPES = {"float": "f32", "double": "f64"} | {
    f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits}"
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
"""Rust's types of elements."""


def check_form(form: Form) -> None:
    """BackendError if a crate cannot have the name."""
    if form.name in _WORDS | _CRATES:
        raise BackendError(
            f"{form.name!r} cannot be the name of a crate",
            "--name",
            "use a name that is neither a keyword nor a crate of Rust",
        )
    if form.casadi:
        raise BackendError(
            "a crate has no external function for CasADi",
            "--casadi",
            "export it without --package",
        )


def write(sources: Sources) -> Files:
    """Both crates, as a workspace, with a test that runs the test vector."""
    interface = sources.interface
    name = interface.form.name
    left = ("main.c", "check_data.h", "Makefile", "CMakeLists.txt", f"{name}.hpp", f"{name}.json")
    kept = {
        f"{name}-sys/c/{file}": parts for file, parts in sources.files.items() if file not in left
    }
    words = _words(interface)
    return kept | files_of(
        {
            "Cargo.toml": filled(MANIFEST, words),
            "src/lib.rs": _wrapper(interface, words),
            "tests/check.rs": _test(sources, words),
            f"{name}-sys/Cargo.toml": filled(SYS_MANIFEST, words),
            f"{name}-sys/c/{name}_layout.c": _layout(interface),
            f"{name}-sys/build.rs": _build(interface, words),
            f"{name}-sys/src/lib.rs": _declarations(interface, words),
        }
    )


def _file(name: str) -> str:
    """A template."""
    return (_HERE / name).read_text("utf-8")


def _words(interface: Interface) -> dict[str, str]:
    form = interface.form
    return {
        "NAME": form.name,
        "MACRO": form.name.upper(),
        "VERSION": form.version,
        "SUMMARY": about(interface),
        "VERB": form.verb,
    }


MANIFEST = """\
[package]
name = "NAME"
version = "VERSION"
edition = "2021"
rust-version = "1.81"
description = "SUMMARY"

[dependencies]
NAME-sys = { path = "NAME-sys", version = "VERSION" }

[workspace]
members = ["NAME-sys"]
"""

SYS_MANIFEST = """\
[package]
name = "NAME-sys"
version = "VERSION"
edition = "2021"
rust-version = "1.81"
description = "SUMMARY"
links = "NAME"
build = "build.rs"
"""


def _build(interface: Interface, words: dict[str, str]) -> str:
    name = interface.form.name
    listed = [f"{name}.c", f"{name}_layout.c"]
    if interface.image.rom_bytes:
        listed.append(f"{name}_weights.{'c' if interface.form.weights == 'array' else 'S'}")
    return filled(
        _file("build.rs"),
        {
            "SOURCES_": _strings(listed),
            "COMPILER": f'"{interface.form.target.compiler}"',
            "ARCHITECTURE_": _strings(architecture(interface)),
            "FLAGS_": _strings(compile_flags(interface)),
            "OWN": _strings(GCC_FLAGS),
            **words,
        },
    )


def _strings(texts: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    return ", ".join(f'"{one}"' for one in texts)


def _layout(interface: Interface) -> str:
    """C that refuses to compile unless the structs have the sizes of their declarations in Rust."""
    name, macro = interface.form.name, interface.form.name.upper()
    words = 9 + 2 * bool(interface.variables) + 2 * bool(interface.sizes)
    members = "const char *name, *type; size_t elements, bytes, rank, shape[{}];"
    if interface.sizes:
        members += " int size[{}];"
    rank = f"{macro}_RANK"
    checks = {
        f"sizeof({name})": f"{interface.slots} * sizeof(void *)",
        f"sizeof({name}_tensor)": f"sizeof(struct {{ {members.replace('{}', rank)} }})",
        f"sizeof({name}_description)": f"{words} * sizeof(void *)",
        f"{macro}_MEMORY_BYTES": str(max(interface.ram_bytes, 1)),
    }
    if interface.state_bytes:
        checks[f"{macro}_STATE_BYTES"] = str(interface.state_bytes)
    lines = "".join(f'_Static_assert({a} == {b}, "{a}");\n' for a, b in checks.items())
    return f"""\
/* Checks that the declarations of src/lib.rs are those of {name}.h. */
#include "{name}.h"

{lines}"""


def member(name: str) -> str:
    """A member's name in Rust."""
    if name in ("self", "super", "crate"):
        return f"{name}_"
    return f"r#{name}" if name in _WORDS else name


def _declarations(interface: Interface, words: dict[str, str]) -> str:
    name, macro = interface.form.name, interface.form.name.upper()
    tensors = [
        slot for one in interface.all for _, slot in (*one.inputs.values(), *one.outputs.values())
    ]
    numbers = {
        "MEMORY_BYTES": max(interface.ram_bytes, 1),
        "WEIGHTS_BYTES": interface.image.rom_bytes,
        "ALIGNMENT": ALIGNMENT,
        "RANK": max((len(slot.shape) for slot in tensors), default=1) or 1,
    }
    if state := interface.state_bytes:
        numbers["STATE_BYTES"] = state
    constants = [f"pub const {macro}_{one}: usize = {value};\n" for one, value in numbers.items()]
    codes = ["OK", "UNALIGNED", "BAD_INDEX", *(["BAD_SIZE"] if interface.sizes else [])]
    constants += [f"pub const {macro}_{one}: c_int = {at};\n" for at, one in enumerate(codes)]
    sizes, more, ends = "", "", ""
    if interface.variables:
        more += f"    pub variable_count: usize,\n    pub variables: *const {name}_tensor,\n"
    if interface.sizes:
        listed = "".join(f"    pub {member(one)}: i64,\n" for one in interface.sizes)
        sizes = f"""\
/// The sizes of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct {name}_sizes {{
{listed}}}

/// One of the sizes.
#[repr(C)]
pub struct {name}_size {{
    pub name: *const c_char,
    pub max: i64,
}}

"""
        more += f"    pub size_count: usize,\n    pub sizes: *const {name}_size,\n"
        ends = f"    pub size: [c_int; {macro}_RANK],\n"
    return filled(
        _file("declarations.rs"),
        {
            "CONSTANTS": "".join(constants),
            "SLOTS": str(interface.slots),
            "SIZES": sizes,
            "ARRAYS": "".join(map(_arrays, interface.all)),
            "ENDS": ends,
            "MORE": more,
            "FUNCTIONS": "".join(f"    {line}\n" for line in _functions(interface)),
            **words,
        },
    )


def _arrays(interface: Interface) -> str:
    """The structs of arrays of a function."""
    found = ""
    for group, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        kind, verb = ("*const", "reads") if group == "inputs" else ("*mut", "writes")
        lines = "".join(
            f"    pub {member(one)}: {kind} {element(slot)},\n"
            for one, (_, slot) in tensors.items()
        )
        found += f"""\
/// The arrays that {interface.form.name}_{interface.verb} {verb}.
#[repr(C)]
pub struct {interface.prefix}_{group} {{
{lines or f"    pub nothing: {kind} c_void,{chr(10)}"}}}

"""
    return found


def element(slot: Slot) -> str:
    """Rust's type of the elements of an array."""
    return TYPES[c_type(slot)]


def _functions(interface: Interface) -> Iterator[str]:
    """The declarations of all functions except NAME_new and NAME_delete."""
    name = interface.form.name
    sizes = f"sizes: *const {name}_sizes, " if interface.sizes else ""
    for one in interface.all:
        arrays = f"inputs: *const {one.prefix}_inputs, outputs: *const {one.prefix}_outputs"
        yield f"pub fn {name}_{one.verb}(model: *mut {name}, {sizes}{arrays}) -> c_int;"
        if one.function:
            yield f"pub static {one.prefix}_about: {name}_description;"
    if interface.state_bytes:
        yield f"pub fn {name}_save(model: *const {name}, state: *mut c_void);"
        yield f"pub fn {name}_load(model: *mut {name}, state: *const c_void);"
        yield f"pub fn {name}_variable(model: *mut {name}, number: usize) -> *mut c_void;"
    if interface.pooled:
        yield f"pub fn {name}_stop();"


CALL = """
    /// MEANING
    pub fn VERB(
        &mut self,PARAMETERS
    ) -> Result<(), Error> {
CHECKS        let from = ffi::PREFIX_inputs { GIVEN };
        let to = ffi::PREFIX_outputs { FOUND };
        match unsafe { ffi::FUNCTION(&mut self.raw, PASSED&from, &to) } {
            ffi::MACRO_OK => Ok(()),
SIZED            _ => Err(Error::BadIndex),
        }
    }
"""

STATE = """
    /// What one call leaves for the next: the weights, in training.
    pub fn save(&self) -> Vec<u8> {
        let mut state = vec![0; ffi::MACRO_STATE_BYTES];
        unsafe { ffi::NAME_save(&self.raw, state.as_mut_ptr().cast()) };
        state
    }

    /// Restores what `save` returned.
    pub fn load(&mut self, state: &[u8]) -> Result<(), Error> {
        if state.len() != ffi::MACRO_STATE_BYTES {
            return Err(Error::BadArray("state"));
        }
        unsafe { ffi::NAME_load(&mut self.raw, state.as_ptr().cast()) };
        Ok(())
    }

    /// The elements of a variable, to read or write between calls; none if no variable has that
    /// name and type.
    pub fn variable<T: 'static>(&mut self, name: &str) -> Option<&mut [T]> {
        let number = VARIABLES.iter().position(|one| one.0 == name)?;
        let (_, kind, count) = VARIABLES[number];
        if kind() != TypeId::of::<T>() {
            return None;
        }
        unsafe {
            let first = ffi::NAME_variable(&mut self.raw, number).cast::<T>();
            Some(core::slice::from_raw_parts_mut(first, count))
        }
    }
"""

STOP = """
    /// Ends the threads of all models; the next call starts them again.
    pub fn stop() {
        unsafe { ffi::NAME_stop() }
    }
"""


def _wrapper(interface: Interface, words: dict[str, str]) -> str:
    name, state = interface.form.name, interface.state_bytes > 0
    uses = "use alloc::vec;\nuse alloc::vec::Vec;\nuse core::any::TypeId;\n" if state else ""
    sizes = f"pub use ffi::{name}_sizes as Sizes;\n\n" if interface.sizes else ""
    variables = _variables(interface) if state else ""
    return filled(
        _file("wrapper.rs"),
        {
            "EXAMPLE": "".join(f"//! {line}\n" for line in _example(interface)),
            "USES": uses,
            "SIZES": sizes + variables,
            "ARRAYS": "".join(map(_slices, interface.all)),
            "CALLS": "".join(_call(one, words) for one in interface.all),
            "STATE": filled(STATE, words) if state else "",
            "STOP": filled(STOP, words) if interface.pooled else "",
            **words,
        },
    )


def _example(interface: Interface) -> Iterator[str]:
    """A call of the model."""
    name, sizes = interface.form.name, ""
    yield f"let mut model = {name}::Model::new();"
    if interface.sizes:
        bounds = ", ".join(
            f"{member(one)}: {size.bound}" for one, (_, size) in interface.sizes.items()
        )
        sizes = f"{name}::Sizes {{ {bounds} }}, "
    for one, (_, slot) in interface.inputs.items():
        size = f"{name}::input_elements::{member(one)}"
        yield f"let {member(one)} = vec![0 as {element(slot)}; {size}];"
    for one, (_, slot) in interface.outputs.items():
        size = f"{name}::output_elements::{member(one)}"
        yield f"let mut found_{one} = vec![0 as {element(slot)}; {size}];"
    given = ", ".join(f"{member(one)}: &{member(one)}" for one in interface.inputs)
    found = ", ".join(f"{member(one)}: &mut found_{one}" for one in interface.outputs)
    yield f"let inputs = {name}::Inputs {{ {given} }};"
    yield f"let outputs = {name}::Outputs {{ {found} }};"
    yield f"model.{interface.verb}({sizes}inputs, outputs)?;"
    yield f"# Ok::<(), {name}::Error>(())"


def _variables(interface: Interface) -> str:
    """The names, types and numbers of elements of variables."""
    rows = "".join(
        f"    ({_text(slot.label)}, TypeId::of::<{element(slot)}>, {count(slot)}),\n"
        for _, slot in interface.variables.values()
    )
    kind = "(&str, fn() -> TypeId, usize)"
    return f"static VARIABLES: [{kind}; {len(interface.variables)}] = [\n{rows}];\n\n"


def _text(label: str) -> str:
    """A label as a literal of Rust."""
    escaped = "".join(
        one if one.isprintable() and one not in '"\\' else f"\\u{{{ord(one):x}}}" for one in label
    )
    return f'"{escaped}"'


def _slices(interface: Interface) -> str:
    """The structs of slices, and the modules of their numbers of elements."""
    own, verb = interface.function, interface.verb
    most = ", at most" if interface.sizes else ""
    found = ""
    for group, tensors in (("input", interface.inputs), ("output", interface.outputs)):
        kind = "&'a " if group == "input" else "&'a mut "
        lines = "".join(
            f"    pub {member(one)}: {kind}[{element(slot)}],\n"
            for one, (_, slot) in tensors.items()
        )
        counts = "".join(
            f"    pub const {member(one)}: usize = {count(slot)};\n"
            for one, (_, slot) in tensors.items()
        )
        life = "<'a>" if tensors else ""
        found += f"""\
/// The arrays that `{verb}` {"reads" if group == "input" else "writes"}.
pub struct {own.capitalize()}{group.capitalize()}s{life} {{
{lines}}}

/// Their numbers of elements{most}.
pub mod {f"{own}_" if own else ""}{group}_elements {{
{counts}}}

"""
    return found


def _call(interface: Interface, words: dict[str, str]) -> str:
    own, sized = interface.function.capitalize(), bool(interface.sizes)
    lines = ["n: Sizes"] if sized else []
    lines += [f"given: {own}Inputs", f"found: {own}Outputs"]
    checks = []
    groups = {"given": interface.inputs, "found": interface.outputs}
    if sized:
        ranges = " || ".join(
            f"n.{member(one)} < {size.least} || n.{member(one)} > {size.bound}"
            for one, (_, size) in interface.sizes.items()
        )
        checks.append(f"if {ranges} {{\n            return Err(Error::BadSize);\n        }}")
    for group, tensors in groups.items():
        if not tensors:
            checks.append(f"let _ = {group};")
        for one, (_, slot) in tensors.items():
            wanted = elements(interface, slot, "n.{} as usize")
            compared = f"< {wanted}" if interface.axes(slot) else f"!= {count(slot)}"
            checks.append(
                f"if {group}.{member(one)}.len() {compared} {{\n"
                f"            return Err(Error::BadArray({_text(slot.label)}));\n        }}"
            )
    pointers = {
        group: ", ".join(
            f"{member(one)}: {group}.{member(one)}.as{mutable}_ptr()" for one in tensors
        )
        or f"nothing: core::ptr::null{mutable}()"
        for mutable, (group, tensors) in zip(("", "_mut"), groups.items(), strict=True)
    }
    bad = "            ffi::MACRO_BAD_SIZE => Err(Error::BadSize),\n" if sized else ""
    return filled(
        CALL,
        {
            "MEANING": interface.meaning or MEANING[interface.form.verb],
            "PARAMETERS": "".join(f"\n        {one}," for one in lines),
            "CHECKS": "".join(f"        {line}\n" for line in checks),
            "PREFIX": interface.prefix,
            "GIVEN": pointers["given"],
            "FOUND": pointers["found"],
            "FUNCTION": f"{interface.form.name}_{interface.verb}",
            "PASSED": "&n, " if sized else "",
            "SIZED": filled(bad, words) if bad else "",
            **words,
            "VERB": interface.verb,
        },
    )


HALF = """
/// An f16 as a number.
fn half(bits: u16) -> f64 {
    let size = bits & 0x7fff;
    let number = match size {
        0x7c00 => f64::INFINITY,
        0x7c01.. => f64::NAN,
        ..0x400 => f64::from(size) * 2f64.powi(-24),
        _ => f64::from(size & 0x3ff | 0x400) * 2f64.powi(i32::from(size >> 10) - 25),
    };
    if bits >> 15 == 1 {
        -number
    } else {
        number
    }
}
"""


def _test(sources: Sources, words: dict[str, str]) -> str:
    interface = sources.interface
    data, calls = "", ""
    # The main function is the last one, for steps change the weights of the others.
    functions = [*interface.others, interface]
    vectors = [*sources.others, sources.vectors[0]]
    for one, vector in zip(functions, vectors, strict=True):
        own, name = f"{one.function}_" if one.function else "", one.function.capitalize()
        given, found, checks = [], [], ""
        for label, (_, slot) in one.inputs.items():
            data += _static(f"{own}given_{label}", vector.inputs[slot.label])
            given.append(f"{member(label)}: elements(&{own}given_{label}, {count(slot)})")
        for label, (_, slot) in one.outputs.items():
            data += _static(f"{own}wanted_{label}", vector.outputs[slot.label])
            found.append(f"{member(label)}: &mut {own}found_{label}")
            calls += (
                f"    let mut {own}found_{label} = vec![0 as {element(slot)}; {count(slot)}];\n"
            )
            checks += _compared(own, label, slot)
        bounds = ", ".join(
            f"{member(label)}: {size.bound}" for label, (_, size) in one.sizes.items()
        )
        passed = f"{one.form.name}::Sizes {{ {bounds} }}, " if bounds else ""
        calls += f"""\
    for _ in 0..{runs(one)} {{
        let inputs = {one.form.name}::{name}Inputs {{ {", ".join(given)} }};
        let outputs = {one.form.name}::{name}Outputs {{ {", ".join(found)} }};
        model.{one.verb}({passed}inputs, outputs).unwrap();
    }}
{checks}"""
    if "half(" in calls:
        data += HALF
    return filled(
        _file("check.rs"),
        {"DATA": data, "RUNS": calls, "COUNT": str(len(interface.inputs)), **words},
    )


def _static(name: str, array: Array) -> str:
    words = padded_words(array)
    return f"static {name}: [u64; {max(len(words), 1)}] = [\n{words_text(words)}\n];\n"


_NUMBERS = {
    "f32": "f64::from(x)",
    "f64": "x",
    "c64": "f64::from(x)",
    "c128": "x",
    "f16": "half(x)",
    "bf16": "f64::from(f32::from_bits(u32::from(x) << 16))",
}
"""Elements as f64."""


def _compared(own: str, label: str, slot: Slot) -> str:
    """The lines that compare an output."""
    assert slot.dtype is not None
    found, wanted = (
        f"{own}found_{label}",
        f"elements::<{element(slot)}>(&{own}wanted_{label}, {count(slot)})",
    )
    number = _NUMBERS.get(slot.dtype.name)
    if number is None:
        return f"    assert_eq!({found}, {wanted});\n"
    convert = f".iter().map(|&x| {number}).collect()"
    return (
        f"    let found: Vec<f64> = {found}{convert};\n"
        f"    let wanted: Vec<f64> = {wanted}{convert};\n"
        f"    assert!(distance(&found, &wanted) <= {tolerance(slot):g});\n"
    )


PACKAGE = Package("cargo", write, weights=("incbin", "array"), check=check_form)
