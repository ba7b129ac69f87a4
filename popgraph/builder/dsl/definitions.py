"""What do the parts of a file outside of graphs define: `let`, `def`, `function` and `import`?"""

from __future__ import annotations

from popgraph.builder.dsl.lower import GraphLowering
from popgraph.builder.dsl.setting import Definition, Setting
from popgraph.builder.dsl.tree import File, Static, Template
from popgraph.dialects.onnx.writer import GraphWriter


def settle(setting: Setting, file: File) -> None:
    """Fills the setting of a file with what the file defines."""
    reader = GraphLowering(setting, GraphWriter(setting.opsets, setting.store), setting.scope)
    for item in file.items:
        match item:
            case Static():
                reader.statements([item])
            case Template():
                _define(setting, item)


def _define(setting: Setting, template: Template) -> None:
    name = template.name.text
    if name in setting.definitions:
        place = setting.definitions[name].template.span.line
        setting.source.parse_error(
            template.span, f"`{name}` is defined twice", f"the first time in line {place}"
        )
        return
    setting.definitions[name] = Definition(template, setting)
