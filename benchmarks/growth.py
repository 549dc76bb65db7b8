"""Measures how time and memory grow with the number of tokens.

    python benchmarks/growth.py
    python benchmarks/growth.py --only attention --image docs/long_sequences.png
    python benchmarks/growth.py --only attention --rounds 0      # memory only

Decoding: greedy search of a base model. Training: steps of a Vision Transformer with three kinds of
attention, always on 4,096 patches, in few large or many small images. Attention: one head of width
64 in a compiled graph, without projections, and the gradient of queries, keys and values; its floor
is that of softmax attention, of which linear attention is an approximation. The memory in
parentheses is the increase of the peak during the computation.
"""

import itertools
import pathlib
from statistics import median

import translation
import turns
import vit

KINDS = ("softmax", "blockwise", "linear")
RUNS = ("forward", "forward and backward")
WIDTH = 64
VIT = {"patch_size": 4, "embed_dim": 192, "num_heads": 3, "num_layers": 4, "ff_dim": 384}


def cases():
    cases = [decoding(translation.BASE, 8, length) for length in (32, 64, 128, 256, 512)]
    cases += [training(VIT, length, 4096) for length in (64, 256, 1024, 4096)]
    for run, causal in itertools.product(RUNS, (False, True)):
        cases += [attention(run, causal, 512 * 2**n) for n in range(6)]
    return cases


def decoding(sizes, batch_size, length):
    case = translation.decoding(sizes, batch_size, 1, "float32", target_length=length)
    return case._replace(contenders=["zoo"])


def training(sizes, length, tokens):
    sizes = {**sizes, "image_size": sizes["patch_size"] * int(length**0.5)}
    case = vit.case("training", sizes, tokens // length, "float32")
    name = f"training, {length} tokens, batch {tokens // length}"
    items = case.items * length
    return case._replace(name=name, contenders=KINDS, items=items, unit="tokens")


def attention(run, causal, length):
    name = f"{'causal ' if causal else ''}attention, {run}, {length} tokens"
    settings = {"run": run, "causal": causal, "length": length}
    operations = (2 if causal else 4) * length**2 * WIDTH
    numbers = 4 * length * WIDTH  # queries, keys, values and outputs
    if run != "forward":
        operations *= 3
        numbers *= 2
    return turns.Case(name, settings, KINDS, length, "tokens", operations, 4 * numbers)


def contender(kind):
    """The contender of a kind of attention: a training step, or attention alone with a `run`."""

    def compute(folder, run=None, **settings):
        if run is not None:
            return in_kind(kind, run, **settings)
        sizes = {**settings.pop("sizes"), "attention": kind}
        return vit.in_zoo(folder, sizes=sizes, **settings)

    return compute


def in_kind(kind, run, causal, length):
    import tensorflow as tf

    from zoo import layers

    attend = {
        "softmax": lambda *x: layers.scaled_dot_product_attention(
            *x, layers.causal_mask(length) if causal else None
        ),
        "blockwise": lambda *x: layers.blockwise_attention(*x, causal=causal),
        "linear": lambda *x: layers.linear_attention(*x, causal=causal),
    }[kind]

    @tf.function
    def forward(*inputs):
        return [tf.reduce_sum(attend(*inputs))]

    @tf.function
    def forward_and_backward(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            [total] = forward(*inputs)
        return [tf.reduce_sum(x) for x in tape.gradient(total, inputs)]

    compute = forward if run == RUNS[0] else forward_and_backward
    signature = [tf.TensorSpec((1, 1, length, WIDTH))] * 3
    compute.get_concrete_function(*signature)  # does not count as memory of the computation
    inputs = [tf.random.stateless_normal(x.shape, (0, i)) for i, x in enumerate(signature)]
    return lambda: [float(x) for x in compute(*inputs)]


def draw(report, path):
    """A picture of the increase of memory and of the time of attention, forward and backward."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    cases = [case for case in report["cases"] if case["settings"].get("run") == RUNS[1]]
    for causal, (index, kind) in itertools.product((False, True), enumerate(KINDS)):
        group = [case for case in cases if case["settings"]["causal"] == causal]
        lengths = [case["settings"]["length"] for case in group]
        contenders = [case["contenders"][kind] for case in group]
        style = {"marker": "o", "color": f"C{index}", "linestyle": "--" if causal else "-"}
        style["label"] = f"{kind} causal" if causal else kind
        axes[0].plot(lengths, [x["memory"] - x["memory before"] for x in contenders], **style)
        axes[1].plot(lengths, [median(x["seconds"]) for x in contenders], **style)
    for axis, unit in zip(axes, ("MiB", "seconds")):
        title = "forward and backward"
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=unit, title=title)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


CONTENDERS = {"zoo": translation.in_zoo, **{kind: contender(kind) for kind in KINDS}}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument("--image", type=pathlib.Path, help="file for a picture of attention")
    args = parser.parse_args()
    report = turns.run(__file__, cases(), args)
    if args.image:
        draw(report, args.image)
