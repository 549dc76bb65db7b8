"""Compares the speed of training steps and inference with keras-hub's ViT of the same size.

    python benchmarks/vit_step.py                      # 9 layers of width 192, patch 4, batch 64
    python benchmarks/vit_step.py --ff-dim 768 --dropout 0.1 --jit-compile

Both models are compiled with the same arguments and take turns in one process, so that changes in
the speed of the machine affect both; the result is the median ratio over the rounds.
"""

import argparse
import statistics
import time

from zoo.startup import import_tensorflow_quietly

import_tensorflow_quietly()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import zoo  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds")
    parser.add_argument("--steps", type=int, default=3, help="training steps per round")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--patch-size", type=int, default=4)
    parser.add_argument("--embed-dim", type=int, default=192)
    parser.add_argument("--num-heads", type=int, default=12)
    parser.add_argument("--num-layers", type=int, default=9)
    parser.add_argument("--ff-dim", type=int, default=384)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--jit-compile", action="store_true", help="compile both with XLA")
    return parser.parse_args()


def zoo_vit(args):
    return zoo.vit(
        input_shape=(args.image_size, args.image_size, 3),
        num_classes=10,
        patch_size=args.patch_size,
        embed_dim=args.embed_dim,
        num_heads=args.num_heads,
        num_layers=args.num_layers,
        ff_dim=args.ff_dim,
        dropout=args.dropout,
    )


def keras_hub_vit(args):
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(args.image_size, args.image_size, 3),
        patch_size=args.patch_size,
        num_layers=args.num_layers,
        num_heads=args.num_heads,
        hidden_dim=args.embed_dim,
        mlp_dim=args.ff_dim,
        dropout_rate=args.dropout,
        attention_dropout=0.0,
    )
    return keras_hub.models.ViTImageClassifier(backbone=backbone, num_classes=10, preprocessor=None)


def turns(model, args):
    """Returns {kind of work: function that runs it for one round}."""
    model.compile(
        keras.optimizers.AdamW(1e-3),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=args.jit_compile,
    )
    random = np.random.default_rng(0)
    images = random.normal(size=(args.batch_size, args.image_size, args.image_size, 3))
    labels = np.eye(10, dtype="float32")[random.integers(0, 10, args.batch_size)]
    batch = tf.data.Dataset.from_tensors((images.astype("float32"), labels)).repeat()
    return {
        "training step": lambda: model.fit(
            batch, steps_per_epoch=args.steps, shuffle=False, verbose=0
        ),
        "inference": lambda: model.predict(batch, steps=3 * args.steps, verbose=0),
    }


def main(args):
    models = {"keras-hub": keras_hub_vit(args), "zoo": zoo_vit(args)}
    for name, model in models.items():
        print(f"{name:10} {model.count_params():,} parameters")
    work = {name: turns(model, args) for name, model in models.items()}
    images = {"training step": args.steps * args.batch_size}
    images["inference"] = 3 * images["training step"]
    for kind, count in images.items():
        seconds = {name: [] for name in work}
        for turn in range(-1, args.rounds):  # the first round traces and is not timed
            for name in work:
                start = time.perf_counter()
                work[name][kind]()
                if turn >= 0:
                    seconds[name].append(time.perf_counter() - start)
        ratios = [a / b for a, b in zip(seconds["keras-hub"], seconds["zoo"])]
        speeds = {name: count / statistics.median(times) for name, times in seconds.items()}
        print(
            f"{kind:14} keras-hub {speeds['keras-hub']:6.0f} images/s, zoo {speeds['zoo']:6.0f} "
            f"images/s; ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f} in {args.rounds} rounds)"
        )


if __name__ == "__main__":
    main(parse())
