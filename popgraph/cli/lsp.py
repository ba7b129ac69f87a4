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


def command(
    port: Annotated[
        int | None, typer.Option(help="Listen on this port of 127.0.0.1; else the standard input.")
    ] = None,
    folders: Folders = None,
) -> None:
    """
    Serve the language server protocol for .pgraph texts.

    \b
    popgraph lsp
    popgraph lsp --port 2087

    Editors start it: mistakes and warnings as one writes, types and operators under the pointer,
    completion, go to definition, formatting. Needs the package pygls:
    pip install "popgraph[lsp]".
    """
    server = make_server()
    if port is None:
        server.start_io()
    else:
        server.start_tcp("127.0.0.1", port)


def make_server() -> LanguageServer:
    """The server with everything that it can do."""
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

    return server


class _Texts:
    """The texts that are open in the editor, as it has them now."""

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
    """Line and column, from 1."""
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
    """The one edit that lays a text out; None while it is not well formed."""
    from lsprotocol import types as lsp

    from popgraph.builder.pgraph.print.formatter import format_text

    try:
        after = format_text(text)
    except PopgraphError:
        return None
    everything = lsp.Range(lsp.Position(0, 0), lsp.Position(text.count("\n") + 1, 0))
    return [] if after == text else [lsp.TextEdit(everything, after)]
