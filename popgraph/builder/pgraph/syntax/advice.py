"""Messages for syntax errors: explains where the parser stopped and why."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.parsers.lalr_parser_state import ParserState

from popgraph.builder.pgraph.syntax.mistakes import TABLE, Advice
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.transform import token_span
from popgraph.builder.pgraph.syntax.tree import Span

_CHARACTERS = {
    '"': ("this string never ends", 'strings end on their line; `\\"` is a quote inside one'),
    "`": ("this quoted name never ends", "a name ends on its line"),
    "'": ("strings are written in double quotes", '`"SAME_UPPER"`'),
    ";": ("a statement ends with its line", "remove the `;`"),
    "^": ("there is no operator `^`", "`**` raises to a power"),
    "&": ("there is no operator `&`", "`a and b`"),
    "|": ("there is no operator `|`", "`a or b`; `x |> f` gives a value to a call"),
    "!": ("there is no operator `!`", "`not a`"),
    "~": ("there is no operator `~`", "`not a`"),
    "$": ("there is no operator `$`", ""),
}

_SHOWN = {
    "NAME": "a name",
    "QUOTED": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "INF": "a number",
    "NAN": "a number",
    "STRING": "a string",
    "DOC": "a doc string",
    "TRUE": "`true`",
    "FALSE": "`false`",
    "COMPARISON": "a comparison",
    "_NEWLINE": "the end of the line",
    "$END": "the end of the file",
}

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def explain(error: UnexpectedInput, text: str, source: Source, language: Lark) -> int | None:
    """
    Reports the error in `source`; returns a line to skip in order to find more errors, if any.
    """
    if isinstance(error, UnexpectedCharacters):
        _explain_character(error, text, source)
        return _separable(text, error.line)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    tokens = _tokens(language, text)
    bracket = _never_closed(tokens, token)
    if bracket is not None:
        closer = _PAIRS[str(bracket)]
        source.parse_error(
            token_span(bracket), f"this `{bracket}` is never closed", f"add the `{closer}`"
        )
        return None
    what, hint = (
        _wrong_closer(tokens, token)
        or _advice(error, tokens, language)
        or (_expectation(error, language), "")
    )
    source.parse_error(_token_place(token, text), what, hint)
    return None if token.type == "$END" else _separable(text, token.line or 1)


def _explain_character(error: UnexpectedCharacters, text: str, source: Source) -> None:
    place = error.pos_in_stream or 0
    character = text[place]
    what, hint = _CHARACTERS.get(character, (f"unexpected character {character!r}", ""))
    if text.startswith('"""', place):
        what, hint = "this doc string never ends", 'it ends with `"""`'
    elif character.isdigit():
        what, hint = (
            "this is not a number",
            "names begin with a letter; numbers are `12`, `0.5`, `1e-3`",
        )
    elif not character.isascii():
        hint = "names that are not identifiers need backticks"
    source.parse_error(Span(error.line, error.column, error.line, error.column + 1), what, hint)


def _separable(text: str, line: int) -> int | None:
    """`line`, if the lines around it can be parsed without it."""
    content = text.split("\n")[line - 1]
    if "{" in content or "}" in content or content.split()[:1] in ([], ["graph"], ["train"]):
        return None
    opens = any(content.count(first) > content.count(last) for first, last in _PAIRS.items())
    return None if opens else line


def _tokens(language: Lark, text: str) -> list[Token]:
    found: list[Token] = []
    with suppress(UnexpectedCharacters):
        found.extend(language.lex(text))
    return found


def _never_closed(tokens: list[Token], stuck: Token) -> Token | None:
    """
    The unclosed bracket that explains why the parser stopped, if any.

    It is on an earlier line and not closed before the block or the next statement begins or ends;
    or it is a `{` at the end of the file.
    """
    last = _innermost(tokens, stuck)
    if last is None or last == "{":
        return last if stuck.type == "$END" else None
    rest = [token for token in tokens if _position(token) >= _position(stuck)]
    depth = 1
    for index, token in enumerate(rest):
        if token in ("(", "["):
            depth += 1
        elif token in (")", "]"):
            depth -= 1
            if depth == 0:
                return None
        elif token in ("{", "}", "weight", "const", "graph", "train") or _assigns(rest, index):
            break
    return last if last.line != stuck.line or stuck.type == "$END" else None


def _innermost(tokens: list[Token], stuck: Token) -> Token | None:
    """The last bracket still open where the parser stopped."""
    opened: list[Token] = []
    for token in tokens:
        if _position(token) >= _position(stuck):
            break
        if token in _PAIRS:
            opened.append(token)
        elif token in _PAIRS.values() and opened:
            opened.pop()
    return opened[-1] if opened else None


def _wrong_closer(tokens: list[Token], stuck: Token) -> tuple[str, str] | None:
    if stuck not in _PAIRS.values():
        return None
    opener = _innermost(tokens, stuck)
    if opener is None or (opener == "{" and stuck != "}"):
        return f"this `{stuck}` closes nothing", "remove it"
    if _PAIRS[opener] == stuck:
        return None
    return f"this `{stuck}` cannot close the `{opener}`", f"`{_PAIRS[opener]}` does"


def _assigns(tokens: list[Token], index: int) -> bool:
    """Whether a statement begins here: a name at the beginning of a line, then `=`."""
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    previous = tokens[index - 1] if index else None
    return (
        tokens[index].type in ("NAME", "QUOTED")
        and following is not None
        and following.type == "EQUAL"
        and previous is not None
        and previous != ","
        and previous.line != tokens[index].line
    )


def _position(token: Token) -> int:
    return token.start_pos if token.start_pos is not None and token.type != "$END" else 1 << 60


def _token_place(token: Token, text: str) -> Span:
    if token.type == "$END":
        lines = text.rstrip().split("\n")
        return Span(len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)
    span = token_span(token)
    if token.type == "_NEWLINE":
        return Span(span.line, span.column, span.line, span.column + 1)
    return span


StuckState = tuple[str, ...]
"""A stop of the parser: token type, parser state, open bracket, first word of the line."""


def _stuck_states(
    state: ParserState[int], token: Token, tokens: list[Token]
) -> tuple[StuckState, StuckState, StuckState]:
    """Keys of a stop, from the most to the least specific."""
    line = [one for one in tokens if one.line == token.line and one.type != "_NEWLINE"]
    first = str(line[0]) if line and line[0] in _STATEMENTS else ""
    known = (token.type, str(state.state_stack[-1]))
    opened = _opened(tokens, token)
    return (*known, opened, first), (*known, opened), known


def _opened(tokens: list[Token], stuck: Token) -> str:
    """The kind of the enclosing construct: call, list, index, parentheses, block or none."""
    bracket = _innermost(tokens, stuck)
    if bracket is None or bracket == "{":
        return str(bracket or "")
    place = tokens.index(bracket)
    after_value = place > 0 and tokens[place - 1].type in _ENDS_OF_VALUES
    return ("call" if bracket == "(" else "index") if after_value else str(bracket)


_ENDS_OF_VALUES = ("NAME", "QUOTED", "RPAR", "RSQB")


_STATEMENTS = (
    *(
        "weight",
        "const",
        "let",
        "for",
        "freeze",
        "train_only",
        "graph",
        "def",
        "function",
        "train",
        "opset",
    ),
    *("import", "from", "return", "while", "loop", "if"),
)


def _advice(error: UnexpectedToken, tokens: list[Token], language: Lark) -> tuple[str, str] | None:
    known = _known(language)
    for place in _stuck_states(error.state, error.token, tokens):
        if place in known:
            return known[place].what, known[place].hint
    return None


@cache
def _known(language: Lark) -> dict[StuckState, Advice]:
    """The stop of each example in the table; the first example of a stop wins."""
    found: dict[StuckState, Advice] = {}
    for advice in TABLE:
        for example in advice.examples:
            exact, close, rough = stuck(language, example)
            if advice.anywhere:
                found.setdefault(rough, advice)
                continue
            found.setdefault(exact, advice)
            if not exact[-1]:
                found.setdefault(close, advice)
    return found


def stuck(language: Lark, example: str) -> tuple[StuckState, StuckState, StuckState]:
    """The stop of the parser on an example."""
    try:
        language.parse_interactive(example, start="file").exhaust_lexer()
    except UnexpectedToken as error:
        return _stuck_states(error.state, error.token, _tokens(language, example))
    raise AssertionError(f"nothing is wrong with {example!r}")


def _expectation(error: UnexpectedToken, language: Lark) -> str:
    """The message derived from the grammar alone."""
    spelled = {terminal.name: f"`{terminal.pattern.value}`" for terminal in language.terminals}
    accepted = sorted({_SHOWN.get(name, spelled.get(name, name)) for name in error.accepts})
    token = error.token
    shown = _SHOWN[token.type] if token.type in ("_NEWLINE", "$END") else f"`{token}`"
    if not accepted or len(accepted) > 6:
        return f"{shown} is not allowed here"
    return f"expected {_either(accepted)}, found {shown}"


def _either(choices: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
