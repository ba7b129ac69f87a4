"""The formatter: prints syntax trees as text, with their comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from popgraph.builder.pgraph.print.expression_text import (
    INDENT,
    SUM,
    WIDTH,
    ExpressionText,
    filled,
    name_text,
    path_text,
)
from popgraph.builder.pgraph.syntax.comments import Comments
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.transform import docstring_text, quote
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    Assignment,
    Block,
    Branches,
    Constant,
    File,
    For,
    Formal,
    Freeze,
    Function,
    Gives,
    Graph,
    Import,
    Item,
    Loop,
    Missing,
    Name,
    Node,
    Opset,
    Parameter,
    Range,
    Region,
    Scanned,
    State,
    Statement,
    Static,
    Target,
    Template,
    Train,
    Turns,
    Weight,
    children,
)


def format_text(text: str, filename: str = "<text>") -> str:
    """A text in the standard layout, with its comments."""
    return format_file(parse_file(Source(text, filename)), Comments(text))


def format_file(file: File, comments: Comments | None = None) -> str:
    """The whole text: items are separated by an empty line, one-line items of a kind are not."""
    formatter = _Formatter(comments or Comments())
    parts: list[str] = []
    if file.doc:
        above = _trimmed(formatter.comments.before(formatter.comments.first_string))
        parts.append("\n".join([*above, docstring(file.doc, "")]))
    before: type[Item] | None = None
    for item in file.items:
        above = formatter.comments.before(first_line(item))
        together = before is type(item) and isinstance(item, Opset | Import | Static)
        lines = _trimmed(above, inner=True)
        text = "\n".join([*lines, formatter.unit(item, 0)])
        if together and "" not in above:
            parts[-1] += f"\n{text}"
        else:
            parts.append(text)
        before = type(item)
    if rest := _trimmed(formatter.comments.before(1 << 30)):
        parts.append("\n".join(rest))
    return "\n\n".join(parts) + "\n"


def _trimmed(lines: list[str], *, inner: bool = False) -> list[str]:
    """Strips empty lines around comments; `inner` keeps the last one."""
    while lines[:1] == [""]:
        lines = lines[1:]
    while lines[-1:] == [""] and not (inner and len(lines) > 1):
        lines = lines[:-1]
    return lines


def first_line(node: Item | Statement) -> int:
    """The first line of a node, including its annotations."""
    return _begin(node)[0]


def _begin(node: Item | Statement) -> tuple[int, int]:
    """Line and column of the first word of a node and its annotations."""
    annotations: Sequence[Annotation] = getattr(node, "annotations", ())
    line, column = min((one.span.line, one.span.column) for one in (node, *annotations))
    return line, column if isinstance(node, Statement) else 1


def _blocks(node: Node) -> Iterator[Block]:
    """The outermost blocks inside a node."""
    waiting = [*children(node)][::-1]
    while waiting:
        child = waiting.pop()
        if isinstance(child, Block):
            yield child
        else:
            waiting += [*children(child)][::-1]


def docstring(text: str, margin: str) -> str:
    """
    `text` in triple quotes; triple quotes inside it are replaced.

    It begins on the line of the quotes, unless its indentation would be lost there.
    """
    safe = text.replace('"""', "'''")
    lines = "\n".join(f"{margin}{line}".rstrip() for line in safe.split("\n"))
    lines += " " * lines.endswith('"')
    short = f'"""{lines.lstrip()}"""'
    return margin + (short if docstring_text(short) == safe else f'"""\n{lines}"""')


class _Formatter:
    """Prints items, blocks and statements; `depth` is the indentation of their line."""

    def __init__(self, comments: Comments) -> None:
        self.texts = ExpressionText(self.with_block)
        self.comments = comments

    def unit(self, node: Item | Statement, depth: int) -> str:
        """
        Prints an item or a statement with its comments.

        If comments occur between its tokens, its text is kept unchanged; for a node that ends
        with a block, only the text before the block.
        """
        blocks = list(_blocks(node))
        first = _begin(node)
        last = max((one.span.end_line, one.span.end_column) for one in (node, *blocks))
        ranges = [(block.span.line, block.span.end_line) for block in blocks]
        if self.comments.inside(first[0], last[0], ranges):
            head = getattr(node, "body", None)
            if not isinstance(head, Block) or not self.comments.ends_line(head.span.line, "{"):
                return self.comments.verbatim(first, last, INDENT * depth)
            brace = head.span.line, head.span.column + 1
            opening = self.comments.verbatim(first, brace, INDENT * depth)
            opsets = node.opsets if isinstance(node, Function) else ()
            text = f"{opening}\n{self.inner(head, depth, opsets)}"
        else:
            text = self.item(node, depth)
        self.comments.reach(last[0])
        return text + self.comments.beside(last[0])

    # items

    def item(self, item: Item | Statement, depth: int) -> str:
        match item:
            case Opset():
                return self.opset(item)
            case Import():
                names = "" if item.names is None else f" ({_names(item.names)})"
                file = quote(item.file.value, '"')
                return f"import {file}{names}"
            case Graph():
                annotations = self.annotated(item.annotations, 0, own_lines=True)
                return annotations + self.with_block(replace(item, annotations=()), 0)
            case Template():
                head = f"def {name_text(item.name.text)}"
                formals = [self.formal(formal) for formal in item.formals]
                return self.headed(head, formals, item.outputs, item.body, 0)
            case Function():
                return self.function(item)
            case Train():
                return self.train(item)
            case _:
                return self.statement(item, depth)

    def opset(self, opset: Opset) -> str:
        domain = ".".join(map(name_text, opset.domain.split("."))) + " " if opset.domain else ""
        return f"opset {domain}{opset.version}"

    def function(self, function: Function) -> str:
        formals = [self.formal(formal) for formal in function.inputs]
        if function.attributes:
            formals += ["*", *map(self.formal, function.attributes)]
        head = f"function {path_text(function.path)}"
        text = self.headed(head, formals, function.outputs, function.body, 0, function.opsets)
        return self.annotated(function.annotations, 0, own_lines=True) + text

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
        opsets: Sequence[Opset] = (),
        before: int = 0,
    ) -> str:
        """`head(inputs) -> outputs { body }`, after `before` characters in its line."""
        start = len(INDENT) * depth + before
        head += f"{filled('()', inputs, start + len(head), depth)} -> "
        shown = [self.target(target) for target in outputs]
        plain = _is_plain(outputs)
        begun = head.rpartition("\n")
        column = len(begun[2]) + len(" {") + (0 if begun[1] else start)
        given = shown[0] if plain else filled("()", shown, column, depth)
        return f"{head}{given} {self.block(body, depth, opsets)}"

    def with_block(self, expression: Graph | Branches | Loop, depth: int, before: int = 0) -> str:
        if isinstance(expression, Branches):
            return self.branches(expression, depth)
        if isinstance(expression, Loop):
            return (
                f"{self.loop_head(expression, before, depth)}{self.block(expression.body, depth)}"
            )
        inputs = [self.parameter(parameter) for parameter in expression.inputs]
        annotations = self.annotated(expression.annotations, depth)
        head = f"graph {name_text(expression.name.text)}" if expression.name else "graph "
        if "\n" not in annotations:
            head, annotations = annotations + head, ""
        return annotations + self.headed(
            head, inputs, expression.outputs, expression.body, depth, before=before
        )

    def branches(self, branches: Branches, depth: int) -> str:
        condition = self.texts.expression(branches.condition, 0, depth)
        head = f"if {condition} "
        head += self.gives(branches.then_gives, len(head), depth)
        then = self.block(branches.then, depth)
        otherwise = branches.otherwise
        if isinstance(otherwise, Branches):
            return f"{head}{then} else {self.branches(otherwise, depth)}"
        gives = self.gives(branches.else_gives, len("} else "), depth)
        return f"{head}{then} else {gives}{self.block(otherwise, depth)}"

    def loop_head(self, loop: Loop, column: int, depth: int) -> str:
        """The head of a loop, whose block begins at `column`."""
        head = "loop "
        if loop.scanned:
            head += ", ".join(self.scanned(one, depth) for one in loop.scanned) + " "
        if loop.condition is not None:
            head += f"while {self.texts.expression(loop.condition, 0, depth)} "
        if loop.states:
            head += "with "
            states = [self.state(one, depth) for one in loop.states]
            alone = len(states) == 1 and _end(head + states[0], column) <= WIDTH - len(" {")
            head += states[0] if alone else filled("()", states, _end(head, column), depth)
            head += " "
        return head + self.gives(loop.gives, _end(head, column), depth)

    def scanned(self, scanned: Scanned, depth: int) -> str:
        name = self.named(Target(scanned.span, scanned.name, scanned.type))
        if not isinstance(scanned.range, Turns):
            return f"{name} in {self.texts.expression(scanned.range, 0, depth)}"
        first, last = scanned.range.first, scanned.range.last
        end = "" if last is None else self.texts.operand(last, SUM, 0, depth)
        return f"{name} in {self.texts.operand(first, SUM, 0, depth)}..{end}"

    def state(self, state: State, depth: int) -> str:
        name = self.named(Target(state.span, state.name, state.type, state.annotations))
        if isinstance(state.value, Missing):
            return f"{name} = _"
        return f"{name} = {self.texts.expression(state.value, 0, depth)}"

    def gives(self, gives: Gives | None, column: int, depth: int) -> str:
        """`-> (a, b) `: the results in front of a block, if declared."""
        if gives is None:
            return ""
        shown = [self.target(target) for target in gives.results]
        if gives.graph is None and _is_plain(gives.results):
            return f"-> {shown[0]} "
        name = "" if gives.graph is None else name_text(gives.graph.text)
        return f"-> {name}{filled('()', shown, column + len(name) + len('->  {'), depth)} "

    def block(self, block: Block, depth: int, opsets: Sequence[Opset] = ()) -> str:
        opening = "{" + self.comments.beside(block.span.line)
        return f"{opening}\n{self.inner(block, depth, opsets)}"

    def inner(self, block: Block, depth: int, opsets: Sequence[Opset] = ()) -> str:
        """A block, from the line after its `{`."""
        self.comments.reach(block.span.line)
        margin = INDENT * (depth + 1)
        lines = [docstring(block.doc, margin)] if block.doc else []
        for opset in opsets:
            lines += self.above(opset.span.line, margin, bool(lines))
            lines.append(margin + self.opset(opset) + self.comments.beside(opset.span.line))
            self.comments.reach(opset.span.line)
        for statement in block.statements:
            lines += self.above(first_line(statement), margin, bool(lines))
            lines.append(margin + self.unit(statement, depth + 1))
        below = self.above(block.span.end_line, margin, bool(lines))
        while below[-1:] == [""]:
            below.pop()
        return "\n".join([*lines, *below, INDENT * depth + "}"])

    def above(self, line: int, margin: str, gap: bool) -> list[str]:
        """The comments and the empty line above a line; no empty line at the top of a block."""
        found = self.comments.before(line)
        if not gap:
            found = _trimmed(found, inner=True)
        return [margin + one if one else "" for one in found]

    # elements of lists

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
        tuple_first = isinstance(statement, Assignment) and (
            len(statement.targets) > 1 or bool(statement.targets[0].annotations)
        )
        annotations = self.annotated(statement.annotations, depth, own_lines=tuple_first)
        return annotations + self.bare(statement, depth)

    def annotated(
        self, annotations: Sequence[Annotation], depth: int, *, own_lines: bool = False
    ) -> str:
        """Annotations in front of a node; on separate lines if they are long."""
        if not annotations:
            return ""
        texts = [self.texts.annotation(one, depth) for one in annotations]
        together = " ".join(texts)
        if not own_lines and len(together) <= WIDTH // 2 and "\n" not in together:
            return f"{together} "
        lines: list[str] = []
        for text in texts:
            if lines and "\n" not in lines[-1] and len(f"{lines[-1]} {text}") <= WIDTH:
                lines[-1] += f" {text}"
            else:
                lines.append(text)
        return "".join(f"{line}\n{INDENT * depth}" for line in lines)

    def bare(self, statement: Statement, depth: int) -> str:
        match statement:
            case Region():
                return self.block(statement.body, depth)
            case For():
                return f"for {self.for_head(statement, depth)} {self.block(statement.body, depth)}"
            case Freeze():
                patterns = (self.texts.expression(one) for one in statement.patterns)
                return f"{statement.keyword} {', '.join(patterns)}"
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
        if len(shown) == 1 and not targets[0].annotations:
            return shown[0]
        return f"({', '.join(shown)})"

    def for_head(self, loop: For, depth: int) -> str:
        if isinstance(loop.range, Range):
            ends = (loop.range.first, loop.range.last)
            source = "..".join(self.texts.operand(end, SUM, 0, depth) for end in ends)
        else:
            source = self.texts.expression(loop.range, 0, depth)
        return f"{self.targets(loop.targets)} in {source}"


def _is_plain(results: Sequence[Target]) -> bool:
    """
    Whether the result is a single name without type and annotations, printed without parentheses.
    """
    return len(results) == 1 and results[0].type is None and not results[0].annotations


def _end(text: str, column: int) -> int:
    """The column after a text that begins at `column`."""
    _, newline, last = text.rpartition("\n")
    return len(last) + (0 if newline else column)


def _names(names: Iterable[Name]) -> str:
    return ", ".join(name_text(name.text) for name in names)
