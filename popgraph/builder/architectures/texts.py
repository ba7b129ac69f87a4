"""Writes the `.pgraph` text of a language model: its architecture with the values of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from popgraph.builder.architectures.configurations import Configuration, Value
from popgraph.builder.pgraph.print.formatter import format_text

_LET = re.compile(r"^let (\w+) = [^#\n]*?( *#.*)?$", re.MULTILINE)
_IMPORT = re.compile(r'^import "decoder.pgraph" \(([^)]*)\)\n\n((?:let .*\n)*)', re.MULTILINE)
_NAMED = re.compile(r"def (\w+)")


def architecture_text(name: str) -> str:
    """The text of an architecture as the package has it, such as `llama` or `decoder`."""
    return files(__package__).joinpath(f"{name}.pgraph").read_text("utf-8")


def model_text(configuration: Configuration, weights: str = "") -> str:
    """
    The text of a model, which imports nothing.

    `weights` is the name of the file with its weights, beside the text.
    """
    text = architecture_text(configuration.architecture)
    text = re.sub(r" The numbers are those of .*?(?=\"\"\")", "", text, count=1)
    text = _with_values(text, configuration.values)
    text = _IMPORT.sub(lambda found: f"{found[2]}\n{_parts(found[1].split(', '))}", text)
    if weights:
        quoted = weights.replace("\\", "\\\\").replace('"', '\\"')
        text = text.replace("\ngraph ", f'\n@weights("{quoted}")\ngraph ', 1)
    return format_text(text)


def _with_values(text: str, values: Mapping[str, Value]) -> str:
    left = dict(values)

    def replaced(found: re.Match[str]) -> str:
        return f"let {found[1]} = {_shown(left.pop(found[1]))}{found[2] or ''}"

    text = _LET.sub(replaced, text)
    assert not left, f"the text has no {', '.join(left)}"
    return text


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _parts(names: list[str]) -> str:
    """The named definitions of the shared text, and the definitions that these call."""
    paragraphs = [one for one in architecture_text("decoder").split("\n\n") if _NAMED.search(one)]
    parts = {_NAMED.findall(one)[0]: one.strip("\n") for one in paragraphs}
    wanted, waiting = set(names), list(names)
    while waiting:
        words = set(re.findall(r"\w+", parts[waiting.pop()]))
        new = words & parts.keys() - wanted
        wanted |= new
        waiting += new
    return "\n\n".join(part for name, part in parts.items() if name in wanted) + "\n"
