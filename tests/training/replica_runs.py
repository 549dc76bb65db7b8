"""Trains small models in a process of its own, by as many replicas as it is told.

    python tests/training/replica_runs.py OUT.npz DEVICES STRATEGY,... CASE ...

Writes the metrics of each epoch and the final weights of each case by each strategy:
``one/vit/loss``, ``one/vit/val_accuracy``, ``one/vit/weights/PATH`` ...
"""

import functools
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy

from zoo.compat import SwapEMAWeights
from zoo.data import image_batches, token_batches
from zoo.data.images import digits
from zoo.data.phrasebook import phrasebook_pairs
from zoo.data.tokenized_corpus import encode_pairs
from zoo.models import Transformer, ViT
from zoo.text.sentencepiece import train_tokenizer
from zoo.training import distribution
from zoo.training.augmentation import Augmentation
from zoo.training.distribution import workers
from zoo.training.losses import SmoothedCrossEntropy
from zoo.training.optimizers import WarmupInverseSquareRoot, adamw, muon
from zoo.training.trainer import Trainer

token_batches.MAX_SHAPES = 2  # fewer to compile
workers.BYTES_PER_PACK = 2**14  # so that small models have several packs of gradients

STEPS_PER_EPOCH, EPOCHS = 10, 2
SIZES = {"embed_dim": 32, "num_heads": 4, "ff_dim": 32, "dropout": 0.0}


class OverflowOnce(keras.losses.CategoricalCrossentropy):
    """A loss whose gradient is infinite for the items whose label is written as `MARK` or more."""

    MARK = 2.0

    def call(self, labels, outputs):
        marked = tf.reduce_max(labels, axis=-1) >= self.MARK
        factor = tf.where(marked, np.float32(np.inf), np.float32(1.0))

        @tf.custom_gradient
        def overflow(losses):
            return losses, lambda upstream: upstream * factor

        labels = labels / tf.reduce_sum(labels, -1, keepdims=True)
        return overflow(super().call(labels, outputs))


def vit(
    strategy,
    batch_size=31,
    loss=keras.losses.CategoricalCrossentropy,
    jit_compile=False,
    has_muon=False,
    **settings,
):
    """(trainer, training batches, validation batches) of a ViT on the digits."""
    data = digits().loaded()
    overflow = loss is OverflowOnce
    preprocessing = data.preprocessing()
    with strategy.scope():
        model = ViT(data.input_shape, 10, 2, num_layers=1, **{**SIZES, **settings}, name="vit")
        model.build((None, *data.input_shape))
        trainer = Trainer(model, preprocessing.normalize)
        make_optimizer = functools.partial(muon, model) if has_muon else adamw
        optimizer = make_optimizer(1e-3, 0.05, clip_norm=0.5, ema_momentum=0.9)
        if overflow:  # with the default scale, more gradients overflow, some of them barely
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**10)
        trainer.compile(
            optimizer,
            loss(from_logits=True, reduction="sum"),
            weighted_metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
            jit_compile=jit_compile,
        )
    augment = Augmentation(crop_padding=1, flip_probability=0.0, randaugment_num_ops=0)
    train = image_batches.training_batches(
        data.train, 10, batch_size, augment, label_smoothing=0.1, seed=3
    )
    if overflow:  # a data set of the user's own, which every worker computes
        train = train.whole().enumerate().map(lambda step, batch: _mark(step, *batch))
    # 360 images: the last batch is of 9
    return trainer, train, image_batches.evaluation_batches(data.test, 10, 27)


def _mark(step, images, labels, weights):
    """In step 4 the last row overflows: it is the last replica's."""
    last = tf.one_hot(tf.shape(labels)[0] - 1, tf.shape(labels)[0])[:, None]
    return images, tf.where((step == 4) & (last > 0), 2.0 * labels + 2.0, labels), weights


def translation(strategy):
    """The same of a translation Transformer on the phrasebook."""
    pairs = list(phrasebook_pairs(3211))
    pairs, held_out = pairs[:3000], pairs[3000:]
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), "bpe", 400)
    train, valid = (
        encode_pairs(part, tokenizer, tokenizer, 64, name)
        for name, part in (("train", pairs), ("valid", held_out))
    )
    # the last batch of an epoch has empty rows, and rows are no multiple of three
    train_batches = token_batches.training_batches(train, 700, 1)
    valid_batches = token_batches.evaluation_batches(valid, 500)
    with strategy.scope():
        size, settings = tokenizer.vocab_size, {**SIZES, "norm": "pre"}
        model = Transformer(size, size, num_layers=1, shared="all", name="transformer", **settings)
        model.build()
        rate = WarmupInverseSquareRoot(32, 50, 0.5)
        adam = keras.optimizers.Adam(rate, 0.9, 0.98, global_clipnorm=0.5)
        trainer = Trainer(model)
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        trainer.compile(adam, SmoothedCrossEntropy(0.1), weighted_metrics=[accuracy])
    return trainer, train_batches, valid_batches


CASES = {
    "vit": (vit, {}),
    "vit_fewer_rows_than_replicas": (vit, {"batch_size": 2}),
    "vit_dropout": (vit, {"dropout": 0.3}),
    "vit_dropout_again": (vit, {"dropout": 0.3}),
    "vit_bfloat16": (vit, {"dtype": "mixed_bfloat16"}),
    "vit_float16": (vit, {"dtype": "mixed_float16", "loss": OverflowOnce}),
    "vit_muon": (vit, {"has_muon": True}),
    "vit_compiled": (vit, {"jit_compile": True}),
    "translation": (translation, {}),
}


def run(name, strategy):
    """Everything that the case leaves, by name."""
    keras.utils.clear_session()  # for the names of layers
    keras.utils.set_random_seed(0)
    make, settings = CASES[name]
    trainer, train, valid = make(strategy, **settings)
    found = trainer.fit(
        train,
        validation_data=valid,
        epochs=EPOCHS,
        steps_per_epoch=STEPS_PER_EPOCH,
        callbacks=[SwapEMAWeights()] if make is vit else [],
        verbose=0,
        accumulation=2 if make is translation else 1,
    ).history
    found["iterations"] = trainer.optimizer.iterations.numpy()
    for weight in trainer.trained_model().weights:
        found[f"weights/{weight.path}"] = weight.numpy().astype("float32")
    return {f"{name}/{key}": value for key, value in found.items()}


def masks(strategy, draws=50):
    """What dropout drops on each replica of this worker: ``masks/values``, [replicas, draws, n]."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dropout(0.5)])
        trainer = Trainer(model)

    @tf.function
    def draw():
        return strategy.run(lambda: trainer(tf.ones((1, 100)), training=True)[0])

    drawn = [strategy.experimental_local_results(draw()) for _ in range(draws)]
    return {"masks/values": np.swapaxes(np.array(drawn) > 0, 0, 1)}


class Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
    def _initialize_local_devices(self, cluster_resolver, worker_device):
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(int(devices))), "CPU"


class CpuWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """Uses several CPU devices of each worker, in place of one, as if they were GPUs."""

    def __init__(self):
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        options = tf.distribute.experimental.CommunicationOptions()
        tf.distribute.Strategy.__init__(
            self, Extended(self, cluster_resolver=resolver, communication_options=options)
        )


if __name__ == "__main__":
    out, devices, names, *cases = sys.argv[1:]
    if int(devices) > 1:
        tf.distribute.MultiWorkerMirroredStrategy = CpuWorkers
    results = {}
    for strategy_name in names.split(","):
        # "one", if it is not the first, uses one of the devices that the machine is divided into
        strategy = distribution.choose(
            strategy_name, None if strategy_name == "one" else int(devices)
        )
        for case in cases:
            found = masks(strategy) if case == "masks" else run(case, strategy)
            results |= {f"{strategy_name}/{name}": value for name, value in found.items()}
    if distribution.is_chief(strategy):
        np.savez(out, **results)
