"""Names of exported C: identifiers that are not reserved in C or C++."""

from __future__ import annotations

import re
from collections.abc import Iterable

from popgraph.support.errors import BackendError

_SPELLED = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename union unsigned using virtual
void volatile wchar_t while xor xor_eq
"""
_WORDS = frozenset(_SPELLED.split())
"""The keywords of C and C++."""

_OURS = "main|check_data|self|memory|state|weights|rom|ram|inputs|outputs|sizes"
_TAKEN = re.compile(rf"{_OURS}|popgraph.*|kernel_.*|[A-Z_].*|(bf|[fiu])\d.*")
"""Names that the generated C uses itself; capitals are reserved for its macros."""


def check_name(name: str) -> None:
    """Raises BackendError unless functions and files may have this prefix."""
    if (
        not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
        or name in _WORDS
        or _TAKEN.fullmatch(name)
    ):
        raise BackendError(
            f"{name!r} cannot be the prefix of C functions",
            "--name",
            "use lower-case letters, digits and underscores, and no keyword of C: such as `model`",
        )


def check_version(version: str) -> None:
    """BackendError unless all kinds of packages accept the version."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version, re.ASCII):
        raise BackendError(
            f"{version!r} is not a version", "--package-version", "use three numbers, such as 1.2.0"
        )


def members(labels: Iterable[str]) -> dict[str, str]:
    """A unique struct member for each label."""
    found: dict[str, str] = {}
    for label in labels:
        base = re.sub(r"\W", "_", label, flags=re.ASCII).lstrip("_") or "tensor"
        if not base[0].isalpha() or base in _WORDS:
            base = f"tensor_{base}"
        name, number = base, 2
        while name in found.values():
            name, number = f"{base}_{number}", number + 1
        found[label] = name
    return found


def quoted(text: str) -> str:
    """A text as a C string literal."""
    spelled = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{spelled}"'
