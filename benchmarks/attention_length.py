"""Compares the time and memory of softmax, blockwise and linear attention by length.

    python benchmarks/attention_length.py                 # a Markdown table, a picture in docs/
    python benchmarks/attention_length.py --rounds 0      # memory only

Each measurement runs in a new process. Memory is the increase of its peak during the computation;
time is the median of rounds in which the kinds take turns, in a compiled graph. The forward pass
and the gradient of the queries, keys and values are measured, without projections.

Axes: B batch, T tokens, H heads, D head width.
"""

import argparse
import json
import multiprocessing
import pathlib
import resource
import statistics
import sys
import time

import tensorflow as tf

from zoo.layers import (
    blockwise_attention,
    causal_mask,
    linear_attention,
    scaled_dot_product_attention,
)

KINDS = ("softmax", "blockwise", "linear", "softmax causal", "blockwise causal", "linear causal")
PASSES = ("forward", "forward and backward")
DOCS = pathlib.Path(__file__).parents[1] / "docs"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="numbers of tokens")
    parser.add_argument("--num-heads", type=int, default=1, help="heads")
    parser.add_argument("--key-dim", type=int, default=64, help="width of a head")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds; 0: memory only")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of attention"
    )
    parser.add_argument("--json", type=pathlib.Path, help="file for the measurements")
    image = DOCS / "long_sequences.png"
    parser.add_argument("--image", type=pathlib.Path, default=image, help="file for the plot")
    return parser.parse_args()


def worker(args, kind, run, length):
    """Measures in this process: (peak memory in MiB, seconds)."""
    name, _, causal = kind.partition(" ")
    causal = bool(causal)
    attend = {
        "softmax": lambda *x: scaled_dot_product_attention(
            *x, causal_mask(length) if causal else None
        ),
        "blockwise": lambda *x: blockwise_attention(*x, causal=causal),
        "linear": lambda *x: linear_attention(*x, causal=causal),
    }[name]

    @tf.function
    def forward(*inputs):
        return tf.reduce_sum(attend(*inputs))

    @tf.function
    def forward_and_backward(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = forward(*inputs)
        return [tf.reduce_sum(x) for x in tape.gradient(total, inputs)]

    compute = forward if run == "forward" else forward_and_backward
    signature = [tf.TensorSpec((1, args.num_heads, length, args.key_dim))] * 3
    compute.get_concrete_function(*signature)
    inputs = [tf.random.stateless_normal(x.shape, (0, i)) for i, x in enumerate(signature)]
    before, seconds = peak_mib(), []
    for _ in range(2 if args.rounds else 1):  # the first is slower
        start = time.perf_counter()
        tf.nest.map_structure(lambda x: x.numpy(), compute(*inputs))
        seconds.append(time.perf_counter() - start)
    return {"mib": peak_mib() - before, "seconds": seconds[-1]}


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(*arguments):
    # Forking saves importing TensorFlow each time. This process has not used it, as it must not.
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(worker, arguments)


def measure_all(args):
    """[{"kind", "run", "length", "mib", "seconds"}, ..]."""
    rows = []
    for run in PASSES:
        for length in args.lengths:
            rounds = {kind: [] for kind in args.kinds}
            for _ in range(max(args.rounds, 1)):
                for kind in args.kinds:
                    rounds[kind].append(measure(args, kind, run, length))
            for kind, found in rounds.items():
                medians = {
                    name: statistics.median(x[name] for x in found) for name in ("mib", "seconds")
                }
                rows.append({"kind": kind, "run": run, "length": length, **medians})
                print(rows[-1], file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows))
    return rows


def table(args, rows, column, unit):
    lines = [f"| {unit} | {' | '.join(f'{x:,}' for x in args.lengths)} |"]
    lines.append("|---|" + "---|" * len(args.lengths))
    for run in PASSES:
        for kind in args.kinds:
            found = [x[column] for x in rows if (x["kind"], x["run"]) == (kind, run)]
            cells = [f"{x:,.0f}" if x >= 10 else f"{x:.2g}" for x in found]
            lines.append(f"| {kind}, {run} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(args, rows, columns):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(columns), figsize=(5 * len(columns), 4), squeeze=False)
    for axis, (column, unit) in zip(axes[0], columns.items()):
        for kind in args.kinds:
            points = [
                (x["length"], x[column]) for x in rows if (x["kind"], x["run"]) == (kind, PASSES[1])
            ]
            style = "--" if "causal" in kind else "-"
            color = f"C{[x.split()[0] for x in KINDS].index(kind.split()[0])}"
            axis.plot(*zip(*points), style, color=color, marker="o", label=kind)
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=unit, title=PASSES[1])
        axis.set_xticks(args.lengths, [str(x) for x in args.lengths], rotation=30)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(args.image, dpi=100)


def main(args):
    rows = measure_all(args)
    columns = {"mib": "MiB"}
    if args.rounds:
        columns["seconds"] = "seconds"
    for column, unit in columns.items():
        print(table(args, rows, column, unit), end="\n\n")
    draw(args, rows, columns)


if __name__ == "__main__":
    main(parse())
