"""The language service: hover, definitions and completion for a position in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc
from textwrap import dedent

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.annotations import ABOUT, NODE_NOTES
from popgraph.builder.pgraph.check.operators import newest
from popgraph.builder.pgraph.lower.attribute_values import KINDS
from popgraph.builder.pgraph.lower.initializers import INITIALIZERS
from popgraph.builder.pgraph.print.expression_text import ExpressionText, name_text, reserved
from popgraph.builder.pgraph.syntax.literals import STRING
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Expression, File, Span, Template
from popgraph.builder.pgraph.tools.diagnostics import Checked, checked
from popgraph.builder.pgraph.tools.marks import Hint, Token, hints, tokens
from popgraph.builder.pgraph.tools.outline import Symbol, outline
from popgraph.builder.pgraph.tools.uses import renamed, templates, uses, with_name
from popgraph.dialects.onnx import SchemaOp, all_schemas, op_class
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.types import describe
from popgraph.support import dtypes
from popgraph.support.errors import PopgraphError


@dataclass(frozen=True)
class Completion:
    """A proposed completion."""

    word: str
    kind: str
    """operator, template, attribute, input, value, type, keyword, annotation or initialiser."""
    about: str = ""


@dataclass(frozen=True)
class Signature:
    """The signature of a call, and its active parameter."""

    label: str
    parameters: tuple[str, ...]
    active: int | None
    about: str

    @staticmethod
    def of(name: str, parameters: list[str], argument: int | str, about: str) -> Signature:
        """`argument` is the index of a parameter, or its keyword."""
        words = [word.rstrip("=") for word in parameters]
        at = words.index(argument) if argument in words else argument
        active = at if isinstance(at, int) and at < len(words) else None
        return Signature(f"{name}({', '.join(parameters)})", tuple(parameters), active, about)


class LanguageService:
    """
    Answers queries about one text; lines and columns count from 1.

    While the text has syntax errors, names come from the last text without errors.
    """

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.text = ""
        self.now: Checked = checked("", filename)
        self._names: Source = self.now.source
        self._file = File(Span(1, 1, 1, 1), "", ())
        self._templates: dict[str, Template] = {}

    def read(self, text: str) -> None:
        """Replaces the text."""
        self.text = text
        self.now = checked(text, self.filename)
        try:
            file = parse_file(Source(text, self.filename))
        except PopgraphError:
            return
        self._names, self._file = self.now.source, file
        self._templates = {template.name.text: template for template in templates(file)}

    # what stands here

    def hover(self, line: int, column: int) -> str:
        """The type or value of the word at a position, as Markdown; empty if unknown."""
        for span, (_, meaning) in self._at(line, column):
            word = self._names.written(span)
            if isinstance(meaning, SSAValue):
                return f"```pgraph\n{word}: {describe(meaning.type)}\n```"
            if meaning is not None:
                return f"```pgraph\nlet {word} = {_shown(meaning)}\n```"
        word = self._word(line, column)
        if word in self._templates:
            return self._about_template(self._templates[word])
        if word in INITIALIZERS:
            return f"**{word}**: {getdoc(INITIALIZERS[word])}"
        if word in dtypes.BY_NAME:
            return f"**{word}**: elements as NumPy's {dtypes.BY_NAME[word].numpy}"
        made = self._operator(word)
        return "" if made is None else about_operator(made)

    def definition(self, line: int, column: int) -> Span | None:
        """The definition of the name at a position."""
        for _, (span, _) in self._at(line, column):
            return span
        template = self._templates.get(self._word(line, column))
        return None if template is None else template.name.span

    def uses(self, line: int, column: int) -> list[Span]:
        """All positions of the name at a position."""
        return uses(self._names, self._file, line, column)

    def renamed(self, line: int, column: int, name: str) -> tuple[list[Span], str]:
        """
        The positions of the name at a position, and the spelling of a new name.

        Raises an error if the renamed text would have errors: names of branches or arguments may be
        tied to others with the same spelling.
        """
        if not self._is_complete or self._mistake(self.now):
            raise PopgraphError("cannot rename in a text with errors: fix them first")
        spans, written = renamed(self._names, self._file, line, column, name), name_text(name)
        after = checked(with_name(self.text, spans, written), self.filename)
        if mistake := self._mistake(after):
            raise PopgraphError(f"cannot rename to {name!r}: {mistake}")
        return spans, written

    @staticmethod
    def _mistake(found: Checked) -> str:
        """The first error of a text; empty if there is none."""
        errors = (one.message for one in found.diagnostics if one.severity == "error")
        return next(errors, "")

    def outline(self) -> list[Symbol]:
        """The named items of the text."""
        return outline(self._file)

    def hints(self) -> list[Hint]:
        """Inferred types; empty while the text has syntax errors."""
        return [*hints(self._names)] if self._is_complete else []

    def tokens(self) -> list[Token]:
        """Names and their kinds; empty while the text has syntax errors."""
        return tokens(self._names, self._file) if self._is_complete else []

    @property
    def _is_complete(self) -> bool:
        return self._names.text == self.text

    def signature(self, line: int, column: int) -> Signature | None:
        """The signature of the call around a position."""
        before = "\n".join([*self.text.split("\n")[: line - 1], self._line(line)[: column - 1]])
        name, argument = _open_argument(before)
        if name in self._templates:
            template = self._templates[name]
            formals = [formal.name.text for formal in template.formals]
            return Signature.of(name, formals, argument, template.body.doc)
        made = self._operator(name) if name else None
        if made is None:
            return None
        words = [formal.name for formal in made.SCHEMA.inputs]
        words += [f"{key}=" for key in made.SCHEMA.attributes]
        return Signature.of(name, words, argument, _first_sentence(made.SCHEMA.doc or ""))

    def _at(self, line: int, column: int) -> Iterator[tuple[Span, tuple[Span, object]]]:
        for span, found in self._names.meanings.items():
            if span.line == line and span.column <= column <= span.end_column:
                yield span, found

    def _word(self, line: int, column: int) -> str:
        lines = self.text.split("\n")
        content = lines[line - 1] if line <= len(lines) else ""
        for match in re.finditer(r"\w+", content):
            if match.start() < column <= match.end() + 1:
                return match[0]
        return ""

    def _operator(self, word: str) -> type[SchemaOp] | None:
        for domain, version in self._versions().items():
            try:
                return op_class(word, version, domain)
            except PopgraphError:
                continue
        return None

    def _versions(self) -> dict[str, int]:
        document = self.now.document
        return newest() if document is None else newest() | document.opsets

    def _about_template(self, template: Template) -> str:
        formals = ", ".join(formal.name.text for formal in template.formals)
        results = ", ".join(
            target.name.text for target in template.outputs if hasattr(target.name, "text")
        )
        doc = f"\n\n{template.body.doc}" if template.body.doc else ""
        return f"```pgraph\ndef {template.name.text}({formals}) -> {results}\n```{doc}"

    # completions at a position

    def completions(self, line: int, column: int) -> list[Completion]:
        """The words that are valid at a position."""
        before = "\n".join([*self.text.split("\n")[: line - 1], self._line(line)[: column - 1]])
        start = re.sub(r"\w*$", "", before)
        if start.endswith("@") and not re.search(r"[\w)\]]\s*@$", start):
            return [Completion(word, "annotation") for word in (*NODE_NOTES, *ABOUT)]
        if re.search(r":\s*$", start) and not _inside_index(start):
            return [Completion(word, "type") for word in (*dtypes.BY_NAME, STRING)]
        if re.search(r"^\s*(weight|const)\b[^=]*=\s*$", start.rpartition("\n")[2]):
            return [
                Completion(name, "initialiser", getdoc(one) or "")
                for name, one in INITIALIZERS.items()
            ]
        found = [*self._arguments(start), *self._values(line)]
        if re.search(r"(^|\n|\{)\s*$", start):
            found += [Completion(word, "keyword") for word in sorted(reserved()) if word.isalpha()]
        found += [
            Completion(name, "template", one.body.doc) for name, one in self._templates.items()
        ]
        return found + [Completion(name, "operator") for name in self._operators()]

    def _line(self, line: int) -> str:
        lines = self.text.split("\n")
        return lines[line - 1] if line <= len(lines) else ""

    def _arguments(self, start: str) -> Iterator[Completion]:
        """The attributes and inputs of the call that is open at the end of a text."""
        name = _open_call(start)
        if name in self._templates:
            for formal in self._templates[name].formals:
                yield Completion(f"{formal.name.text}=", "attribute")
            return
        made = self._operator(name) if name else None
        if made is None:
            return
        for key, attribute in made.SCHEMA.attributes.items():
            yield Completion(f"{key}=", "attribute", _first_sentence(attribute.description))
        for formal in made.SCHEMA.inputs:
            yield Completion(f"{formal.name}=", "input", _first_sentence(formal.description))

    def _values(self, line: int) -> Iterator[Completion]:
        """The names defined above a line."""
        seen: set[str] = set()
        for span, (home, meaning) in self._names.meanings.items():
            word = self._names.written(span)
            if span == home and span.line < line and word not in seen:
                seen.add(word)
                about = describe(meaning.type) if isinstance(meaning, SSAValue) else ""
                yield Completion(word, "value", about)

    def _operators(self) -> list[str]:
        version = self._versions()[""]
        return sorted(
            {one.name for one in all_schemas() if not one.domain and one.since_version <= version}
        )


def _shown(meaning: object) -> str:
    text = ExpressionText(lambda *_: "...")
    known: Expression = meaning  # type: ignore[assignment]
    return text.expression(known)


def _inside_index(text: str) -> bool:
    """Whether the end of a text is inside an index, where `:` is a slice."""
    line = text.rpartition("\n")[2]
    return line.count("[") > line.count("]")


def _open_argument(text: str) -> tuple[str, int | str]:
    """The call that is open at the end of a text; the index of its argument, or its keyword."""
    position = _open_bracket(text)
    inside = text[position + 1 :] if position is not None else ""
    before_last = None
    while inside != before_last:  # brackets inside brackets
        before_last, inside = inside, re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", inside)
    *before, last = inside.split(",")
    keyword = re.match(r"\s*(\w+)\s*=", last)
    return _open_call(text), keyword[1] if keyword else len(before)


def _open_call(text: str) -> str:
    """The name before the innermost open `(`."""
    position = _open_bracket(text)
    match = None if position is None else re.search(r"(\w+)\s*$", text[:position])
    return match[1] if match and position is not None and text[position] == "(" else ""


def _open_bracket(text: str) -> int | None:
    """The position of the innermost open bracket."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        if text[position] in ")]":
            depth += 1
        elif text[position] in "([":
            if depth == 0:
                return position
            depth -= 1
        elif text[position] in "{}":
            return None
    return None


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0]


def about_operator(made: type[SchemaOp]) -> str:
    """An operator as Markdown: signature, attributes, description."""
    schema = made.SCHEMA
    inputs = ", ".join(formal.name for formal in schema.inputs)
    outputs = ", ".join(formal.name for formal in schema.outputs)
    lines = [f"```pgraph\n({outputs}) = {name_text(schema.name)}({inputs})\n```"]
    for key, attribute in schema.attributes.items():
        kind = KINDS.get(attribute.type.name, attribute.type.name.lower())
        default = str(to_python(made.DEFAULTS[key])) if key in made.DEFAULTS else ""
        needed = " (needed)" if attribute.required else f" = {default}" if default else ""
        lines.append(f"* `{key}`{needed}: {kind}. {_first_sentence(attribute.description)}")
    domain = f"{schema.domain}-" if schema.domain else ""
    lines.append(dedent(schema.doc or "").strip())
    lines.append(f"*{domain}{schema.name}, since opset {schema.since_version}*")
    return "\n\n".join(filter(None, ["\n".join(lines[:1]), "\n".join(lines[1:-2]), *lines[-2:]]))
