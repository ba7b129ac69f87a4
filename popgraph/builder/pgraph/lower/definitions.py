"""Lowers file-level definitions: constants, templates, functions, imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from popgraph.builder.pgraph.check.file_context import Definition, Setting
from popgraph.builder.pgraph.check.imports import check_circle, found, text_of_file
from popgraph.builder.pgraph.check.opset_versions import check_opsets, declared_opsets
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.functions import (
    calls_itself,
    count_calls,
    key_of,
    lower_function,
)
from popgraph.builder.pgraph.lower.lower import GraphLowering
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import File, Function, Import, Name, Static, Template
from popgraph.dialects.onnx.writer import FunctionKey, GraphWriter
from popgraph.support.names import closest


def settle(setting: Setting, file: File) -> None:
    """Fills the setting of a file with what the file defines."""
    reader = GraphLowering(setting, GraphWriter(setting.opsets, setting.store), setting.scope)
    for item in file.items:
        try:
            match item:
                case Static():
                    _check_no_template(setting, item.name)
                    reader.statements([item])
                case Template():
                    _define(setting, item.name, Definition(item, setting))
                case Import():
                    _import(setting, item)
        except Failed:
            continue
    _functions(setting, [item for item in file.items if isinstance(item, Function)])


def _define(setting: Setting, name: Name, definition: Definition) -> None:
    known = setting.definitions.get(name.text)
    if known is not None and known.template is definition.template:
        return
    setting.scope.check_new(name)
    _check_no_template(setting, name)
    setting.definitions[name.text] = definition


def _check_no_template(setting: Setting, name: Name) -> None:
    if name.text not in setting.definitions:
        return
    first = setting.definitions[name.text]
    place = f"line {first.template.name.span.line}"
    if first.setting.source is not setting.source:
        place += f" of {first.setting.source.filename}"
    setting.source.parse_error(
        name.span, f"`{name.text}` is defined twice", f"the first time in {place}"
    )
    raise Failed


def _import(setting: Setting, item: Import) -> None:
    """Makes known what another file defines: all of it, or the names that are listed."""
    other = _setting_of(setting, item)
    own = {
        name: definition
        for name, definition in other.definitions.items()
        if definition.setting.source is other.source
    }
    values = {name.text: name for name in other.scope.names() if name.text not in other.borrowed}
    everything = [Name(item.file.span, name) for name in (*values, *own)]
    for name in item.names if item.names is not None else everything:
        try:
            if name.text in own:
                _define(setting, name, own[name.text])
            elif name.text in values:
                _check_no_template(setting, name)
                setting.scope.check_new(name)
                setting.scope.define(name, other.scope.known(values[name.text]))
                setting.borrowed.add(name.text)
            else:
                _not_there(setting, item, name, [*own, *values])
        except Failed:
            continue


def _not_there(setting: Setting, item: Import, name: Name, known: Sequence[str]) -> None:
    close = closest(name.text, known, 0.5)
    listed = ", ".join(known) or "nothing"
    setting.source.parse_error(
        name.span,
        f"{item.file.value!r} does not define `{name.text}`",
        f"did you mean `{close}`?" if close else f"it defines {listed}",
    )
    raise Failed


def _setting_of(setting: Setting, item: Import) -> Setting:
    """What an imported file defines; every file is read once."""
    path = found(setting, item)
    check_circle(setting, item, path)
    key = path.resolve()
    if key not in setting.files:
        text = text_of_file(setting, item, path)
        source = setting.source.imported(text, str(path))
        file = parse_file(source)
        theirs = declared_opsets(source, file.opsets)
        check_opsets(setting.source, item, setting.opsets, theirs)
        other = replace(
            setting,
            source=source,
            scope=Scope(source),
            definitions={},
            borrowed=set(),
            called=set(),
            reading=(*setting.reading, key),
        )
        settle(other, file)
        setting.files[key] = other
    return setting.files[key]


def _functions(setting: Setting, functions: list[Function]) -> None:
    """Every function may call every other, so all are known before one is read."""
    keyed: dict[FunctionKey, Function] = {}
    for function in functions:
        key = key_of(setting, function)
        if key in keyed:
            setting.source.parse_error(
                function.span,
                f"`{function.path.text}` is defined twice",
                f"the first time in line {keyed[key].span.line}",
            )
        else:
            keyed[key] = function
    setting.calls.update(keyed)
    count_calls(setting, keyed)
    for key, function in keyed.items():
        if calls_itself(setting, key, keyed):
            setting.source.parse_error(
                function.span,
                f"`{function.path.text}` calls itself",
                "ONNX has no recursion; `Loop` repeats a graph",
            )
            continue
        opsets = setting.opsets
        if function.opsets:
            opsets = declared_opsets(setting.source, function.opsets)
        lower_function(setting.using(opsets), key, function)
