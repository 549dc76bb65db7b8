"""Pictures of a run, for people who would rather look than read.

Axes: B images, H image height, W image width, C channels, L layers, T tokens, N patches.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def learning_curves(history, path):
    """Draws loss, accuracy and learning rate over the epochs.

    Args:
        history: {name: [value of each epoch]} with "epoch", "loss", "accuracy", "val_loss",
            "val_accuracy" and "learning_rate".
        path: of the PNG to write.
    """
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    loss, accuracy, rate = figure.subplots(1, 3)
    epochs = np.asarray(history["epoch"]) + 1
    for axes, name in ((loss, "loss"), (accuracy, "accuracy")):
        axes.plot(epochs, history[name], label="training (augmented)")
        axes.plot(epochs, history[f"val_{name}"], label="test")
        axes.set(title=name, xlabel="epoch")
        axes.legend()
    accuracy.set_title(f"accuracy (test, last epoch: {history['val_accuracy'][-1]:.2%})")
    rate.plot(epochs, history["learning_rate"])
    rate.set(title="learning rate at the end of the epoch", xlabel="epoch")
    for axes in (loss, accuracy, rate):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(path, dpi=120)


def confusion_matrix(counts, class_names, path):
    """Draws how often each class was taken for each other one.

    Args:
        counts: int [classes, classes]; rows are the true classes.
        class_names: names of the classes.
        path: of the PNG to write.
    """
    classes = len(class_names)
    side = min(30.0, 2.5 + 0.55 * classes)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    axes.set_xticks(range(classes), class_names, rotation=45, ha="right")
    axes.set_yticks(range(classes), class_names)
    axes.set(xlabel="predicted", ylabel="true", title="Confusion matrix (test images)")
    if classes <= 30:
        for row, column in np.argwhere(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            count = counts[row, column]
            axes.text(column, row, count, ha="center", va="center", color=colour, fontsize=8)
    figure.savefig(path, dpi=120)


def attention(pixels, shares, answers, class_names, path):
    """Draws images beside where the model looked in them.

    Args:
        pixels: uint8 [B, H, W, C].
        shares: [B, rows, columns], the attention to each patch; see `attention_rollout`.
        answers: the (class name, probability) that each was taken for.
        class_names: what each really shows.
        path: of the PNG to write.
    """
    figure = Figure(figsize=(1.7 * len(pixels), 4.3), layout="constrained")
    grid = figure.subplots(2, len(pixels), squeeze=False)
    look = {"cmap": "gray", "vmin": 0, "vmax": 255}
    look["extent"] = (0, pixels.shape[2], pixels.shape[1], 0)
    for image, share, (name, probability), truth, (above, below) in zip(
        pixels, shares, answers, class_names, grid.T
    ):
        picture = image[..., 0] if image.shape[-1] == 1 else image
        above.imshow(picture, **look)
        right = name == truth
        above.set_title(
            f"{name} {probability:.0%}" + ("" if right else f"\ntruly {truth}"),
            fontsize=9,
            color="black" if right else "firebrick",
        )
        below.imshow(picture, **look)
        below.imshow(
            share, cmap="inferno", extent=look["extent"], alpha=0.65, interpolation="bilinear"
        )
        for axes in (above, below):
            axes.set_axis_off()
    figure.suptitle("Attention from the output to the patches, through all layers (rollout)")
    figure.savefig(path, dpi=120)


def attention_rollout(maps, grid, has_class_token):
    """How much of each patch reaches the output, attention being followed through all layers.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.

    Args:
        maps: [B, L, heads, T, T], from `zoo.models.ViT.attention_maps`.
        grid: (rows, columns) of the patches.
        has_class_token: whether the first token is the one the head reads; else it reads the mean.

    Returns:
        [B, rows, columns].
    """
    layers = np.asarray(maps, np.float32).mean(axis=2)
    layers = 0.5 * layers + 0.5 * np.eye(layers.shape[-1], dtype=np.float32)
    flow = layers[:, 0]
    for layer in range(1, layers.shape[1]):
        flow = layers[:, layer] @ flow
    first = 1 if has_class_token else 0
    patches = slice(first, first + grid[0] * grid[1])
    reaching = flow[:, 0, patches] if has_class_token else flow[:, patches, patches].mean(axis=1)
    return reaching.reshape(-1, *grid)
