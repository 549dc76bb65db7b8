"""Draws docs/images/architecture.png: ``python docs/images/architecture.py``."""

import pathlib

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FILE = pathlib.Path(__file__).with_suffix(".png")
ROOMS = {  # (left, bottom, width) and what is in it; a package imports only from lower ones
    "kernels": (4.6, 0.0, 5.4, "parts of layers in less time, with a switch"),
    "layers": (4.6, 1.2, 5.4, "attention, blocks, positions, masks: the equations of the papers"),
    "models": (4.6, 2.4, 2.6, "Vision Transformer, Transformer,\nlanguage model, text classifier"),
    "decoding": (7.9, 2.9, 2.1, "greedy, beam search,\nsampling"),
    "text": (10.5, 3.4, 2.5, "tokenizers"),
    "data": (1.6, 3.9, 2.3, "pipelines of images,\npairs and texts"),
    "tasks": (5.4, 4.7, 4.6, "a model with its tokenizers\nor preprocessing"),
    "checkpoints": (4.6, 6.0, 2.3, "published weights:\nrename tables"),
    "deploy": (10.5, 6.5, 2.5, "zoo.export:\nSavedModel, ONNX, ..."),
    "loading, engines": (7.9, 7.0, 2.1, "zoo.load"),
    "training": (1.6, 7.5, 2.3, "run, trainer, step,\nexact checkpoints"),
    "evaluation": (7.9, 8.1, 2.1, "zoo.evaluate"),
    "recipes": (1.6, 9.2, 2.3, "python recipes/NAME.py"),
    "commands": (4.6, 9.2, 5.4, "python -m zoo"),
    "server": (10.5, 8.3, 2.5, "any SavedModel,\nREST and gRPC"),
}
# colors
SENTENCE = "tab:blue"
BATCH = "tab:orange"
CHECKPOINT = "tab:green"
INSIDE = "#8899aa"
# styles of arrows
THERE = "-|>"
BACK = "<|-|>"
ARROWS = [  # color, number, start, end, style: whether something comes back
    (SENTENCE, 1, (11.0, 5.3), (10.0, 5.3), THERE),
    (SENTENCE, 2, (9.8, 4.7), (10.9, 4.3), BACK),
    (SENTENCE, 3, (6.3, 4.7), (6.3, 3.3), BACK),
    (SENTENCE, 4, (8.9, 4.7), (8.9, 3.8), BACK),
    (SENTENCE, 5, (7.9, 3.1), (7.2, 3.1), BACK),
    (SENTENCE, 6, (10.0, 4.9), (11.0, 4.9), THERE),
    (INSIDE, None, (5.9, 2.4), (5.9, 2.1), BACK),
    (INSIDE, None, (7.3, 1.2), (7.3, 0.9), BACK),
    (BATCH, 1, (2.75, 9.2), (2.75, 8.4), THERE),
    (BATCH, 2, (0.8, 4.35), (1.6, 4.35), THERE),
    (BATCH, 3, (2.75, 4.8), (2.75, 7.5), THERE),
    (BATCH, 4, (3.6, 7.5), (4.9, 3.3), BACK),
    (BATCH, 5, (3.9, 8.05), (5.0, 8.3), THERE),
    (CHECKPOINT, 1, (5.75, 7.35), (5.75, 6.9), THERE),
    (CHECKPOINT, 2, (6.5, 8.3), (7.9, 7.7), THERE),
    (CHECKPOINT, 2, (6.9, 6.6), (7.9, 7.2), THERE),
    (CHECKPOINT, 3, (8.9, 7.0), (8.9, 5.6), THERE),
    (CHECKPOINT, 4, (9.8, 5.6), (10.9, 6.5), THERE),
    (CHECKPOINT, 5, (11.75, 7.4), (11.75, 8.3), THERE),
]
OUTSIDE = [  # x, y, text: what enters and leaves
    (0.4, 4.35, "files"),
    (5.75, 8.35, "run folder"),
    (11.75, 5.1, "sentence,\ntranslation"),
    (5.75, 7.55, "published weights"),
]
LEGEND = {
    "a sentence": SENTENCE,
    "a batch": BATCH,
    "a checkpoint": CHECKPOINT,
    "Arrows: where data goes;\ntwo heads: and back.\nImports go down only.": INSIDE,
}


def main(file=FILE):
    figure = Figure((11, 8.6), layout="constrained")
    axes = figure.subplots()
    for name, (left, bottom, width, text) in ROOMS.items():
        box = FancyBboxPatch((left, bottom), width, 0.9, "round,pad=0", fc="#f2f4f7", ec="#667788")
        axes.add_patch(box)
        axes.text(left + width / 2, bottom + 0.68, name, ha="center", va="center", weight="bold")
        axes.text(left + width / 2, bottom + 0.29, text, ha="center", va="center", fontsize=8)
    for color, number, start, end, style in ARROWS:
        arrow = FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=14, color=color, lw=2, shrinkA=0, shrinkB=0
        )
        axes.add_patch(arrow)
        if number is not None:
            middle = [(a + b) / 2 for a, b in zip(start, end)]
            circle = {"boxstyle": "circle,pad=0.2", "fc": color, "ec": "white"}
            axes.text(*middle, number, ha="center", va="center", size=8, color="white", bbox=circle)
    for x, y, text in OUTSIDE:
        axes.text(x, y, text, ha="center", va="center", fontsize=9, style="italic")
    for y, (text, color) in zip((2.2, 1.8, 1.4, 0.9), LEGEND.items()):
        axes.text(0.2, y, text, color=color, fontsize=10, va="top", weight="bold")
    axes.set(xlim=(0, 13.1), ylim=(-0.1, 10.2), aspect="equal")
    axes.axis("off")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
