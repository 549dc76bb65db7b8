"""Measures how time and memory grow with the number of tokens.

    python benchmarks/growth.py
    python benchmarks/growth.py --only attention --image docs/long_sequences.png
    python benchmarks/growth.py --only attention --rounds 0      # memory only

Decoding: greedy search of a base model. Training: steps of a Vision Transformer with three kinds of
attention, always on 4,096 patches, in few large or many small images. Attention: one head of width
64 in a compiled graph, without projections, and the gradient of queries, keys and values. The
memory in parentheses is the increase of the peak during the computation.
"""

import pathlib

import translation
import turns
import vit

KINDS = ("softmax", "blockwise", "linear")
CAUSAL = tuple(f"{kind} causal" for kind in KINDS)
WIDTH = 64
VIT = {"patch_size": 4, "embed_dim": 192, "num_heads": 3, "num_layers": 4, "ff_dim": 384}


def cases():
    found = [decoding(translation.BASE, 8, length) for length in (32, 64, 128, 256, 512)]
    found += [training(VIT, length, 4096) for length in (64, 256, 1024, 4096)]
    for run in ("forward", "forward and backward"):
        found += [attention(run, length) for length in (512, 1024, 2048, 4096, 8192, 16384)]
    return found


def decoding(sizes, batch_size, length):
    case = translation.decoding(sizes, batch_size, 1, "float32", target_length=length)
    return case._replace(contenders=["zoo"])


def training(sizes, length, tokens):
    sizes = {**sizes, "image_size": sizes["patch_size"] * int(length**0.5)}
    case = vit.case("training", sizes, tokens // length, "float32")
    name = f"training, {length} tokens, batch {tokens // length}"
    items = case.items * length
    return case._replace(name=name, contenders=KINDS, items=items, unit="tokens")


def attention(run, length):
    name, settings = f"attention, {run}, {length} tokens", {"run": run, "length": length}
    operations, numbers = 4 * length**2 * WIDTH, 4 * length * WIDTH
    if run != "forward":
        operations, numbers = 3 * operations, 2 * numbers
    return turns.Case(
        name, settings, KINDS + CAUSAL, length, "tokens", operations, 4 * numbers
    )  # the floor is that of softmax attention


def in_kind(kind, run=None, **settings):
    if run is None:
        sizes = {**settings.pop("sizes"), "attention": kind.split()[0]}
        return vit.in_zoo(sizes=sizes, **settings)
    return attention_of(kind, run, settings["length"])


def attention_of(kind, run, length):
    import tensorflow as tf

    from zoo import layers

    kind, _, causal = kind.partition(" ")
    causal = bool(causal)
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

    compute = forward if run == "forward" else forward_and_backward
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
    cases = [case for case in report["cases"] if case["name"].startswith("attention, forward and")]
    for index, kind in enumerate(KINDS + CAUSAL):
        points = [(x["settings"]["length"], x["contenders"][kind]) for x in cases]
        style = {"marker": "o", "color": f"C{index % 3}", "label": kind}
        style["linestyle"] = "--" if kind in CAUSAL else "-"
        lengths = [length for length, _ in points]
        axes[0].plot(lengths, [x["memory"] - x["memory before"] for _, x in points], **style)
        axes[1].plot(lengths, [turns.median(x["seconds"]) for _, x in points], **style)
    for axis, unit in zip(axes, ("MiB", "seconds")):
        title = "forward and backward"
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=unit, title=title)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def kind_contender(kind):
    return lambda folder, **settings: in_kind(kind, folder=folder, **settings)


CONTENDERS = {"zoo": translation.in_zoo, **{kind: kind_contender(kind) for kind in KINDS + CAUSAL}}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument("--image", type=pathlib.Path, help="file for a picture of attention")
    args = parser.parse_args()
    report = turns.run(__file__, cases(), args)
    if args.image:
        draw(report, args.image)
