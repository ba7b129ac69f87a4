"""The C++ interface of exported C: NAME.hpp, a class that owns a model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from popgraph.backends.c.export.interface import MEANING, Interface, Weights, c_type
from popgraph.backends.c.memory.table import Slot
from popgraph.support.shapes import prod

HPP = """\
/*
 * NAME as a C++ class, for C++17 and later: popgraph::CLASS.
 *
 * It owns the memory of a model, checks the number of elements of every array, and throws if a call
 * is wrong. Functions that begin with try_ return a code of NAME.h instead. Without exceptions
 * (-fno-exceptions) there are only those.
 */
#ifndef MACRO_HPP
#define MACRO_HPP

#if !(__cplusplus >= 201703L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L))
#error "NAME.hpp needs C++17; NAME.h is for C and earlier C++"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "NAME.h"

#ifndef POPGRAPH_VIEW
#define POPGRAPH_VIEW
namespace popgraph {

/* An array of someone else's: a pointer and a number of elements, as std::span of C++20. */
template <class T>
class view {
public:
    constexpr view() noexcept = default;
    constexpr view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

    template <class Other, std::size_t Size,
              class = std::enable_if_t<std::is_convertible_v<Other (*)[], T (*)[]>>>
    constexpr view(Other (&array)[Size]) noexcept : data_(array), size_(Size) {}

    /* std::array, std::vector, std::span, another view: all that has data() and size(). */
    template <class Container,
              class = std::enable_if_t<std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::declval<Container &>().data())> (*)[],
                  T (*)[]>>,
              class = decltype(std::declval<Container &>().size())>
    constexpr view(Container &&container) noexcept
        : data_(container.data()), size_(container.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t at) const noexcept { return data_[at]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace popgraph
#endif

namespace popgraph {

class CLASS {
public:
    /* What try_ functions return beside the codes of NAME.h: an array of another size. */
    static constexpr int bad_array = -1;
    /* There is no memory, or the constants are not aligned. */
    static constexpr int not_made = -2;

SIZESARRAYS    /* The description of the network: names, types and shapes. */
    static constexpr const NAME_description &about() noexcept { return NAME_about; }

MADE    /* False if the model was moved, or could not be made without exceptions. */
    explicit operator bool() const noexcept { return memory_ != nullptr; }

CALLSSTATESTOP    /* The model for the functions of NAME.h. */
    ::NAME *get() noexcept { return &self_; }
    const ::NAME *get() const noexcept { return &self_; }

private:
    struct deleter {
        void operator()(unsigned char *memory) const noexcept {
            ::operator delete(memory, std::align_val_t{MACRO_ALIGNMENT});
        }
    };

    static unsigned char *allocated() noexcept {
        return static_cast<unsigned char *>(::operator new(
            MACRO_MEMORY_BYTES, std::align_val_t{MACRO_ALIGNMENT}, std::nothrow));
    }

HOLDS#if defined(__cpp_exceptions)
    static void check(int code) {
        switch (code) {
            case MACRO_OK: return;
            case MACRO_BAD_INDEX: throw std::out_of_range("NAME: an index in the inputs");
SIZED            case bad_array: throw std::invalid_argument("NAME: the size of an array");
            default: throw std::logic_error("NAME: there is no model");
        }
    }
#endif

    std::unique_ptr<unsigned char, deleter> memory_{allocated()};
    ::NAME self_{};
};

} // namespace popgraph

#endif
"""

MADE = """\
    /* A model in memory of its own.FILE Throws std::bad_alloc if there is none. */
    EXPLICITCLASS(WEIGHTS) {
#if defined(__cpp_exceptions)
        if (memory_ == nullptr) throw std::bad_alloc();
#endif
        if (memory_ == nullptr || ::NAME_init(&self_, memory_.get()PASSED) == MACRO_OK) return;
        memory_.reset();
#if defined(__cpp_exceptions)
        throw std::invalid_argument("NAME: the alignment of the constants");
#endif
    }

    CLASS(CLASS &&) noexcept = default;
    CLASS &operator=(CLASS &&) noexcept = default;

"""

CALL = """\
    /* MEANING */
    [[nodiscard]] int try_VERB(PARAMETERS) noexcept {
        if (memory_ == nullptr) return not_made;
CHECKS        const ::PREFIX_inputs from = {GIVEN};
        const ::PREFIX_outputs to = {FOUND};
        return ::FUNCTION(&self_, PASSED&from, &to);
    }

#if defined(__cpp_exceptions)
    /* The same. It throws std::invalid_argument for an array of another size, and
       std::out_of_range for an indexERROR. */
    void VERB(PARAMETERS) {
        check(try_VERB(ARGUMENTS));
    }
#endif

"""

STATE = """\
    /* What one call leaves for the next: the weights, in training. */
    static constexpr std::size_t state_bytes = MACRO_STATE_BYTES;

    /* Copies the state to an array; false if that has not state_bytes. */
    [[nodiscard]] bool try_save(view<unsigned char> state) const noexcept {
        if (memory_ == nullptr || state.size() != state_bytes) return false;
        ::NAME_save(&self_, state.data());
        return true;
    }

    /* Restores a state; false, and nothing is changed, if the array has not state_bytes. */
    [[nodiscard]] bool try_load(view<const unsigned char> state) noexcept {
        if (memory_ == nullptr || state.size() != state_bytes) return false;
        ::NAME_load(&self_, state.data());
        return true;
    }

    /* The elements of a variable, to read or write between calls; empty if there is none of that
       name and type, such as variable<float>("w"). Types are those of arrays in NAME.h. */
    template <class T>
    view<T> try_variable(const char *name) noexcept {
        for (std::size_t at = 0; memory_ != nullptr && at < NAME_about.variable_count; at++) {
            const NAME_tensor &tensor = NAME_about.variables[at];
            if (std::strcmp(tensor.name, name) == 0 && holds<std::remove_const_t<T>>(at))
                return {static_cast<T *>(::NAME_variable(&self_, at)), tensor.bytes / sizeof(T)};
        }
        return {};
    }

#if defined(__cpp_exceptions)
    /* As the functions above; they throw std::invalid_argument where those fail. */
    std::vector<unsigned char> save() const {
        std::vector<unsigned char> state(state_bytes);
        save(state);
        return state;
    }
    void save(view<unsigned char> state) const {
        if (!try_save(state)) throw std::invalid_argument("NAME: the size of a state");
    }
    void load(view<const unsigned char> state) {
        if (!try_load(state)) throw std::invalid_argument("NAME: the size of a state");
    }
    template <class T>
    view<T> variable(const char *name) {
        const view<T> found = try_variable<T>(name);
        if (found.data() == nullptr)
            throw std::invalid_argument(
                std::string("NAME: no variable of this name and type: ") + name);
        return found;
    }
#endif

"""

HOLDS = """\
    template <class T>
    static bool holds(std::size_t variable) noexcept {
        switch (variable) {
CASES            default: return false;
        }
    }

"""

STOP = """\
    /* Ends the threads of all models; the next call starts them again. */
    static void stop() noexcept { ::NAME_stop(); }

"""

_SIZED = """\
            case MACRO_BAD_SIZE: throw std::out_of_range("NAME: a size of the call");
"""

_FILE = """ It reads `weights`, the content of
       NAME_weights.bin at an address that is a multiple of MACRO_ALIGNMENT, as long as it lives."""

_SPELLED = """
about bad_array check code deleter get given found holds jacobian hvp jvp load not_made popgraph run
save state_bytes std step stop variable view vjp
"""
_MEMBERS = frozenset(_SPELLED.split())
"""Names that the class uses itself."""


def class_name(interface: Interface) -> str:
    """The name of the class in the namespace popgraph."""
    name = interface.form.name
    taken = name in _MEMBERS or re.match("(try|run|jvp|vjp|jacobian|hvp|input|output)_", name)
    return f"{name}_model" if taken else name


def filled(template: str, words: dict[str, str]) -> str:
    """Replaces words in one pass, so that names of users may contain them."""
    return re.sub("|".join(words), lambda match: words[match[0]], template)


def header(interface: Interface) -> str:
    """NAME.hpp."""
    form, state = interface.form, interface.state_bytes > 0
    file = form.weights is Weights.FILE
    names = {"NAME": form.name, "MACRO": form.name.upper(), "CLASS": class_name(interface)}
    made = names | {
        "FILE": filled(_FILE, names) if file else "",
        "EXPLICIT": "explicit " if file else "",
        "WEIGHTS": "const void *weights" if file else "",
        "PASSED": ", weights" if file else "",
    }
    parts = names | {
        "SIZES": _sizes(interface),
        "ARRAYS": "".join(map(_arrays, interface.all)),
        "MADE": filled(MADE, made),
        "CALLS": "".join(map(_call, interface.all)),
        "STATE": filled(STATE, names) if state else "",
        "STOP": filled(STOP, names) if interface.pooled else "",
        "HOLDS": _holds(interface) if state else "",
        "SIZED": filled(_SIZED, names) if interface.sizes else "",
    }
    return filled(HPP, parts)


def _sizes(interface: Interface) -> str:
    if not interface.sizes:
        return ""
    return f"    /* The sizes of a call. */\n    using sizes = ::{interface.form.name}_sizes;\n\n"


def _own(interface: Interface) -> str:
    """The prefix of a function's structs in the class."""
    return f"{interface.function}_" if interface.function else ""


def _arrays(interface: Interface) -> str:
    """The structs of inputs and outputs, and their numbers of elements."""
    own, verb = _own(interface), interface.verb
    most = ", at most" if interface.sizes else ""
    found = ""
    for group, tensors in (("input", interface.inputs), ("output", interface.outputs)):
        constant = "const " if group == "input" else ""
        views = "".join(
            f"        ::popgraph::view<{constant}{c_type(slot)}> {member};\n"
            for member, (_, slot) in tensors.items()
        )
        counts = "".join(
            f"        static constexpr std::size_t {member} = {count(slot)};\n"
            for member, (_, slot) in tensors.items()
        )
        found += f"""\
    /* The arrays that {verb} {"reads" if constant else "writes"}. */
    struct {own}{group}s {{
{views}    }};
    /* Their numbers of elements{most}. */
    struct {own}{group}_elements {{
{counts}    }};

"""
    return found


def count(slot: Slot) -> int:
    """The number of elements of the C type; a complex element has two."""
    assert slot.dtype is not None
    return prod(slot.shape) * (2 if slot.dtype.name.startswith("c") else 1)


def _call(interface: Interface) -> str:
    """The functions that call one function of the model."""
    own, form, sized = _own(interface), interface.form, bool(interface.sizes)
    arrays = f"const {own}inputs &given, const {own}outputs &found"
    groups = {"given": interface.inputs, "found": interface.outputs}
    data = {
        group: ", ".join(f"{group}.{member}.data()" for member in tensors) or "nullptr"
        for group, tensors in groups.items()
    }
    unused = [f"(void){group};" for group, tensors in groups.items() if not tensors]
    lines = [*_checked_sizes(interface), *unused, *_checked_arrays(interface)]
    return filled(
        CALL,
        {
            "MEANING": interface.meaning or MEANING[form.verb],
            "VERB": interface.verb,
            "PARAMETERS": f"const sizes &n, {arrays}" if sized else arrays,
            "ARGUMENTS": "n, given, found" if sized else "given, found",
            "CHECKS": "".join(f"        {line}\n" for line in lines),
            "PREFIX": interface.prefix,
            "GIVEN": data["given"],
            "FOUND": data["found"],
            "FUNCTION": f"{form.name}_{interface.verb}",
            "PASSED": "&n, " if sized else "",
            "ERROR": " or a size" if sized else "",
        },
    )


def _checked_sizes(interface: Interface) -> Iterator[str]:
    code = f"{interface.form.name.upper()}_BAD_SIZE"
    for member, (_, size) in interface.sizes.items():
        bound = interface.bound(member)
        yield f"if (n.{member} < {size.least} || n.{member} > {bound}) return {code};"


def _checked_arrays(interface: Interface) -> Iterator[str]:
    """Refuses an array of another size, or a smaller one if its size differs per call."""
    for group, tensors in (("given", interface.inputs), ("found", interface.outputs)):
        for member, (_, slot) in tensors.items():
            compared = (
                f"< {elements(interface, slot)}" if interface.axes(slot) else f"!= {count(slot)}"
            )
            yield f"if ({group}.{member}.size() {compared}) return bad_array;"


def elements(interface: Interface, slot: Slot, form: str = "static_cast<std::size_t>(n.{})") -> str:
    """An expression for the number of elements of an array in memory; see `interface.header`."""
    axes = interface.axes(slot)
    if not axes or prod(slot.shape[: max(axes)]) > 1:
        return str(count(slot))
    fixed = count(slot) // prod(slot.shape[axis] for axis in axes)
    factors = [form.format(member) for member, _ in axes.values()]
    fixed *= prod(place.factor for _, place in axes.values())
    return " * ".join([*factors, *([str(fixed)] if fixed != 1 else [])])


def _holds(interface: Interface) -> str:
    """The C type of each variable."""
    cases = dict[str, str]()
    for number, (_, slot) in enumerate(interface.variables.values()):
        cases[c_type(slot)] = cases.get(c_type(slot), "") + f"            case {number}:\n"
    text = "".join(
        f"{labels[:-1]} return std::is_same_v<T, {kind}>;\n" for kind, labels in cases.items()
    )
    return filled(HOLDS, {"CASES": text})
