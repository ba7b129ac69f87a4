"""Tests `autodiff` against PyTorch, and its names and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, NameLoc, NoneAttr, StringAttr, TensorType
from xdsl.ir import SSAValue

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.locations import origin
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, VariableOp
from popgraph.passes.analysis.notes import GRADIENT, notes
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.graphcore.training.reverse_mode import ReverseMode
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError, PassError
from tests.checking import check_ir

Values = dict[str, SSAValue]
GENERATOR = np.random.default_rng(3)


def random(*shape: int) -> Array:
    return GENERATOR.normal(size=shape)


class Program:
    """A graph of inputs, variables and outputs, with the arrays to run it on."""

    def __init__(
        self,
        inputs: Mapping[str, Array],
        variables: Mapping[str, Array],
        build: Callable[[Values], Mapping[str, Operand]],
    ) -> None:
        self.inputs = inputs
        self.compilation = Compilation()
        types = [
            TensorType(element_types.to_ir(dtypes.from_numpy(a.dtype)), a.shape)
            for a in inputs.values()
        ]
        graph = GraphOp("main", list(inputs), types)
        values = dict(graph.inputs)
        with ImplicitBuilder(graph.block):
            for name, array in variables.items():
                values[name] = VariableOp(name, self.compilation.weights.attribute(array)).result
            outputs = build(values)
            ReturnOp([SSAValue.get(value) for value in outputs.values()], list(outputs))
        self.graph = graph
        self.module = ModuleOp([graph])

    def differentiated(self, made: Autodiff) -> dict[str, Array]:
        made.run(self.compilation, self.module)
        check_ir(self.module)
        return evaluate(self.module, self.inputs, self.compilation.weights)[0]


def sum_all(value: Operand) -> Operand:
    rank = len(SSAValue.get(value).type.get_shape())  # type: ignore[attr-defined]
    return gc.ReduceSumOp(value, axes=range(rank), keepdims=False)


X, W, B, V = random(5, 4), random(4, 3), random(3), random(3, 4)


def perceptron(values: Values) -> dict[str, Operand]:
    """`w` is used twice, `b` is broadcast, and the loss does not depend on `unused`."""
    hidden = gc.TanhOp(gc.AddOp(gc.MatMulOp(values["x"], values["w"]), values["b"]))
    again = gc.MatMulOp(gc.MatMulOp(hidden, values["v"]), values["w"])
    loss = sum_all(gc.MulOp(again, again))
    return {"loss": loss, "hidden": hidden, "other": gc.NegOp(values["unused"])}


def perceptron_program() -> Program:
    return Program({"x": X}, {"w": W, "b": B, "v": V, "unused": B}, perceptron)


def torch_gradients() -> dict[str, Array]:
    x, w, b, v = (torch.tensor(array, requires_grad=True) for array in (X, W, B, V))
    hidden = torch.tanh(x @ w + b)
    hidden.retain_grad()
    ((hidden @ v @ w) ** 2).sum().backward()  # type: ignore[no-untyped-call]
    leaves = {"x": x, "w": w, "b": b, "v": v, "hidden": hidden}
    return {name: leaf.grad.numpy() for name, leaf in leaves.items() if leaf.grad is not None}


def test_every_variable_of_the_loss_has_a_gradient() -> None:
    outputs = perceptron_program().differentiated(Autodiff("loss"))
    assert set(outputs) == {
        "loss", "hidden", "other", "Gradient___w", "Gradient___b", "Gradient___v",
    }  # fmt: skip
    expected = torch_gradients()
    for name in "wbv":
        np.testing.assert_allclose(outputs[f"Gradient___{name}"], expected[name], rtol=1e-12)


def test_gradients_of_inputs_and_inner_tensors_on_request() -> None:
    made = Autodiff("loss", wrt=("w",), gradients=("x", "hidden", "loss"), loss_scale=4.0)
    outputs = perceptron_program().differentiated(made)
    expected = torch_gradients()
    assert "Gradient___b" not in outputs
    assert outputs["Gradient___loss"] == 4.0
    for name in ("w", "x", "hidden"):
        np.testing.assert_allclose(outputs[f"Gradient___{name}"], 4 * expected[name], rtol=1e-12)


def test_the_loss_scale_may_be_a_variable() -> None:
    program = perceptron_program()
    made = Autodiff("loss", loss_scale=2.0, stream_loss_scale=True)
    outputs = program.differentiated(made)
    expected = torch_gradients()
    np.testing.assert_allclose(outputs["Gradient___w"], 2 * expected["w"], rtol=1e-12)
    state = {"w": W, "b": B, "v": V, "unused": B, "lossScaling_DOUBLE": np.array(16.0)}
    changed, _ = evaluate(program.module, program.inputs, program.compilation.weights, state)
    np.testing.assert_allclose(changed["Gradient___w"], 16 * expected["w"], rtol=1e-12)


def test_a_loss_of_shape_1() -> None:
    program = Program(
        {"x": X}, {"w": W}, lambda v: {"loss": gc.ReshapeOp(
            sum_all(gc.MatMulOp(v["x"], v["w"])), shape=(1, 1))},
    )  # fmt: skip
    outputs = program.differentiated(Autodiff("loss", loss_scale=3.0, stream_loss_scale=True))
    expected = np.broadcast_to(3 * X.sum(0)[:, None], W.shape)
    np.testing.assert_allclose(outputs["Gradient___w"], expected, rtol=1e-12)


def test_unneeded_gradients_are_not_computed() -> None:
    """The input of the first layer needs no gradient, so its matmul is not emitted."""
    program = perceptron_program()
    program.differentiated(Autodiff("loss", wrt=("w",)))
    products = [op for op in program.graph.block.ops if isinstance(op, gc.MatMulOp)]
    assert len(products) == 3 + 4


def test_no_gradient_flows_through_detach_or_integers() -> None:
    def build(values: Values) -> dict[str, Operand]:
        i32 = element_types.BY_NAME["i32"]
        whole = gc.CastOp(gc.CastOp(values["b"], to=i32), to=element_types.BY_NAME["f64"])
        left = gc.MulOp(gc.DetachOp(values["w"]), values["w"])
        return {"loss": sum_all(gc.AddOp(left, whole))}

    outputs = Program({}, {"w": W, "b": B}, build).differentiated(Autodiff("loss"))
    assert set(outputs) == {"loss", "Gradient___w"}
    np.testing.assert_allclose(outputs["Gradient___w"], W)


def test_composites_without_a_gradient_are_expanded() -> None:
    """GELU has no gradient of its own, neither as the last operation nor further up."""
    for approximate in (False, True):

        def build(values: Values, approximate: bool = approximate) -> dict[str, Operand]:
            first = gc.GeluOp(values["w"], approximate=approximate)
            loss = gc.IdentityLossOp(gc.GeluOp(first, approximate=approximate), reduction="sum")
            return {"loss": loss, "first": first}

        program = Program({}, {"w": W}, build)
        outputs = program.differentiated(Autodiff("loss", gradients=("first",)))
        w = torch.tensor(W, requires_grad=True)
        mode = "tanh" if approximate else "none"
        first = torch.nn.functional.gelu(w, approximate=mode)
        first.retain_grad()
        torch.nn.functional.gelu(first, approximate=mode).sum().backward()  # type: ignore[no-untyped-call]
        assert w.grad is not None and first.grad is not None
        np.testing.assert_allclose(outputs["Gradient___w"], w.grad.numpy(), rtol=1e-9)
        np.testing.assert_allclose(outputs["Gradient___first"], first.grad.numpy(), rtol=1e-9)


def test_gradients_of_a_convolutional_network() -> None:
    image, kernel, dense = random(2, 3, 6, 6), random(4, 3, 3, 3), random(36, 5) / 20
    labels = np.array([1, 4], np.int64)

    def build(values: Values) -> dict[str, Operand]:
        options = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1}
        hidden = gc.ReluOp(gc.ConvOp(values["x"], values["k"], **options))
        window = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1), "pads": (0,) * 4}
        pooled = gc.MaxPoolOp(hidden, **window, sizes=(3, 3))
        logits = gc.MatMulOp(gc.ReshapeOp(pooled, shape=(2, 36)), values["d"])
        probabilities = gc.SoftmaxOp(logits, axis=1)
        loss = gc.NllLossOp(
            probabilities, values["labels"], reduction="mean", log_probabilities=False
        )
        return {"loss": loss}

    program = Program({"x": image, "labels": labels}, {"k": kernel, "d": dense}, build)
    outputs = program.differentiated(Autodiff("loss"))
    x, k, d = (torch.tensor(array, requires_grad=True) for array in (image, kernel, dense))
    hidden = torch.nn.functional.max_pool2d(torch.relu(torch.conv2d(x, k, padding=1)), 2)
    loss = torch.nn.functional.cross_entropy(hidden.reshape(2, 36) @ d, torch.tensor(labels))
    loss.backward()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(outputs["loss"], loss.item(), rtol=1e-9)
    for name, leaf in (("k", k), ("d", d)):
        assert leaf.grad is not None
        np.testing.assert_allclose(outputs[f"Gradient___{name}"], leaf.grad.numpy(), rtol=1e-8)


def test_operations_without_gradient_are_named_with_their_location() -> None:
    def build(values: Values) -> dict[str, Operand]:
        half, other = (element_types.BY_NAME[name] for name in ("f16", "bf16"))
        same_bits = gc.BitcastOp(gc.CastOp(values["w"], to=half), to=other)
        same_bits.location = NameLoc(StringAttr("bits 1"), NoneAttr())
        return {"loss": sum_all(gc.CastOp(same_bits, to=element_types.BY_NAME["f64"]))}

    program = Program({}, {"w": random(1, 1, 3)}, build)
    with pytest.raises(DifferentiationError, match="bitcast has no gradient") as caught:
        program.differentiated(Autodiff("loss"))
    assert "node 'bits 1'" in str(caught.value)


def test_wrong_options_of_autodiff_are_refused() -> None:
    with pytest.raises(PassError, match="'lose' is not an output"):
        perceptron_program().differentiated(Autodiff("lose"))
    with pytest.raises(DifferentiationError, match="'hidden' must be one float, not f64 of shape"):
        perceptron_program().differentiated(Autodiff("hidden"))
    with pytest.raises(PassError, match="no tensor 'nobody'"):
        perceptron_program().differentiated(Autodiff("loss", gradients=("nobody",)))
    with pytest.raises(DifferentiationError, match="no gradient with respect to 'unused'"):
        perceptron_program().differentiated(Autodiff("loss", gradients=("unused",)))


def test_gradients_have_the_locations_of_forward_operations() -> None:
    program = perceptron_program()
    for number, op in enumerate(program.graph.block.ops):
        op.location = NameLoc(StringAttr(f"n{number}"), NoneAttr())
    known = {origin(op) for op in program.graph.block.ops}
    forward = set(program.graph.block.ops)
    program.differentiated(Autodiff("loss"))
    products = [op for op in program.graph.block.ops if isinstance(op, gc.MatMulOp)]
    assert len(products) > 3
    for op in products:
        assert origin(op) in known
        assert (GRADIENT in notes(op.location)) == (op not in forward)


def test_a_gradient_that_is_not_accumulated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the comparison can fail: the last of two paths to the loss replaces the first."""

    def forgetful(self: ReverseMode, value: SSAValue, gradient: SSAValue) -> None:
        self.gradients[value] = gradient

    monkeypatch.setattr(ReverseMode, "add", forgetful)
    outputs = perceptron_program().differentiated(Autodiff("loss"))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(outputs["Gradient___w"], torch_gradients()["w"], rtol=1e-6)


def test_constants_have_no_gradient() -> None:
    def build(values: Values) -> dict[str, Operand]:
        one = ConstantOp(Compilation().weights.attribute(np.ones(3)))
        return {"loss": sum_all(gc.MulOp(one, values["b"]))}

    program = Program({}, {"b": B}, build)
    assert set(program.differentiated(Autodiff("loss"))) == {"loss", "Gradient___b"}


@pytest.mark.parametrize("make", [gc.SoftmaxOp, gc.LogSoftmaxOp])
def test_masked_softmax_rows_have_zero_gradients(
    make: type[gc.SoftmaxOp | gc.LogSoftmaxOp],
) -> None:
    """A softmax of nothing but -inf is NaN; a row replaced by 0 must have gradient 0."""

    def build(values: Values) -> dict[str, Operand]:
        zero = gc.SubOp(values["zero"], values["zero"])
        read = gc.WhereOp(values["empty"], zero, make(values["x"], axis=1))
        return {"loss": sum_all(gc.MulOp(read, read))}

    x = np.array([[-np.inf] * 3, [0.0, 2.0, 1.0]])
    inputs = {"x": x, "empty": np.array([[True], [False]]), "zero": np.zeros(())}
    gradient = Program(inputs, {}, build).differentiated(Autodiff("loss", wrt=("x",)))[
        "Gradient___x"
    ]
    np.testing.assert_array_equal(gradient[0], 0)
    assert np.isfinite(gradient).all() and (gradient[1] != 0).all()
