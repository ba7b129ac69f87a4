"""Train a small CNN by the on-device API of onnxruntime-training: artifacts first, then steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, load_model_from_string

import popgraph
from popgraph import ort as onnxruntime

# onnxruntime-training: `from onnxruntime.training import artifacts`, and so on.
from popgraph.compat.ort_training import artifacts, onnxblock
from popgraph.compat.ort_training.api import (
    CheckpointState,
    LinearLRScheduler,
    Module,
    Optimizer,
)

FOLDER = Path("on_device")
EPOCHS, BATCH, MICRO_BATCH = 10, 32, 16
STEPS = EPOCHS * 384 // BATCH


def strokes(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of a stroke, 8 x 8: horizontal, vertical or one of two diagonals."""
    labels = rng.integers(0, 4, count)
    images = rng.normal(0, 0.2, (count, 1, 8, 8))
    for image, label in zip(images[:, 0], labels, strict=True):
        at = rng.integers(0, 8)
        line = np.arange(8)
        rows = [np.full(8, at), line, line, line][label]
        columns = [line, np.full(8, at), (line + at) % 8, (at - line) % 8][label]
        image[rows, columns] += 1
    return images.astype(np.float32), labels


def network(rng: np.random.Generator) -> ModelProto:
    """A convolution and a dense layer, with a symbolic batch size."""
    builder = popgraph.Builder()
    onnx = builder.aiOnnx

    def weight(name: str, *shape: int) -> str:
        values = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        return builder.addInitializedInputTensor(values.astype(np.float32), name)

    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [BATCH, 1, 8, 8]), "image")
    x = onnx.relu([onnx.conv([x, weight("conv.weight", 12, 1, 3, 3)], pads=[1, 1, 1, 1])])
    (x,) = onnx.maxpool([x], 1, kernel_shape=[2, 2], strides=[2, 2])
    x = onnx.gemm([onnx.flatten([x]), weight("dense.weight", 4, 192)], transB=1)
    builder.addOutputTensor(x)
    model = load_model_from_string(builder.getModelProto())
    for one in (model.graph.input[0], model.graph.output[0]):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def prepare(model: ModelProto) -> str:
    """Writes the artifacts, with gradients clipped; returns the name of the logits."""
    FOLDER.mkdir(exist_ok=True)
    logits: str = model.graph.output[0].name
    artifacts.generate_artifacts(
        model,
        requires_grad=[one.name for one in model.graph.initializer],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=onnxblock.optim.AdamW(
            weight_decay=0.01, clip_grad=onnxblock.optim.ClipGradNorm(1.0)
        ),
        artifact_directory=FOLDER,
        additional_output_names=[logits],
    )
    return logits


def load(checkpoint: Path) -> tuple[CheckpointState, Module, Optimizer, LinearLRScheduler]:
    """The training that a checkpoint holds."""
    state = CheckpointState.load_checkpoint(checkpoint)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    module = Module(
        FOLDER / "training_model.onnx", state, FOLDER / "eval_model.onnx", session_options=options
    )
    optimizer = Optimizer(FOLDER / "optimizer_model.onnx", module)
    return state, module, optimizer, LinearLRScheduler(optimizer, 10, STEPS, 0.03)


def accuracy(module: Module, images: np.ndarray, labels: np.ndarray) -> float:
    """The accuracy of the eval model."""
    _, logits = module.eval()(images, labels)
    module.train()
    return float((logits.argmax(1) == labels).mean())


def main() -> None:
    """Prepares, trains, resumes from a checkpoint, exports and checks the exported model."""
    rng = np.random.default_rng(0)
    (images, labels), test = strokes(384, rng), strokes(128, rng)
    logits = prepare(network(rng))
    state, module, optimizer, scheduler = load(FOLDER / "checkpoint")
    before = accuracy(module, *test)
    for epoch in range(EPOCHS):
        order, losses = rng.permutation(len(images)), []
        for start in range(0, len(order), MICRO_BATCH):
            rows = order[start : start + MICRO_BATCH]
            loss, _ = module(images[rows], labels[rows])
            losses.append(float(loss))
            if (start + MICRO_BATCH) % BATCH == 0:  # Gradients add up until they are reset.
                optimizer.step()
                scheduler.step()
                module.lazy_reset_grad()
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")
        if epoch == EPOCHS // 2:  # As if the device were switched off here.
            state.properties["epoch"] = epoch + 1
            CheckpointState.save_checkpoint(state, FOLDER / "half", include_optimizer_state=True)
            state, module, optimizer, scheduler = load(FOLDER / "half")
    after = accuracy(module, *test)
    print(f"accuracy: {before:.0%} before, {after:.0%} after")

    module.export_model_for_inferencing(FOLDER / "inference.onnx", [logits])
    session = onnxruntime.InferenceSession(FOLDER / "inference.onnx")
    (found,) = session.run([logits], {"image": test[0]})
    assert (found.argmax(1) == test[1]).mean() == after


if __name__ == "__main__":
    main()
