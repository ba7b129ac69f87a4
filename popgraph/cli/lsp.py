"""`popgraph lsp`: the language server for `.pgraph` texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Folders
from popgraph.support.errors import PopgraphError

if TYPE_CHECKING:
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer

    from popgraph.builder.pgraph.syntax.tree import Span
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic
    from popgraph.builder.pgraph.tools.language_service import LanguageService
    from popgraph.builder.pgraph.tools.outline import Symbol


def command(
    port: Annotated[
        int | None,
        typer.Option(help="Listen on this port of 127.0.0.1 (default: standard input and output)."),
    ] = None,
    folders: Folders = None,
) -> None:
    """
    Serve the language server protocol for .pgraph texts.

    \b
    popgraph lsp
    popgraph lsp --port 2087

    For editors: errors and warnings while typing, types and operators on hover, completion,
    signatures, inferred types, outline, go to definition, references, rename, formatting. Requires
    the package pygls: pip install "popgraph[lsp]".
    """
    server = make_server()
    if port is None:
        server.start_io()
    else:
        server.start_tcp("127.0.0.1", port)


def make_server() -> LanguageServer:
    """The server with all of its features."""
    try:
        from lsprotocol import types as lsp
        from pygls.lsp.server import LanguageServer
    except ImportError as error:
        raise PopgraphError(
            "the language server needs the package pygls", hint='pip install "popgraph[lsp]"'
        ) from error
    import popgraph

    server = LanguageServer("popgraph", popgraph.__version__)
    texts = _Texts(server)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        texts.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        texts.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        texts.forget(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        text = texts.of(params.text_document.uri).hover(*_place(params.position))
        content = lsp.MarkupContent(kind=lsp.MarkupKind.Markdown, value=text)
        return lsp.Hover(contents=content) if text else None

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        span = texts.of(uri).definition(*_place(params.position))
        return None if span is None else lsp.Location(uri=uri, range=_range(span))

    words = lsp.CompletionOptions(trigger_characters=["@", ":", "(", ",", "=", " "])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, words)
    def completion(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        found = texts.of(params.text_document.uri).completions(*_place(params.position))
        return [
            lsp.CompletionItem(label=one.word, kind=_kind(one.kind), detail=one.about or one.kind)
            for one in found
        ]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        return _formatted(texts.of(params.text_document.uri).text)

    _add_names(server, texts)
    _add_marks(server, texts)
    return server


def _add_names(server: LanguageServer, texts: _Texts) -> None:
    """Adds requests about names: references, renaming, outline."""
    from lsprotocol import types as lsp
    from pygls.exceptions import JsonRpcInvalidParams

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        spans = texts.of(uri).uses(*_place(params.position))
        return [lsp.Location(uri=uri, range=_range(span)) for span in spans]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        uri = params.text_document.uri
        try:
            spans, name = texts.of(uri).renamed(*_place(params.position), params.new_name)
        except PopgraphError as error:
            raise JsonRpcInvalidParams(error.what) from error
        edits = [lsp.TextEdit(_range(span), name) for span in spans]
        return lsp.WorkspaceEdit(changes={uri: edits}) if edits else None

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        return [_symbol(one) for one in texts.of(params.text_document.uri).outline()]


def _add_marks(server: LanguageServer, texts: _Texts) -> None:
    """Adds annotations: signatures, inferred types, semantic tokens."""
    from lsprotocol import types as lsp

    from popgraph.builder.pgraph.tools.marks import KINDS

    @server.feature(
        lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","])
    )
    def signature(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        found = texts.of(params.text_document.uri).signature(*_place(params.position))
        if found is None:
            return None
        words = [lsp.ParameterInformation(label=word) for word in found.parameters]
        told = lsp.SignatureInformation(found.label, found.about or None, words)
        return lsp.SignatureHelp([told], active_signature=0, active_parameter=found.active)

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        first, last = params.range.start.line, params.range.end.line
        return [
            lsp.InlayHint(lsp.Position(one.line - 1, one.column - 1), one.text)
            for one in texts.of(params.text_document.uri).hints()
            if first <= one.line - 1 <= last
        ]

    legend = lsp.SemanticTokensLegend(token_types=list(KINDS), token_modifiers=[])

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, legend)
    def tokens(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        numbers: list[int] = []
        line, column = 1, 1
        for one in texts.of(params.text_document.uri).tokens():
            span = one.span
            column = column if span.line == line else 1
            length = span.end_column - span.column
            kind = KINDS.index(one.kind)
            numbers += [span.line - line, span.column - column, length, kind, 0]
            line, column = span.line, span.column
        return lsp.SemanticTokens(data=numbers)


def _symbol(found: Symbol) -> lsp.DocumentSymbol:
    from lsprotocol import types as lsp

    kinds = {
        "graph": lsp.SymbolKind.Class,
        "template": lsp.SymbolKind.Function,
        "function": lsp.SymbolKind.Function,
        "train": lsp.SymbolKind.Event,
        "input": lsp.SymbolKind.Field,
        "weight": lsp.SymbolKind.Property,
        "constant": lsp.SymbolKind.Constant,
    }
    return lsp.DocumentSymbol(
        name=found.name,
        kind=kinds[found.kind],
        range=_range(found.span),
        selection_range=_range(found.name_span),
        children=[_symbol(one) for one in found.inside],
    )


class _Texts:
    """The documents open in the editor, in their current state."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._assistants: dict[str, LanguageService] = {}

    def of(self, uri: str) -> LanguageService:
        from popgraph.builder.pgraph.tools.language_service import LanguageService

        document = self._server.workspace.get_text_document(uri)
        found = self._assistants.setdefault(uri, LanguageService(document.path or uri))
        if found.text != document.source:
            found.read(document.source)
        return found

    def forget(self, uri: str) -> None:
        self._assistants.pop(uri, None)

    def publish(self, uri: str) -> None:
        from lsprotocol import types as lsp

        found = [_diagnostic(one) for one in self.of(uri).now.diagnostics]
        params = lsp.PublishDiagnosticsParams(uri=uri, diagnostics=found)
        self._server.text_document_publish_diagnostics(params)


def _place(position: lsp.Position) -> tuple[int, int]:
    """Line and column, counted from 1."""
    return position.line + 1, position.character + 1


def _range(span: Span) -> lsp.Range:
    from lsprotocol import types as lsp

    return lsp.Range(
        start=lsp.Position(span.line - 1, span.column - 1),
        end=lsp.Position(span.end_line - 1, span.end_column - 1),
    )


def _diagnostic(found: Diagnostic) -> lsp.Diagnostic:
    from lsprotocol import types as lsp

    severity = {
        "error": lsp.DiagnosticSeverity.Error,
        "warning": lsp.DiagnosticSeverity.Warning,
    }[found.severity]
    message = found.message + (f"\n{found.hint}" if found.hint else "")
    return lsp.Diagnostic(
        range=_range(found.span), message=message, severity=severity, source="popgraph"
    )


def _kind(kind: str) -> lsp.CompletionItemKind:
    from lsprotocol import types as lsp

    kinds = {
        "operator": lsp.CompletionItemKind.Function,
        "template": lsp.CompletionItemKind.Method,
        "initialiser": lsp.CompletionItemKind.Function,
        "attribute": lsp.CompletionItemKind.Property,
        "input": lsp.CompletionItemKind.Field,
        "value": lsp.CompletionItemKind.Variable,
        "type": lsp.CompletionItemKind.TypeParameter,
        "keyword": lsp.CompletionItemKind.Keyword,
        "annotation": lsp.CompletionItemKind.Event,
    }
    return kinds[kind]


def _formatted(text: str) -> list[lsp.TextEdit] | None:
    """The edit that formats a text; None if the text has errors."""
    from lsprotocol import types as lsp

    from popgraph.builder.pgraph.print.formatter import format_text

    try:
        after = format_text(text)
    except PopgraphError:
        return None
    everything = lsp.Range(lsp.Position(0, 0), lsp.Position(text.count("\n") + 1, 0))
    return [] if after == text else [lsp.TextEdit(everything, after)]
