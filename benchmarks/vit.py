"""Compares training steps and inference of the Vision Transformer with other libraries.

    python -m pip install -r benchmarks/requirements.txt
    python benchmarks/vit.py
    python benchmarks/vit.py --only "training, 32 px"

All contenders have the same weights, images and optimizer. ONNX Runtime and OpenVINO run the zoo's
own export, which also normalizes the pixels and returns probabilities instead of logits.

Axes: B images, N patches, E model width, F width of the feed-forward networks, L layers.
"""

import pathlib

import numpy as np
import turns

CLASSES = 10
SMALL = {
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 192,
    "num_heads": 12,
    "num_layers": 9,
    "ff_dim": 384,
}
S16 = {
    "image_size": 224,
    "patch_size": 16,
    "embed_dim": 384,
    "num_heads": 6,
    "num_layers": 12,
    "ff_dim": 1536,
}
STEPS = 10 if turns.GPU else 3  # training steps of a run
OPTIMIZER = {"learning_rate": 1e-4, "weight_decay": 0.05, "epsilon": 1e-8}


def cases():
    """Training steps at one batch size of each model, and inference at two."""
    trained = {"small": 1024, "S/16": 256} if turns.GPU else {"small": 64, "S/16": 16}
    classified = (1, 256) if turns.GPU else (1, 32)
    training = []
    inference = []
    for sizes, batch_size in ((SMALL, trained["small"]), (S16, trained["S/16"])):
        for precision in ("float32", "bfloat16"):
            training.append(case("training", sizes, batch_size, precision))
            inference += [case("inference", sizes, batch, precision) for batch in classified]
    return training + inference


def case(kind, sizes, batch_size, precision):
    is_training = kind == "training"
    contenders = ["zoo", "keras-hub", "timm", "timm, compiled"]
    if not is_training and not turns.GPU:
        if precision == "float32":  # ONNX Runtime does not compute bfloat16 on CPUs
            contenders += ["ONNX Runtime", "zoo, engine onnxruntime, int8"]
        contenders += ["OpenVINO", "zoo, engine openvino"]
    operations, parameters = cost(**sizes)
    # Training: forward, and backward for inputs and weights. Adam reads weights, gradients and two
    # moments and writes as many numbers, in float32.
    factor, numbers = (3 * STEPS, 8 * STEPS) if is_training else (1, 1)
    size = 2 if precision == "bfloat16" and not is_training else 4
    return turns.Case(
        f"{kind}, {sizes['image_size']} px, batch {batch_size}, {precision}",
        {"kind": kind, "sizes": sizes, "batch_size": batch_size, "precision": precision},
        contenders,
        batch_size * (STEPS if is_training else 1),
        "images",
        factor * batch_size * operations,
        numbers * parameters * size,
        precision,
    )


def cost(image_size, patch_size, embed_dim, num_heads, num_layers, ff_dim):
    """(operations of an image, number of parameters) in matrix products.

    The last block computes the class token alone, from keys and values of all tokens.
    """
    patches = (image_size // patch_size) ** 2
    tokens = patches + 1
    first = patch_size**2 * 3 * embed_dim  # weights of the patch embedding
    block = 4 * embed_dim**2 + 2 * embed_dim * ff_dim
    keys = 2 * embed_dim**2  # weights of keys and values
    row = block - keys + 2 * tokens * embed_dim  # of a token, without keys and values
    rows = (num_layers - 1) * tokens + 1
    operations = 2 * (patches * first + num_layers * tokens * keys + rows * row)
    return operations, first + num_layers * block + embed_dim * CLASSES


def zoo_vit(sizes, **settings):
    """The zoo's model, with weights that all matter, drawn from a seed."""
    import keras

    import zoo

    settings = {**sizes, **settings, "num_classes": CLASSES}
    size = settings.pop("image_size")
    keras.utils.set_random_seed(0)
    model = zoo.vit(input_shape=(size, size, 3), **settings)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign_add(random.normal(size=weight.shape, scale=0.02))
    return model


def prepare(folder, all_settings):
    """Writes the weights of each model in the formats of other libraries."""
    import keras

    import zoo
    from zoo.checkpoints.formats.timm import TABLE
    from zoo.checkpoints.mapping import collect, stacked

    for sizes in (settings["sizes"] for settings in all_settings):
        path = pathlib.Path(folder) / str(sizes["image_size"])
        if path.exists():
            continue
        model = zoo_vit(sizes)
        zoo.save_hf(classifier(model, sizes), path / "hugging_face")
        table = {**TABLE, "class_token/tokens": stacked("cls_token")}
        np.savez(path / "timm.npz", **collect(model, table))
        if not turns.GPU:  # which no contender of this format uses
            zoo.export(classifier(model, sizes), path / "onnx", format="onnx")
        keras.backend.clear_session()


def classifier(model, sizes):
    """The model with the preprocessing of `batch`, and numbers as class names."""
    from zoo.data.preprocessing import ImagePreprocessing
    from zoo.tasks.classifier import ImageClassifier

    size = sizes["image_size"]
    half = (0.5, 0.5, 0.5)
    preprocessing = ImagePreprocessing(image_size=(size, size), channels=3, mean=half, std=half)
    return ImageClassifier(model, preprocessing, [str(index) for index in range(CLASSES)])


def batch(sizes, batch_size):
    """(pixels uint8, images [B, H, W, C] from -1 to 1, labels of int64)."""
    random = np.random.default_rng(0)
    size = sizes["image_size"]
    pixels = random.integers(0, 256, (batch_size, size, size, 3), np.uint8)
    images = (pixels / 127.5 - 1).astype("float32")
    return pixels, images, random.integers(0, CLASSES, batch_size)


def in_zoo(folder, sizes, precision, kind, batch_size):
    """Trains as the recipes do."""
    import keras

    from zoo.training.trainer import Trainer

    policy = "mixed_bfloat16" if precision == "bfloat16" else precision
    model = zoo_vit(sizes, dtype=policy)
    if kind == "inference":
        return in_keras(model, sizes, kind, batch_size)
    trainer = Trainer(model)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    trainer.compile(keras.optimizers.AdamW(**OPTIMIZER), loss)
    _, images, labels = batch(sizes, batch_size)
    return training(trainer, (images, labels, np.ones(batch_size, "float32")))


def in_keras_hub(folder, sizes, precision, **settings):
    import keras
    import keras_hub

    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else precision)
    preset = pathlib.Path(folder) / str(sizes["image_size"]) / "hugging_face"
    model = keras_hub.models.ViTImageClassifier.from_preset(str(preset), preprocessor=None)
    return in_keras(model, sizes, **settings)


def in_keras(model, sizes, kind, batch_size):
    import keras

    _, images, labels = batch(sizes, batch_size)
    if kind == "inference":
        images = turns.on_device(images)
        return lambda: softmax(model.predict_on_batch(images))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(**OPTIMIZER), loss)
    return training(model, (images, labels))


def training(model, arrays):
    """A function that trains `model` on one batch: (images, labels), with weights."""
    import tensorflow as tf

    from zoo.data.worker_batches import without_autotuning

    batches = without_autotuning(tf.data.Dataset.from_tensors(arrays).repeat())
    return turns.steps_of_fit(model, batches, STEPS)


def timm_model(folder, sizes):
    import torch
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=sizes["image_size"],
        patch_size=sizes["patch_size"],
        num_classes=CLASSES,
        embed_dim=sizes["embed_dim"],
        depth=sizes["num_layers"],
        num_heads=sizes["num_heads"],
        mlp_ratio=sizes["ff_dim"] / sizes["embed_dim"],
    )
    weights = np.load(pathlib.Path(folder) / str(sizes["image_size"]) / "timm.npz")
    model.load_state_dict({name: torch.tensor(weights[name]) for name in weights})
    return model.to(turns.TORCH_DEVICE)


def in_timm(folder, sizes, precision, kind, batch_size, compiled=False):
    import torch

    model = timm_model(folder, sizes)
    torch.set_float32_matmul_precision("high")  # TensorFloat-32 on GPUs, as TensorFlow
    call = torch.compile(model) if compiled else model
    _, images, labels = batch(sizes, batch_size)
    images = torch.tensor(images.transpose(0, 3, 1, 2).copy(), device=turns.TORCH_DEVICE)
    labels = torch.tensor(labels, device=turns.TORCH_DEVICE)
    cast = torch.autocast(turns.TORCH_DEVICE, torch.bfloat16, enabled=precision == "bfloat16")

    @torch.inference_mode()
    def infer():
        with cast:
            return call(images).float().softmax(-1).cpu().numpy()

    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=OPTIMIZER["learning_rate"],
        eps=OPTIMIZER["epsilon"],
        weight_decay=OPTIMIZER["weight_decay"],
    )

    def train():
        losses = []
        for _ in range(STEPS):
            with cast:
                logits = call(images).float()
                loss = torch.nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses).mean().item()]

    if kind == "inference":
        model.eval()
        return infer
    model.train()
    return train


def in_timm_compiled(folder, **settings):
    return in_timm(folder, compiled=True, **settings)


def in_onnx_runtime(folder, sizes, precision, kind, batch_size):
    import onnxruntime

    path = pathlib.Path(folder) / str(sizes["image_size"]) / "onnx" / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pixels, _, _ = batch(sizes, batch_size)
    return lambda: session.run(["probabilities"], {"pixels": pixels})[0]


def in_onnxruntime_engine(folder, sizes, precision, **settings):
    return in_engine("onnxruntime", "int8", sizes, **settings)


def in_openvino_engine(folder, sizes, precision, **settings):
    return in_engine("openvino", precision, sizes, **settings)


def in_engine(name, dtype, sizes, kind, batch_size):
    """An engine of `zoo.load`, without reading images."""
    from zoo.engines import create_engine

    run = create_engine(classifier(zoo_vit(sizes), sizes), name, dtype)
    _, images, _ = batch(sizes, batch_size)
    return lambda: run(images)


def in_openvino(folder, sizes, precision, kind, batch_size):
    import openvino

    path = pathlib.Path(folder) / str(sizes["image_size"]) / "onnx" / "model.onnx"
    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32",
    }
    pixels, _, _ = batch(sizes, batch_size)
    model = openvino.Core().read_model(path)
    model.reshape({"pixels": pixels.shape})
    compiled = openvino.compile_model(model, "CPU", hints)
    return lambda: compiled({"pixels": pixels})["probabilities"]


def softmax(logits):
    powers = np.exp(np.asarray(logits, "float32"))
    return powers / powers.sum(-1, keepdims=True)


CONTENDERS = {
    "zoo": in_zoo,
    "keras-hub": in_keras_hub,
    "timm": in_timm,
    "timm, compiled": in_timm_compiled,
    "ONNX Runtime": in_onnx_runtime,
    "zoo, engine onnxruntime, int8": in_onnxruntime_engine,
    "OpenVINO": in_openvino,
    "zoo, engine openvino": in_openvino_engine,
}

if __name__ == "__main__":
    turns.run(__file__, cases(), turns.parser(__doc__).parse_args())
