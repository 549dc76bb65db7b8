"""Draws docs/images/distillation.png, a report: ``python docs/images/distillation.py``."""

import json
import pathlib

from matplotlib.figure import Figure

FILE = pathlib.Path(__file__).with_suffix(".png")
RESULTS = FILE.parents[1] / "results"
COLORS = ("tab:gray", "tab:blue", "tab:orange")  # teacher, student, student in int8
PANELS = {  # name of the value: title, and format
    "bleu": ("BLEU on the test pairs", "{:.1f}"),
    "megabytes": ("size of the weights, MB", "{:.1f}"),
    "tokens_per_second_batch_1": ("tokens/s, sentence by sentence", "{:.0f}"),
    "tokens_per_second_batch_32": ("tokens/s, 32 sentences at a time", "{:,.0f}"),
}


def main(file=FILE):
    metrics = json.loads((RESULTS / "translate_spa_tiny" / "metrics.json").read_text())
    systems = metrics["distillation"]
    figure = Figure((11, 2), layout="constrained")
    all_axes = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (value, (title, text)) in zip(all_axes, PANELS.items()):
        values = [system[value] for system in systems.values()]
        bars = axes.barh(list(systems), values, color=COLORS)
        axes.bar_label(bars, [text.format(value) for value in values], padding=3)
        axes.set_title(title, fontsize="medium")
        axes.set_xlim(0, 1.25 * max(values))
        axes.set_xticks([])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    all_axes[0].invert_yaxis()
    figure.savefig(file, dpi=90)


if __name__ == "__main__":
    main()
