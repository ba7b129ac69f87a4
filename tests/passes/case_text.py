"""The text form of pass cases: aliases, seeded literals and continued lines keep them narrow."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from io import StringIO

import numpy as np
from xdsl.dialects.builtin import AffineMapAttr, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.passes import PassPipeline
from xdsl.printer import Printer

from popgraph.dialects.program import DataAttr
from popgraph.dialects.program.checks import IndexCheckAttr
from popgraph.dialects.tile.attributes import LayoutAttr
from popgraph.ipu.map_to_tiles import MapToTiles
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.pipeline import PASSES, factories
from popgraph.support.shapes import prod

WITH_CASES: dict[str, type[Pass]] = {**PASSES, MapToTiles.name: MapToTiles}
"""Every pass that has cases, by name."""
COLUMNS = 200
"""No line of a case is longer."""
WIDTH = 120
"""Lines still longer than COLUMNS after aliasing are broken at about this width."""
ALIASES: dict[type[Attribute], str] = {
    AffineMapAttr: "#map",
    DataAttr: "#data",
    IndexCheckAttr: "#check",
    LayoutAttr: "#layout",
    TensorType: "!tensor",
}
"""Attributes that get an alias in lines longer than COLUMNS, likeliest first, with its prefix."""
SEEDED = re.compile(r"#pg\.data<seed (\d+) : tensor<([\dx]+)xf32>>")
JOINT = re.compile(r'(?<=[0-9a-f])"\n +"(?=[0-9a-f])')
"""A line break inside a hexadecimal literal, as between adjacent string literals in C."""
OPTIONS = re.compile(r"^// -p (.*(?:\n//   .*)*)$", re.MULTILINE)


@cache
def seeded(seed: int, shape: tuple[int, ...]) -> DataAttr:
    """Multiples of 1/4 in [-1, 1], the same in every version of Python."""
    draw = random.Random(seed).random
    values = [int(draw() * 9) / 4 - 1 for _ in range(prod(shape))]
    return DataAttr.of(np.array(values, np.float32).reshape(shape))


def literals(text: str) -> dict[Attribute, str]:
    """The seeded literals of a text, each with its spelling there."""
    return {
        seeded(int(found[1]), tuple(map(int, found[2].split("x")))): found[0]
        for found in SEEDED.finditer(text)
    }


def parse(compilation: Compilation, text: str) -> ModuleOp:
    """Parses the text of a case."""
    text = JOINT.sub("", text)
    for literal, short in literals(text).items():
        text = text.replace(short, str(literal))
    return Parser(compilation, text).parse_module()


def pipeline(source: str, otherwise: str) -> PassPipeline:
    """The pass of the line `// -p name{option=1}` (which may be continued), or else `otherwise`."""
    found = OPTIONS.search(source)
    spec = re.sub(r"\n// +", " ", found[1]) if found else otherwise
    return PassPipeline.parse_spec(factories(), spec)


class ShortPrinter(Printer):
    """Prints aliased attributes by their alias, and records all attributes that it prints."""

    def __init__(self, stream: StringIO, names: Mapping[Attribute, str]) -> None:
        super().__init__(stream=stream)
        self.names = names
        self.met: dict[Attribute, None] = {}

    def print_attribute(self, attribute: Attribute) -> None:
        self.met[attribute] = None
        if attribute in self.names:
            self.print_string(self.names[attribute])
        else:
            super().print_attribute(attribute)


def show(module: ModuleOp, source: str) -> str:
    """The text of a module in the form of a case, with the seeded literals of the source."""
    names = literals(source)
    definitions = ""
    text, met = _printed(module, names)
    for kind, prefix in ALIASES.items():
        long = [line for line in text.splitlines() if len(line) > COLUMNS]
        chosen = {
            attribute: body
            for attribute in met
            if type(attribute) is kind and attribute not in names
            for body in [_body(attribute, names)]
            if _pays(attribute) and any(body in line for line in long)
        }
        for place, (attribute, body) in enumerate(chosen.items()):
            names[attribute] = f"{prefix}{place or ''}"
            definitions += _joined(f"{names[attribute]} = {body}") + "\n"
        text, met = _printed(module, names)
    return definitions + "\n".join(map(_broken, text.splitlines()))


def _printed(module: ModuleOp, names: Mapping[Attribute, str]) -> tuple[str, list[Attribute]]:
    printer = ShortPrinter(StringIO(), names)
    printer.print_op(module)
    assert isinstance(printer.stream, StringIO)
    return printer.stream.getvalue(), list(printer.met)


def _body(attribute: Attribute, names: Mapping[Attribute, str]) -> str:
    stream = StringIO()
    ShortPrinter(stream, names).print_attribute(attribute)
    return stream.getvalue()


def _pays(attribute: Attribute) -> bool:
    """Plain tensor types are as short as an alias and clearer."""
    return not isinstance(attribute, TensorType) or isinstance(attribute.encoding, LayoutAttr)


def _joined(line: str) -> str:
    """A definition; a literal that is too long is continued on further lines."""
    if len(line) <= COLUMNS:
        return line
    return re.sub(r"[0-9a-f]{128}(?=[0-9a-f])", lambda found: f'{found[0]}"\n    "', line)


def _broken(line: str) -> str:
    """An operation, on several lines if too long."""
    if len(line) <= COLUMNS:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines = [""]
    for word in _words(line):
        if lines[-1].strip() and len(lines[-1]) + len(word) > WIDTH:
            lines.append(indent)
        lines[-1] += word
    return "\n".join(part.rstrip() for part in lines)


def _words(line: str) -> list[str]:
    """
    Splits an operation where it may be broken.

    A chunk begins at each keyword and operand outside of brackets, and at each row of a matrix.
    """
    words, depth = [""], 0
    row = r"((?<=\],) (?=\[-?\d+\.))"
    for token in re.finditer(rf'"[^"]*"|->|{row}|((?<!:)(?<!->) (?=[a-z%]))|.', line):
        depth += (token[0] in "([{<") - (token[0] in ")]}>")
        words[-1] += token[0]
        if token[1] or (token[2] and depth == 0):
            words.append("")
    return words
