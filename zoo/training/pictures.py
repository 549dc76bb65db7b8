"""Plots of a run, as PNG files: learning curves, confusion matrix and attention maps.

Axes: B images, H image height, W image width, C channels, S source tokens, T target tokens.
"""

import contextlib
import warnings

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import MaxNLocator

# Fonts for scripts that matplotlib's default font lacks, used if they are installed.
_MORE_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "WenQuanYi Zen Hei",
    "Unifont",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Nirmala UI",
    "Leelawadee UI",
    "Arial Unicode MS",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
)
_LONGEST_LABEL = 24  # characters


def learning_curves(history, path):
    """Plots loss, accuracy, learning rate and norms over the epochs of `callbacks.history`."""
    has_norms = "gradient_norm" in history  # runs of earlier versions have none
    columns = 4 if has_norms else 3
    figure = Figure(figsize=(4 * columns, 3.6), layout="constrained")
    panels = figure.subplots(1, columns)
    epochs = np.asarray(history["epoch"]) + 1
    for axes, name in zip(panels, ("loss", "accuracy")):
        _draw_line(axes, epochs, history[name], label="training (with dropout, augmentation)")
        _draw_line(axes, epochs, history[f"val_{name}"], label="validation")
        axes.set(title=name, xlabel="epoch")
        axes.legend()
    known = [value for value in history["val_accuracy"] if np.isfinite(value)]
    last = known[-1] if known else np.nan
    panels[1].set_title(f"accuracy (validation, last: {last:.2%})")
    _draw_line(panels[2], epochs, history["learning_rate"])
    panels[2].set(title="learning rate at the end of the epoch", xlabel="epoch")
    if has_norms:
        for name in ("weight", "gradient", "update"):
            _draw_line(panels[3], epochs, history[f"{name}_norm"], label=f"{name}s")
        panels[3].set(title="norms at the end of the epoch", xlabel="epoch", yscale="log")
        panels[3].legend()
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(path, dpi=120)


def _draw_line(axes, epochs, values, **settings):
    known = np.isfinite(values)  # epochs without validation have no value
    axes.plot(epochs[known], np.asarray(values)[known], marker=".", **settings)


@contextlib.contextmanager
def _any_script():
    """Context that uses all installed fonts; characters that none of them has are boxes."""
    installed = {font.name for font in fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@_any_script()
def confusion_matrix(labels, predicted, class_names, path, items="images"):
    """Plots how often items of each class were classified as each class.

    Args:
        labels, predicted: int [items], the true and the predicted classes.
        class_names: list of str.
        items: what is classified, for the title.
    """
    classes = len(class_names)
    names = _labels(class_names)
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (labels, predicted), 1)
    side = min(30.0, 2.5 + 0.55 * classes)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    axes.set_xticks(range(classes), names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(classes), names, parse_math=False)
    axes.set(xlabel="predicted", ylabel="true", title=f"Confusion matrix (test {items})")
    if classes <= 30:
        for row, column in np.argwhere(counts):
            axes.text(
                column,
                row,
                counts[row, column],
                ha="center",
                va="center",
                color="white" if shares[row, column] > 0.5 else "black",
                fontsize=8,
            )
    figure.savefig(path, dpi=120)


@_any_script()
def attention(pixels, shares, answers, class_names, path):
    """Plots images above their attention maps.

    Args:
        pixels: uint8 [B, H, W, C].
        shares: [B, rows, columns], the attention to each patch; see
            `zoo.models.attention_rollout.attention_rollout`.
        answers: the predicted classes of each image, a list of (class name, probability).
        class_names: the true class names of each image.
    """
    figure = Figure(figsize=(1.7 * len(pixels), 4.3), layout="constrained")
    grid = figure.subplots(2, len(pixels), squeeze=False)
    extent = (0, pixels.shape[2], pixels.shape[1], 0)
    for image, share, answer, truth, column in zip(pixels, shares, answers, class_names, grid.T):
        above, below = column
        picture = image[..., 0] if image.shape[-1] == 1 else image
        for axes in (above, below):
            axes.imshow(picture, cmap="gray", vmin=0, vmax=255, extent=extent)
            axes.set_axis_off()
        title = "\n".join(f"{name} {probability:.0%}" for name, probability in answer)
        color = "black"
        if {name for name, _ in answer} != {*truth}:
            title += f"\ntruly {', '.join(truth) or 'no label'}"
            color = "firebrick"
        above.set_title(title, fontsize=9, color=color, parse_math=False)
        below.imshow(share, cmap="inferno", extent=extent, alpha=0.65, interpolation="bilinear")
    figure.suptitle("Attention from the output to the patches, through all layers (rollout)")
    figure.savefig(path, dpi=120)


@_any_script()
def cross_attention(weights, source_pieces, target_pieces, path):
    """Plots the attention weights of each target token over the source tokens.

    Args:
        weights: float [T, S], one row per target token.
        source_pieces: the S source tokens as text, in any script.
        target_pieces: the T target tokens as text.
    """
    rows, columns = weights.shape
    sources = _labels(source_pieces)
    targets = _labels(target_pieces)
    most = max(rows, columns)
    fontsize = 11 if most <= 20 else 9
    if most <= 8:
        cell = 0.7  # inches
    elif most <= 20:
        cell = 0.42
    else:
        cell = 0.24
    fits = 0.1 * max(map(len, sources), default=0) <= cell  # 0.1 inches per character
    size = (2.6 + cell * max(columns, 6), 1.8 + cell * max(rows, 4))
    figure = Figure(figsize=size, layout="compressed")
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="Blues", vmin=0.0)
    rotation = 0 if fits else 90
    axes.set_xticks(range(columns), sources, rotation=rotation, fontsize=fontsize, parse_math=False)
    axes.set_yticks(range(rows), targets, fontsize=fontsize, parse_math=False)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=2)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="gainsboro", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.set(xlabel="source", ylabel="target")
    axes.xaxis.set_label_position("top")
    figure.colorbar(image, ax=axes, label="attention", aspect=30)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def _labels(pieces):
    """Shortens pieces and replaces characters that are not printable by U+FFFD."""
    labels = []
    for piece in pieces:
        label = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in piece)
        if len(label) > _LONGEST_LABEL:
            label = label[: _LONGEST_LABEL - 1] + "…"
        labels.append(label)
    return labels
