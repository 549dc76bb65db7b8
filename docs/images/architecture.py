"""Draws docs/images/architecture.png: ``python docs/images/architecture.py``."""

import pathlib

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FILE = pathlib.Path(__file__).with_suffix(".png")
ROOMS = {  # (left, bottom, width) and what is in it
    "kernels": (10.2, 0.0, 2.8, "parts of layers in less time,\nwith a switch"),
    "layers": (1.8, 0.0, 8.0, "attention, blocks, positions, masks:\nthe equations of the papers"),
    "models": (1.8, 1.7, 5.0, "Vision Transformer, Transformer,\nlanguage model, text classifier"),
    "decoding": (7.6, 1.7, 2.2, "greedy, beam search,\nsampling"),
    "text": (10.2, 1.7, 2.8, "tokenizers"),
    "data": (1.8, 3.4, 2.4, "pipelines of images,\npairs and texts"),
    "tasks": (5.4, 3.4, 4.4, "a model with its tokenizers\nor preprocessing"),
    "training": (1.8, 5.1, 2.4, "step, run,\nexact checkpoints"),
    "checkpoints": (4.9, 5.1, 2.2, "published weights:\nrename tables"),
    "loading": (7.6, 5.1, 2.2, "zoo.load,\nengines"),
    "deploy": (10.2, 5.1, 2.8, "zoo.export:\nSavedModel, ONNX, ..."),
    "server": (10.2, 7.1, 2.8, "any SavedModel,\nREST and gRPC"),
    "command line, recipes": (1.8, 7.1, 8.0, "python -m zoo, python recipes/NAME.py"),
}
SENTENCE, BATCH, CHECKPOINT = "tab:blue", "tab:orange", "tab:green"
ARROWS = [  # color, number, start, end
    (SENTENCE, 1, (11.0, 4.1), (9.8, 4.1)),
    (SENTENCE, 2, (9.5, 3.4), (10.5, 2.7)),
    (SENTENCE, 3, (6.2, 3.4), (6.2, 2.7)),
    (SENTENCE, 4, (8.4, 3.4), (8.4, 2.7)),
    (SENTENCE, 5, (7.6, 2.2), (6.8, 2.2)),
    (SENTENCE, 6, (9.8, 3.7), (11.0, 3.7)),
    (BATCH, 1, (0.9, 3.9), (1.8, 3.9)),
    (BATCH, 2, (2.6, 4.4), (2.6, 5.1)),
    (BATCH, 3, (4.2, 5.3), (4.8, 2.7)),
    (BATCH, 4, (1.8, 5.6), (0.9, 5.6)),
    (CHECKPOINT, 1, (5.5, 6.95), (5.5, 6.1)),
    (CHECKPOINT, 2, (7.1, 5.6), (7.6, 5.6)),
    (CHECKPOINT, 3, (8.4, 5.1), (8.4, 4.4)),
    (CHECKPOINT, 4, (9.8, 4.4), (10.6, 5.1)),
    (CHECKPOINT, 5, (11.6, 6.1), (11.6, 7.1)),
]
OUTSIDE = [  # x, y, text: what enters and leaves
    (0.45, 3.9, "files"),
    (0.45, 5.6, "run\nfolder"),
    (12.0, 3.9, "sentence,\ntranslation"),
    (6.2, 6.6, "weights"),
]


def main(file=FILE):
    figure = Figure((11, 7.1), layout="constrained")
    axes = figure.subplots()
    for name, (left, bottom, width, text) in ROOMS.items():
        box = FancyBboxPatch((left, bottom), width, 1.0, "round,pad=0", fc="#f2f4f7", ec="#667788")
        axes.add_patch(box)
        axes.text(left + width / 2, bottom + 0.76, name, ha="center", va="center", weight="bold")
        axes.text(left + width / 2, bottom + 0.34, text, ha="center", va="center", fontsize=8)
    for color, number, start, end in ARROWS:
        arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=color, lw=2)
        axes.add_patch(arrow)
        middle = [(a + b) / 2 for a, b in zip(start, end)]
        circle = {"boxstyle": "circle,pad=0.2", "fc": color, "ec": "white"}
        axes.text(*middle, number, ha="center", va="center", size=8, color="white", bbox=circle)
    for x, y, text in OUTSIDE:
        axes.text(x, y, text, ha="center", va="center", fontsize=9, style="italic")
    words = {"a sentence": SENTENCE, "a batch": BATCH, "a checkpoint": CHECKPOINT}
    for y, (text, color) in zip((1.0, 0.6, 0.2), words.items()):
        axes.text(0.2, y, text, color=color, fontsize=10, weight="bold")
    axes.set(xlim=(0, 13.1), ylim=(-0.1, 8.2), aspect="equal")
    axes.axis("off")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
