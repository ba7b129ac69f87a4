"""Writes docs/api.md, the public names of `popgraph`, from docstrings and types."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import popgraph
from popgraph import callbacks, extend

HEAD = """# Python's names

What `import popgraph`, [`popgraph.callbacks`](coming-from-keras.md) and
[`popgraph.extend`](extend.md) give, beside [PopART's names](popart.md).
This page is made of the docstrings of the code. `from_torch` and `popgraph.torch`
require PyTorch, and are on [a page of their own](coming-from-pytorch.md).
"""
ELSEWHERE = ("from_torch", "torch")
"""Names that require a package that this page is written without."""


def own_names() -> list[str]:
    """The public names of the package that are not PopART's."""
    names = [name for name in dir(popgraph) if name not in ELSEWHERE]
    return [name for name in names if is_public(popgraph, name)]


def is_public(module: object, name: str) -> bool:
    """Whether a name is for users: a callable of this package without a leading underscore."""
    if name.startswith("_"):
        return False
    value = getattr(module, name)
    return callable(value) and (getattr(value, "__module__", None) or "").startswith("popgraph")


def members(value: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class that have a docstring."""
    for name, member in inspect.getmembers_static(value):
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(inner, property) or inspect.isfunction(inner):
            made = inner.fget if isinstance(inner, property) else inner
            if not name.startswith("_") and str(made.__module__).startswith("popgraph"):
                yield name, inner


def signature(name: str, value: object) -> str:
    """The signature of a callable; a line for each parameter if it exceeds 96 characters."""
    if isinstance(value, property):
        return name
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parts = [*map(plain, parameters(found))]
    returned = found.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {plain(str(returned))}"
    text = f"{name}({', '.join(parts)}){arrow}"
    if len(text) <= 96:
        return text
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def parameters(found: inspect.Signature) -> Iterator[str]:
    """The parameters for users, without `self` and private ones."""
    named = False
    for one in found.parameters.values():
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if one.kind is one.VAR_POSITIONAL:
            named = True
        if one.kind is one.KEYWORD_ONLY and not named:
            named = True
            yield "*"
        if has_no_text(one.default):
            one = one.replace(default=Unsaid("..."))
        elif has_only_defaults(one.default):
            one = one.replace(default=Unsaid(f"{type(one.default).__name__}()"))
        yield str(one)


def has_no_text(default: object) -> bool:
    """Whether a default has no literal form: a function or a factory."""
    return inspect.isroutine(default) or "FACTORY" in type(default).__name__


def has_only_defaults(value: object) -> bool:
    """Whether an object has only the defaults of its class, such as `Tuning()`."""
    return (
        is_dataclass(value)
        and not isinstance(value, type)
        and all(one.default == getattr(value, one.name) for one in fields(value))
    )


class Unsaid:
    """A default that prints as a given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def plain(text: str) -> str:
    """Removes quotes around annotations, and module prefixes of names."""
    text = re.sub(r"^([\w*]+: )?(['\"])(.*?)\2", r"\1\3", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def documented(value: object) -> str:
    return textwrap.dedent(inspect.getdoc(value) or "").strip()


def entry(level: str, name: str, value: object) -> Iterator[str]:
    yield f"{level} `{name}`\n"
    yield f"    {textwrap.indent(signature(name, value), '    ').strip()}\n"
    yield f"{documented(value)}\n"
    if inspect.isclass(value):
        for inner, member in members(value):
            text = documented(member)
            if text:
                lines = textwrap.indent(text, "  ").strip()
                call = re.sub(r"\(\n +", "(", signature(inner, member)).replace(",\n)", ")")
                yield f"* `{' '.join(call.split())}`: {lines}"
        yield ""


def page() -> str:
    lines = [HEAD]
    seen: set[object] = set()
    for module, names in (
        (popgraph, own_names()),
        (callbacks, callbacks.__all__),
        (extend, sorted(extend.__all__)),
    ):
        lines.append(f"## {module.__name__}\n")
        for name in names:
            if getattr(module, name) not in seen:
                lines += entry("###", name, getattr(module, name))
        seen |= {getattr(module, name) for name in names}
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
