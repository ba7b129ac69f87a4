"""Tests the architecture: import directions, rooms, module names."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "popgraph"
ROOMS: dict[str, dict[str, str]] = {
    "": {
        "support": "",
        "dialects": "support",
        "operators": "support dialects",
        "builder": "support dialects operators",
        "passes": "support dialects operators",
        "backends": "support dialects",
        "background": "support backends",
        "open_model": "support backends",
        "runner": "support backends background open_model",
        "hosted": "support dialects passes backends open_model runner",
        "compiler": "support dialects operators builder passes backends background open_model "
        "runner hosted",
        "start": "support passes backends background open_model runner",
        "generation": "support passes backends runner start",
        "testing": "support dialects builder passes backends compiler",
        "ipu": "support dialects passes backends compiler",
        "universe": "support dialects passes backends ipu",
        "extend": "support dialects operators passes backends",
        "engine": "support dialects passes backends background open_model runner compiler",
        "training": "support dialects builder passes backends background open_model runner "
        "compiler engine quantization",
        "callbacks": "training",
        "zoo": "support builder",
        "sklearn": "support dialects builder passes compiler training",
        "popart": "support dialects operators builder passes backends background compiler engine "
        "training ipu measure",
        "session": "popart",
        "backend": "support passes backends compiler runner start",
        "ort": "support dialects builder passes compiler runner start",
        "quantization": "support dialects builder passes backends runner compiler start measure",
        "torch": "support dialects builder passes backends open_model compiler",
        "conformance": "support backends backend",
        "compat": "support dialects builder passes backends runner compiler start engine training "
        "ort popart",
        "measure": "support dialects builder passes backends hosted compiler",
        "viewer": "support dialects builder passes backends compiler training ipu measure",
        "notebook": "support dialects builder",
        "cli": "support dialects builder passes backends background runner hosted compiler start "
        "generation training ipu popart testing measure viewer backend conformance quantization "
        "zoo",
    },
    "dialects": {
        "element_types": "",
        "value_types": "",
        "text": "",
        "locations": "",
        "building": "",
        "values": "",
        "unchecked": "",
        "program": "element_types",
        "onnx": "element_types value_types program",
        "graphcore": "element_types value_types program",
        "tile": "locations element_types program",
        "registry": "onnx graphcore tile program",
        "check": "registry text",
        "levels": "graphcore program tile",
    },
    "engine": {
        "accumulators": "",
        "alternating_programs": "",
        "errors": "",
        "host_scalars": "",
        "loss_scale": "",
        "stages": "",
        "delayed_weights": "stages",
        "plan": "loss_scale",
        "staged_executable": "",
        "grouped_weights": "plan",
        "replicas": "alternating_programs plan staged_executable",
        "shares": "plan",
        "streams": "plan",
        "host_weights": "errors grouped_weights",
        "program_code": "alternating_programs replicas",
        "steps": "replicas shares streams",
        "program": "accumulators errors host_scalars grouped_weights streams "
        "host_weights program_code",
        "program_stages": "staged_executable shares program_code",
        "accumulation": "stages program_code program_stages",
        "engine": "program program_stages",
        "runs": "delayed_weights staged_executable replicas steps engine",
    },
    "compat/ort_training": {
        "errors": "",
        "graphs": "errors",
        "flatbuffer": "",
        "checkpoint_file": "errors flatbuffer",
        "training_model": "errors graphs",
        "onnxblock": "errors graphs checkpoint_file training_model",
        "artifacts": "errors graphs onnxblock",
        "api": "errors graphs checkpoint_file training_model onnxblock",
    },
    "builder": {
        "budget": "",
        "source": "",
        "opset": "",
        "onnx": "budget",
        "pgraph": "budget opset onnx",
        "architectures": "source pgraph",
    },
    "builder/architectures": {
        "configurations": "",
        "texts": "configurations",
        "model": "configurations texts",
    },
    "popart": {
        "exceptions": "",
        "api": "exceptions",
        "builder": "about api",
        "model": "exceptions api",
        "ir": "api model",
        "programs": "exceptions api model ir",
        "refusals": "exceptions api model",
        "reports": "exceptions api model ir programs",
        "sessions": "exceptions api model ir programs refusals reports",
        "numerics": "exceptions sessions",
        "about": "",
        "operators": "model ir",
        "surface": "api sessions",
        "eras": "exceptions api builder programs reports sessions about",
        "net_writer": "",
        "pytorch": "api net_writer sessions eras",
    },
    "builder/pgraph": {
        "syntax": "",
        "check": "syntax",
        "lower": "syntax check",
        "print": "syntax check lower",
        "tools": "syntax check lower print",
    },
    "passes": {
        "optimizer_scalars": "",
        "optimizer_spec": "optimizer_scalars",
        "replication": "",
        "options": "optimizer_spec replication",
        "properties": "",
        "base": "options properties",
        "order": "base options properties",
        "validation": "",
        "observer": "base validation",
        "outside": "base",
        "changes": "base observer",
        "reproducer": "base observer",
        "analysis": "",
        "structured": "base options analysis properties",
        "loops": "base options structured properties",
        "program": "base options structured properties",
        "graphcore": "base options optimizer_scalars optimizer_spec properties replication "
        "analysis",
        "onnx": "base options replication analysis graphcore properties",
        "proofs": "graphcore structured",
        "pipeline": "base goals options order outside onnx graphcore structured loops program",
        "goals": "options graphcore structured loops",
    },
    "passes/graphcore": {
        "fold_constants": "",
        "intervals": "fold_constants",
        "canonicalize": "fold_constants intervals",
        "fuse_softmax_loss": "canonicalize",
        "whole_sums": "fold_constants intervals",
        "contract_in_floats": "canonicalize whole_sums",
        "pack_words": "",
        "lower_precision": "canonicalize whole_sums",
        "pair_sums": "",
        "contract_in_words": (
            "canonicalize fold_constants lower_precision pack_words pair_sums whole_sums"
        ),
        "return_appended": "",
        "assign_roles": "",
        "skip_padding": "canonicalize",
        "fold_depth": "canonicalize",
        "contract_quantized": "canonicalize fold_constants whole_sums",
        "round_cheaply": "canonicalize",
        "scaled_weights": "canonicalize fold_constants intervals",
        "round_activations": "canonicalize scaled_weights",
        "scale_sums": "canonicalize fold_constants intervals pack_words scaled_weights",
        "training": "",
        "spread_replicas": "training",
        "bucket_exchanges": "",
        "stages": "training",
        "recompute": "training",
        "round_stochastically": "",
        "to_structured": "",
        "expand": "",
        "to_onnx": "expand training",
        "cse": "",
        "dce": "canonicalize",
        "jacobian_products": "training dce",
        "jacobians": "training dce jacobian_products",
        "check_indices": "",
    },
    "passes/graphcore/training": {
        "dependence": "",
        "influence": "",
        "reverse_mode": "",
        "loop_draft": "reverse_mode",
        "residuals": "loop_draft",
        "turn_sums": "loop_draft reverse_mode",
        "reverse_cond": "dependence loop_draft reverse_mode",
        "reverse_loop": "dependence loop_draft residuals reverse_mode turn_sums",
        "autodiff": "dependence influence reverse_cond reverse_loop reverse_mode",
        "terms": "",
        "update_rules": "terms",
        "variables": "terms",
        "micro_batches": "variables weight_context",
        "weight_context": "terms variables",
        "ranks": "terms weight_context",
        "loss_scale": "autodiff terms variables weight_context",
        "replica_accumulators": "autodiff loss_scale terms update_rules variables weight_context",
        "add_optimizer": "autodiff loss_scale ranks replica_accumulators terms update_rules "
        "variables weight_context",
    },
    "passes/onnx": {
        "index_bounds": "",
        "evaluate_lowered": "index_bounds to_graphcore",
        "infer_shapes": "",
        "number_labels": "",
        "overridable": "",
        "partition": "infer_shapes",
        "enclose_gradients": "partition",
        "to_graphcore": "",
        "evaluate_constants": "enclose_gradients partition to_graphcore",
        "select_known": "evaluate_constants infer_shapes",
        "fold_indices": "evaluate_constants",
        "structural_inputs": "to_graphcore",
        "normalize": "enclose_gradients index_bounds infer_shapes to_graphcore",
        "share_nodes": "",
        "size_decisions": "partition",
        "operator_ways": "partition to_graphcore",
        "without_gradient": "operator_ways",
        "diagnose": "enclose_gradients infer_shapes partition to_graphcore structural_inputs "
                    "normalize",
    },
    "passes/structured": {
        "analysis": "",
        "layout": "analysis",
        "to_loops": "analysis",
        "parallel": "analysis to_loops",
        "schedule": "analysis",
        "winograd": "analysis schedule fusion",
        "fusion": "analysis",
        "alternatives": "analysis schedule winograd",
        "bind_sizes": "analysis to_loops",
        "hoist_constants": "",
        "hoist_invariants": "",
        "move_updates": "",
        "view_words": "analysis",
        "fuse_products": "",
        "split_backward": "analysis",
    },
    "passes/structured/to_loops": {
        "kernel_functions": "",
        "emit": "",
        "elementwise": "emit",
        "reduction": "emit",
        "contraction": "emit",
        "copy": "emit",
        "winograd": "emit contraction",
        "fused": "emit elementwise reduction contraction",
        "rare_emitters": "emit elementwise copy winograd",
        "emitters": "kernel_functions emit elementwise reduction contraction copy fused "
                    "rare_emitters",
    },
    "passes/loops": {
        "editor": "",
        "marked": "",
        "indices": "",
        "prefetching": "indices",
        "interchanging": "editor indices marked",
        "unrolling": "editor marked",
        "splitting": "editor indices marked",
        "vectorizing": "editor indices",
        "prefetch_panels": "prefetching",
        "split_loops": "splitting",
        "interchange_loops": "interchanging",
        "unroll_loops": "unrolling",
        "vectorize_loops": "vectorizing",
    },
    "viewer": {
        "provenance": "",
        "nodes": "",
        "sketch": "nodes",
        "graphs": "provenance nodes",
        "pass_changes": "",
        "weight_statistics": "",
        "recording": "graphs provenance",
        "kernels": "provenance recording",
        "flame": "",
        "lowered": "flame kernels recording",
        "combined_steps": "flame graphs kernels lowered provenance nodes",
        "document": "flame graphs lowered pass_changes recording combined_steps weight_statistics",
        "explorer": "document",
        "page": "",
        "server": "page",
        "viewing": "document flame page server",
        "training_page": "document viewing",
    },
    "backends": {
        "base": "",
        "tools": "base",
        "interface": "base tools",
        "registry": "interface",
        "c": "base tools interface registry",
        "reference": "base interface registry",
    },
    "backends/c": {
        "machine": "",
        "memory": "",
        "print": "memory",
        "cache": "machine memory",
        "build": "machine print cache",
        "run": "machine memory print cache build",
        "emit": "machine memory print build",
        "export": "machine memory print build run",
        "build_program": "print cache build run",
        "tools": "print cache run emit export",
        "backend": "memory cache build run build_program tools",
    },
}  # fmt: skip
"""
The rooms, each with its modules and folders, and the neighbours that each of these may import.

Imports under TYPE_CHECKING count. A room's `__init__` counts as the room itself.
"""

LEVELS = ("onnx", "graphcore", "tile")
ONLY = {
    "onnx": (
        "dialects/onnx/",
        "operators/",
        "builder/onnx/",
        "backends/reference/onnx_level.py",
        "testing/onnx_",
        "backend.py",
        "conformance/",
        "compat/ort_training/",
        "torch/translations.py",
    ),
    "lark": ("builder/pgraph/",),
    "hypothesis": ("testing/",),
    "sklearn": ("sklearn/",),
    "torch": ("torch/",),
    "onnxscript": ("torch/",),
    "onnx_ir": ("torch/",),
}  # fmt: skip
"""Third-party packages that only some files may import."""
ORACLES = {"torch", "onnxruntime", "openvino", "tensorflow", "mlxtend"}
"""Packages that only tests may import, except in the rooms that `ONLY` names."""

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Every imported module by absolute name, with its line; from-imports also name the package."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import"
            yield node.module or "", node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def module_of(path: Path) -> str:
    """`passes/cse.py` is popgraph.passes.cse, a folder's `__init__.py` the folder."""
    return "popgraph." + name_of(path).removesuffix(".py").removesuffix("/__init__").replace(
        "/", "."
    )


def inside(room: str, module: str) -> str:
    """The part of a room that has a module: `graphcore` for passes.graphcore.cse in `passes`."""
    start = f"popgraph.{room.replace('/', '.')}.".replace("..", ".")
    return module.removeprefix(start).split(".")[0] if module.startswith(start) else ""


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_described_completely(room: str) -> None:
    folder = PACKAGE / room
    found = {path.stem for path in folder.glob("*.py")} | {
        path.name for path in folder.iterdir() if (path / "__init__.py").exists()
    }
    assert found - {"__init__", "__main__"} == set(ROOMS[room])


def test_imports_point_down() -> None:
    wrong = [
        f"{name_of(path)}:{line}: in {room or 'popgraph'}, {here} may not import {there}"
        for room, allowed in ROOMS.items()
        for path in FILES
        if (here := inside(room, module_of(path))) in allowed
        for module, line in imports(path)
        if (there := inside(room, module)) in allowed
        and there not in {here, *allowed[here].split()}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_have_no_circular_imports(room: str) -> None:
    left = {name: set(allowed.split()) for name, allowed in ROOMS[room].items()}
    while free := [name for name, allowed in left.items() if not allowed & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"a circle of rooms: {left}"


def test_modules_have_no_circular_imports() -> None:
    modules = {module_of(path): path for path in FILES if path.name != "__init__.py"}
    left = {
        name: {module for module, _ in imports(path)} & set(modules) - {name}
        for name, path in modules.items()
    }
    while free := [name for name, imported in left.items() if not imported & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other, or what does: {sorted(left)}"


@pytest.mark.parametrize("level", LEVELS)
def test_dialects_do_not_import_each_other(level: str) -> None:
    foreign = tuple(f"popgraph.dialects.{other}" for other in LEVELS if other != level)
    own = [path for path in FILES if name_of(path).startswith(f"dialects/{level}/")]
    wrong = [
        f"{name_of(path)}:{line}: dialect {level} may not import {module}"
        for path in own
        for module, line in imports(path)
        if module.startswith(foreign)
    ]
    assert own and not wrong, "\n".join(wrong)


def test_the_engine_uses_no_name_of_popart() -> None:
    """Trainers use the engine, too, so its errors and comments must not speak of PopART."""
    word = re.compile(r"popart|session|FromHost|ToHost|StepIO|\banchor", re.IGNORECASE)
    found = [
        f"{name_of(path)}:{line}"
        for path in FILES
        if name_of(path).startswith("engine/")
        for line, text in enumerate(path.read_text().splitlines(), 1)
        if word.search(text)
    ]
    assert not found


def test_third_party_packages_stay_in_their_rooms() -> None:
    wrong = [
        f"{name_of(path)}:{line}: may not import {module}"
        for path in FILES
        for module, line in imports(path)
        if not name_of(path).startswith(ONLY.get(package_of(module), ""))
        or package_of(module) in ORACLES - ONLY.keys()
    ]
    assert not wrong, "\n".join(wrong)


def test_only_conformance_and_tests_use_onnx_reference() -> None:
    """`onnx.reference` is slow, imports 239 modules, and would compare ONNX's tests with itself."""
    found = {
        name_of(path)
        for path in FILES
        for module, _ in imports(path)
        if module.startswith("onnx.reference") and not name_of(path).startswith("conformance/")
    }
    assert not found


def test_function_bodies_of_operators_are_built_as_ir() -> None:
    """Definitions by protobuf would be built and parsed for every node."""
    found = {
        name_of(path)
        for path in FILES
        for module, _ in imports(path)
        if name_of(path).startswith("operators/microsoft/") and package_of(module) == "onnx"
    }
    assert not found


def package_of(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize(
    "names, place",
    [
        ("type", "dialects/value_types.py"),
        (
            "operands|operand_uses|next_op|prev_op|first_op|last_op",
            "dialects/unchecked.py",
        ),
    ],
)
def test_private_names_of_xdsl_are_changed_in_one_place(names: str, place: str) -> None:
    """Releases of xDSL may rename private names: `make xdsl` then fails at one line."""
    private = re.compile(rf"\b(?!self\.)\w+\._({names}) = ")
    assert {name_of(path) for path in FILES if private.search(path.read_text())} == {place}


def test_kernels_are_built_in_one_place() -> None:
    """Memory, padding, chunks and aliasing operands are handled once for all emitters."""
    made = re.compile(r"\b(kernel_arguments|ParallelLoops)\(")
    found = {
        name_of(path)
        for path in (PACKAGE / "passes").rglob("*.py")
        if made.search(path.read_text())
    }
    assert found == {f"passes/structured/to_loops/{name}.py" for name in ("__init__", "emitters")}


def test_support_does_not_import_xdsl() -> None:
    """Cached programs run on `support` alone, and so start without xDSL."""
    found = [
        f"{name_of(path)}:{line}"
        for path in FILES
        if name_of(path).startswith("support/")
        for module, line in imports(path)
        if module.split(".")[0] == "xdsl"
    ]
    assert not found


def test_only_the_registry_names_the_c_backend() -> None:
    """All other modules use the interface, so that another backend can replace C."""
    named = re.compile(r"popgraph\.backends\.c\b|backends/c/")
    found = {name_of(path) for path in FILES if named.search(path.read_text())}
    outside = {name for name in found if not name.startswith("backends/c/")}
    assert outside == {"backends/registry.py"}


def test_oracles_are_imported_by_name_in_two_modules() -> None:
    """Only `popgraph bench --against` and the writer of PyTorch modules import oracles by name."""
    wanted = re.compile(rf'import_module\("({"|".join(sorted(ORACLES))})')
    assert {name_of(path) for path in FILES if wanted.search(path.read_text())} == {
        "popart/pytorch.py",
        "measure/peers.py",
    }


def test_imports_inside_functions_are_lazy_on_purpose() -> None:
    lazy = ("__main__.py", "cli/", "universe.py", "compat/", "backends/c/backend.py")
    lazy += ("dialects/registry.py", "passes/loops/prefetch_panels.py")
    lazy += ("passes/loops/unroll_loops.py", "passes/loops/vectorize_loops.py")
    lazy += ("passes/loops/interchange_loops.py", "passes/loops/split_loops.py")
    lazy += ("passes/structured/to_loops/emitters.py",)
    lazy += ("passes/structured/to_loops/emit/writer.py",)
    found = []
    for path in FILES:
        if name_of(path).endswith("__init__.py") or name_of(path).startswith(lazy):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [
                    f"{name_of(path)}:{inner.lineno}"
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Import | ast.ImportFrom)
                ]
    assert not found, f"imports inside functions: {found}"


def test_every_module_has_a_docstring() -> None:
    """Module docstrings are sentences, not questions, so that `grep` finds the field's noun."""
    said = {name_of(path): ast.get_docstring(tree(path)) or "" for path in FILES}
    silent = [name for name, text in said.items() if not text]
    assert not silent, f"no docstring: {silent}"
    assert not any("TODO" in text for text in said.values())
    asking = [name for name, text in said.items() if "?" in text.split("\n\n")[0]]
    assert not asking, f"a question: {asking}"


NUMBERS = {
    "operators/record.py:IN_BYTES": "a value of an attribute",
    "changes.py:CONTEXT": "lines of a diff",
    "changes.py:MOST_ENTRIES": "the length of a text",
    "changes.py:SHOWN_DIGITS": "the length of a text",
    "changes.py:SHOWN_ENTRIES": "the length of a text",
    "graphcore/canonicalize/scaling.py:MODERATE": "a share of the exponents of an f32",
    "graphcore/canonicalize/quantized.py:GREATEST": "a share of the exponents of an f32",
    "graphcore/canonicalize/quantized.py:SMALLEST": "a share of the exponents of an f32",
    "graphcore/canonicalize/powers.py:MOST_SEEN": "ends a search, whatever the machine",
    "graphcore/canonicalize/rewriting.py:REWRITES": "ends a loop of rules that undo each other",
    "graphcore/canonicalize/rewriting.py:ALWAYS": "the same for small graphs",
    "graphcore/canonicalize/shuffles.py:CHANNELS": "the number of an axis",
    "graphcore/check_indices.py:JOINED": "a few vectors of every machine, whatever its width",
    "graphcore/training/loss_scale.py:_LIMIT": "the exponents of an f32",
    "graphcore/training/loss_scale.py:_LIMITS": "those of a half",
    "graphcore/fold_depth.py:WINDOW": "that of Winograd's transforms",
    "graphcore/contract_in_floats.py:EXACT": "the digits of an f32",
    "graphcore/contract_in_floats.py:MOST_PARTS": "ends a search; sums so long are rare",
    "graphcore/contract_in_floats.py:STRIP": "whole vectors of every machine, whatever its width",
    "graphcore/intervals.py:DEEPEST": "ends a search, whatever the machine",
    "graphcore/to_structured/windows.py:MOST_PLACES": "the values of an i8",
    "structured/schedule/reduction_order.py:LEAST_BLOCK": "decides bits, so all machines have it",
    "structured/to_loops/elementwise/order.py:DIGIT": "the bits of a byte",
    "structured/to_loops/elementwise/order.py:BUCKETS": "the values of a byte",
    "structured/to_loops/elementwise/suppress.py:CHUNK": "how far a loop runs that has no way out",
    "structured/to_loops/elementwise/suppress.py:KEYS": "a few vectors of every machine",
    "structured/to_loops/elementwise/suppress.py:VECTORS": "the same for its inner loop",
    "structured/to_loops/elementwise/top_k.py:VECTORS": "a few vectors of every machine",
    "structured/to_loops/elementwise/top_k.py:GROUPS": "chances, whatever the machine",
    "structured/to_loops/elementwise/top_k.py:LEAST_STEPS": "chances, whatever the machine",
    "structured/to_loops/elementwise/top_k.py:BUCKETS": "the values of a byte",
    "structured/to_loops/kernel_functions.py:NAMED_OPERATIONS": "the words in a kernel's name",
    "operators/regular_expressions.py:MOST_GROUPS": "a bound of RE2's",
    "operators/regular_expressions.py:MOST_INSTRUCTIONS": "a bound of RE2's",
    "operators/regular_expressions.py:MOST_REMEMBERED": "the memory of a matcher",
    "operators/regular_expressions.py:MOST_REPETITIONS": "a bound of RE2's",
    "operators/data_sizes.py:MOST_NUMBERS": "the rank of a tensor, and some",
    "graphcore/to_onnx/__init__.py:OPSET": "a version of ONNX",
    "graphcore/to_onnx/__init__.py:BITCAST_OPSET": "a version of ONNX",
    "graphcore/to_onnx/__init__.py:NARROW_OPSETS": "versions of ONNX",
    "graphcore/to_onnx/movement.py:WORD": "the values of a word of threefry",
    "graphcore/training/autodiff.py:MOST_NAMES": "the length of a message",
    "onnx/evaluate_constants.py:MOST_ELEMENTS": "the size of a text, whatever the machine",
    "operators/complaints.py:MOST": "the range of a type",
    "operators/control.py:MOST_OUTPUTS": "how long somebody waits for a program",
    "operators/context.py:ITERATION_STEPS": "numbers of random states",
    "operators/losses.py:IMPOSSIBLE": "a logarithm of nothing, in every type",
    "operators/einsum.py:MOST_ORDERS": "ends a search, whatever the machine",
    "operators/grids.py:CUBIC_A": "the operator's definition",
    "operators/movement.py:MOST_PIECES": "one more than reflected edges leave",
    "operators/pooling.py:LEAST": "the operators' definitions",
    "operators/regions.py:CANDIDATES": "follows from the operator's definition",
    "operators/resizing.py:MOST_TAPS": "the length of unrolled code",
    "operators/splines.py:COEFFICIENTS": "the operator's definition",
    "operators/selections.py:MOST_COLUMNS": "the length of unrolled code",
    "operators/optimizer_steps.py:GROUPS": "the operators' definitions",
    "operators/ml/scores.py:NEARLY_ZERO": "the operator's definition",
    "operators/ml/scores.py:WINITZKI": "the operator's definition",
    "operators/ml/support_vectors.py:LEAST_SHARE": "libsvm's algorithm",
    "operators/ml/support_vectors.py:SWEEPS": "libsvm's algorithm",
    "operators/ml/support_vectors.py:TOLERANCE": "libsvm's algorithm",
    "operators/compared_strings.py:FACTORS": "odd numbers of a hash",
    "operators/term_counts.py:LARGEST": "the range of a type",
    "program/pack_intervals.py:PATIENCE": "ends a search, whatever the machine",
    "program/storage.py:BEFORE": "a time before the program",
    "structured/schedule/overrides.py:MOST_NAMED": "lines of an error message",
    "validation/validate.py:EACH": "ends a proof that would take long",
    "reproducer.py:MOST_OPERATIONS": "how long somebody waits for an error",
    "structured/schedule/schedule_contractions.py:SHOWN": "lines of an error message",
    "structured/schedule/schedule_text.py:ALIKE": "lines of a listing",
    "graphcore/canonicalize/lookups.py:DEPTH": "ends a search that would take long",
    "graphcore/round_cheaply.py:_GREATEST": "a share of the exponents of an f32",
    "graphcore/round_cheaply.py:_MOST": "ends a proof that would take long",
    "graphcore/round_cheaply.py:_NEIGHBOURS": "more floats than an error in the last place",
    "graphcore/round_cheaply.py:_SMALLEST": "a share of the exponents of an f32",
}
"""Numbers of passes that are neither facts of a processor nor thresholds, with their meaning."""


def numbers(path: Path) -> Iterator[str]:
    """The upper-case names of a module that are assigned numbers, or expressions of numbers."""
    for node in tree(path).body:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in names:
            if isinstance(name, ast.Name) and name.id.lstrip("_").isupper() and is_number(value):
                yield name.id


def is_number(value: ast.expr | None) -> bool:
    """Whether an expression is a number, arithmetic of numbers, or a table of numbers."""
    match value:
        case ast.Constant():
            return type(value.value) in (int, float)
        case ast.BinOp():
            return is_number(value.left) or is_number(value.right)
        case ast.UnaryOp():
            return is_number(value.operand)
        case ast.Tuple() | ast.List():
            return bool(value.elts) and all(map(is_number, value.elts))
        case ast.Dict():
            return bool(value.values) and all(map(is_number, value.values))
    return False


def test_numbers_of_passes_are_in_machine_and_tuning() -> None:
    """Facts of processors are in `Machine`, thresholds in `Tuning`."""
    found = {
        f"{name_of(path).removeprefix('passes/')}:{name}"
        for path in FILES
        if name_of(path).startswith(("passes/", "operators/"))
        if not name_of(path).startswith("operators/microsoft/")
        for name in numbers(path)
    }
    assert found - {"structured/to_loops/emit/vectors.py:STRIDES"} == set(NUMBERS)


def test_no_test_of_passes_patches_a_number() -> None:
    """Tests pass `Tuning(...)` or `Machine(...)` with small numbers instead."""
    patched = re.compile(r'setattr\(\s*[\w.]+,\s*"_?[A-Z][A-Z0-9_]*"')
    folder = PACKAGE.parent / "tests" / "passes"
    found = [path.name for path in folder.glob("*.py") if patched.search(path.read_text())]
    assert not found


def test_no_module_is_named_utils_or_helpers() -> None:
    forbidden = {"utils", "util", "common", "helpers", "helper", "misc"}
    found = [name_of(path) for path in FILES if forbidden & set(path.with_suffix("").parts)]
    assert not found
