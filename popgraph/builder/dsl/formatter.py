"""How is a tree written down, so that parsing gives the same tree?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popgraph.builder.dsl.expression_text import (
    INDENT,
    SUM,
    WIDTH,
    ExpressionText,
    filled,
    name_text,
    path_text,
)
from popgraph.builder.dsl.transform import quote
from popgraph.builder.dsl.tree import (
    Annotation,
    Assignment,
    Block,
    Branches,
    Constant,
    File,
    Formal,
    Freeze,
    Function,
    Graph,
    Import,
    Item,
    Loop,
    Missing,
    Name,
    Opset,
    Parameter,
    Range,
    Region,
    Statement,
    Static,
    Target,
    Template,
    Train,
    Weight,
)


def format_file(file: File) -> str:
    """The whole text: an empty line between its parts, none between lines of one kind."""
    parts = [docstring(file.doc, "")] if file.doc else []
    before: type[Item] | None = None
    for item in file.items:
        text = _Formatter().item(item)
        if before is type(item) and isinstance(item, Opset | Import | Static):
            parts[-1] += f"\n{text}"
        else:
            parts.append(text)
        before = type(item)
    return "\n\n".join(parts) + "\n"


def docstring(text: str, margin: str) -> str:
    """`text` between triple quotes; what would end it early is changed."""
    safe = text.replace('"""', "'''").removesuffix('"')
    lines = [f"{margin}{line}".rstrip() for line in safe.split("\n")]
    return f'{margin}"""' + "\n".join(lines).lstrip() + '"""'


class _Formatter:
    """Writes items, blocks and statements; `depth` is how many times their line is indented."""

    def __init__(self) -> None:
        self.texts = ExpressionText(self.with_block)

    # items

    def item(self, item: Item) -> str:
        match item:
            case Opset():
                return self.opset(item)
            case Import():
                names = "" if item.names is None else f" ({_names(item.names)})"
                file = quote(item.file.value, '"')
                return f"import {file}{names}"
            case Static():
                return self.statement(item, 0)
            case Graph():
                return self.with_block(item, 0)
            case Template():
                head = f"def {name_text(item.name.text)}"
                formals = [self.formal(formal) for formal in item.formals]
                return self.headed(head, formals, item.outputs, item.body, 0)
            case Function():
                return self.function(item)
            case Train():
                return self.train(item)

    def opset(self, opset: Opset) -> str:
        domain = ".".join(map(name_text, opset.domain.split("."))) + " " if opset.domain else ""
        return f"opset {domain}{opset.version}"

    def function(self, function: Function) -> str:
        formals = [self.formal(formal) for formal in function.inputs]
        if function.attributes:
            formals += ["*", *map(self.formal, function.attributes)]
        head = f"function {path_text(function.path)}"
        opsets = [INDENT + self.opset(opset) for opset in function.opsets]
        text = self.headed(head, formals, function.outputs, function.body, 0, opsets)
        return self.annotated(function.annotations, 0) + text

    def train(self, train: Train) -> str:
        name = f" {name_text(train.graph.text)}" if train.graph else ""
        inputs = [self.parameter(parameter) for parameter in train.inputs]
        head = f"train{name}{' ' + filled('()', inputs, 0) if inputs else ''}"
        return f"{head} {self.block(train.body, 0)}"

    def headed(
        self,
        head: str,
        inputs: Sequence[str],
        outputs: Sequence[Target],
        body: Block,
        depth: int,
        opsets: Sequence[str] = (),
    ) -> str:
        """`head(inputs) -> outputs { body }`."""
        head += f"{filled('()', inputs, len(head) + len(INDENT) * depth, depth)} -> "
        shown = [self.target(target) for target in outputs]
        plain = len(outputs) == 1 and outputs[0].type is None and not outputs[0].annotations
        column = len(head.rpartition("\n")[2]) + len(" {")
        given = shown[0] if plain else filled("()", shown, column, depth)
        return f"{head}{given} {self.block(body, depth, opsets)}"

    def with_block(self, expression: Graph | Branches, depth: int) -> str:
        if isinstance(expression, Branches):
            condition = self.texts.expression(expression.condition, 0, depth)
            then = self.block(expression.then, depth)
            otherwise = expression.otherwise
            if isinstance(otherwise, Branches):
                rest = self.with_block(otherwise, depth)
            else:
                rest = self.block(otherwise, depth)
            return f"if {condition} {then} else {rest}"
        inputs = [self.parameter(parameter) for parameter in expression.inputs]
        head = f"graph {name_text(expression.name.text)}" if expression.name else "graph "
        text = self.headed(head, inputs, expression.outputs, expression.body, depth)
        return self.annotated(expression.annotations, depth) + text

    def block(self, block: Block, depth: int, opsets: Sequence[str] = ()) -> str:
        margin = INDENT * (depth + 1)
        doc = [docstring(block.doc, margin)] if block.doc else []
        lines = (margin + self.statement(one, depth + 1) for one in block.statements)
        return "\n".join(["{", *doc, *opsets, *lines, INDENT * depth + "}"])

    # what stands between parentheses

    def parameter(self, parameter: Parameter) -> str:
        return self.named(parameter)

    def target(self, target: Target) -> str:
        return self.named(target)

    def named(self, one: Parameter | Target) -> str:
        name = "_" if isinstance(one.name, Missing) else name_text(one.name.text)
        typed = "" if one.type is None else f": {self.texts.type(one.type)}"
        return "".join(f"{self.texts.annotation(a)} " for a in one.annotations) + name + typed

    def formal(self, formal: Formal) -> str:
        typed = "" if formal.type is None else f": {self.texts.type(formal.type)}"
        if formal.default is None:
            return name_text(formal.name.text) + typed
        equals = " = " if typed else "="
        return name_text(formal.name.text) + typed + equals + self.texts.expression(formal.default)

    # statements

    def statement(self, statement: Statement, depth: int) -> str:
        tuple_first = isinstance(statement, Assignment) and len(statement.targets) > 1
        annotations = self.annotated(statement.annotations, depth, apart=tuple_first)
        return annotations + self.bare(statement, depth)

    def annotated(
        self, annotations: Sequence[Annotation], depth: int, *, apart: bool = False
    ) -> str:
        """Annotations before what they are about; on lines of their own when they are long."""
        if not annotations:
            return ""
        texts = [self.texts.annotation(one, depth) for one in annotations]
        together = " ".join(texts)
        if apart or len(together) > WIDTH // 2 or "\n" in together:
            return "".join(f"{text}\n{INDENT * depth}" for text in texts)
        return f"{together} "

    def bare(self, statement: Statement, depth: int) -> str:
        match statement:
            case Region():
                return self.block(statement.body, depth)
            case Loop():
                return f"for {self.loop_head(statement, depth)} {self.block(statement.body, depth)}"
            case Freeze():
                patterns = (self.texts.expression(one) for one in statement.patterns)
                return f"freeze {', '.join(patterns)}"
            case Weight():
                head = f"weight {name_text(statement.name.text)}: {self.texts.type(statement.type)}"
            case Constant():
                type_ = f": {self.texts.type(statement.type)}" if statement.type else ""
                head = f"const {name_text(statement.name.text)}{type_}"
            case Static():
                head = f"let {name_text(statement.name.text)}"
            case Assignment():
                head = self.targets(statement.targets)
        start = len(INDENT) * depth + len(head) + len(" = ")
        return f"{head} = {self.texts.expression(statement.value, start, depth)}"

    def targets(self, targets: Sequence[Target]) -> str:
        shown = [self.target(target) for target in targets]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"

    def loop_head(self, loop: Loop, depth: int) -> str:
        if isinstance(loop.range, Range):
            ends = (loop.range.first, loop.range.last)
            turns = "..".join(self.texts.operand(end, SUM, 0, depth) for end in ends)
        else:
            turns = self.texts.expression(loop.range, 0, depth)
        return f"{self.targets(loop.targets)} in {turns}"


def _names(names: Iterable[Name]) -> str:
    return ", ".join(name_text(name.text) for name in names)
