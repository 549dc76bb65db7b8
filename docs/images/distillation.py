"""Draws docs/images/distillation.png from the reports of students in docs/results.

    python docs/images/distillation.py
"""

import json
import pathlib

from matplotlib.figure import Figure

FILE = pathlib.Path(__file__).with_suffix(".png")
RESULTS = FILE.parents[1] / "results"
COLORS = {"teacher": "tab:gray", "student": "tab:blue", "student in int8": "tab:orange"}


def main():
    metrics = json.loads((RESULTS / "translate_spa_tiny" / "metrics.json").read_text())
    figure = Figure((8, 4), layout="constrained")
    draw_systems(figure.subplots(), metrics["distillation"])
    figure.savefig(FILE, dpi=90)


def draw_systems(axes, systems):
    """Draws the score of each system over its speed; the area of a disk is its size."""
    for name, system in systems.items():
        speed = system["tokens_per_second_batch_1"]
        area = 40 * system["megabytes"]
        axes.scatter(speed, system["bleu"], area, COLORS[name], alpha=0.6)
        axes.annotate(
            f"{name}\n{system['bleu']:.1f} BLEU, {system['megabytes']:.1f} MB",
            (speed, system["bleu"]),
            ha="center",
            va="center",
        )
    axes.set_xlabel("tokens per second, sentence by sentence, two CPU cores")
    axes.set_ylabel("BLEU on the test pairs")
    axes.set_title("English to Spanish: a teacher and its student")
    axes.margins(0.25, 0.4)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
