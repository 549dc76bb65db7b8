"""Blocks compiled one kind at a time learn the same as blocks that are not compiled."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import compat
from zoo.models import CausalLM, EncoderClassifier, Transformer, ViT
from zoo.training.compiled_blocks import CompiledBlocks
from zoo.training.losses import SmoothedCrossEntropy
from zoo.training.optimizers import Muon
from zoo.training.trainer import Trainer

SIZES = {"embed_dim": 16, "num_heads": 2, "ff_dim": 32, "dropout": 0.2}
STEPS = 10


def transformer(**settings):
    sizes = {"num_layers": 3, "shared": "all", **SIZES, **settings}
    model = Transformer(20, 20, **sizes)
    model.build()
    return model


def causal_lm(**settings):
    model = CausalLM(20, num_layers=3, **SIZES, **settings)
    model.build()
    return model


def text_classifier(**settings):
    model = EncoderClassifier(20, 3, num_layers=3, **SIZES, **settings)
    model.build()
    return model


def vit(**settings):
    model = ViT((8, 8, 3), 3, 4, num_layers=3, **SIZES, **settings)
    model.build((None, 8, 8, 3))
    return model


make_batches = {}  # of another model


def batches(make):
    """Batches of two shapes, one after the other; the images have one shape."""
    random = np.random.default_rng(0)
    make = make_batches.get(make, make)
    found = []
    for step in range(STEPS):
        rows, length = ((4, 6), (3, 9))[step % 2]
        tokens = random.integers(1, 20, (rows, length)).astype("int32")
        tokens[0, 4:] = 0  # padding
        classes = random.integers(0, 3, rows).astype("int32")
        found.append(
            {
                transformer: ({"source": tokens, "target": tokens}, tokens, np.ones(tokens.shape)),
                causal_lm: (tokens, tokens, np.ones(tokens.shape)),
                text_classifier: (tokens, classes, np.ones(rows)),
                vit: (random.normal(size=(rows, 8, 8, 3)), classes, np.ones(rows)),
            }[make]
        )
    found = [tf.nest.map_structure(_in_32_bits, batch) for batch in found]
    signature = tf.nest.map_structure(_spec, found[0])
    return tf.data.Dataset.from_generator(lambda: iter(found), output_signature=signature)


def _in_32_bits(array):
    return array.astype("int32" if array.dtype.kind == "i" else "float32")


def _spec(array):
    shape = array.shape if array.ndim == 4 else (None,) * array.ndim
    return tf.TensorSpec((None, *shape[1:]), array.dtype)


def trained(make, jit_compile, prepare=lambda model: None, optimizer=None, **settings):
    """The trainer after some steps, with dropout, and the first weights."""
    keras.utils.set_random_seed(0)
    model = make(**settings)
    prepare(model)
    trainer = Trainer(model)
    optimizer = optimizer or keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
    trainer.compile(optimizer, SmoothedCrossEntropy(0.1), jit_compile=jit_compile)
    trainer.fit(batches(make), steps_per_epoch=STEPS, verbose=0)
    return trainer


def check_equal(compiled, plain, atol=1e-5):
    """All variables, among them the states of dropout and of the optimizer.

    A step moves weights by about 0.1. XLA adds in another order and fuses products with sums, in
    float32, which is 6e-8 of a number.
    """
    pairs = zip(compiled.variables, plain.variables, strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=atol, err_msg=mine.path)


def functions(trainer):
    return list(trainer._compiled_blocks._functions.values())


def _freeze(model):
    model.get_layer("encoder_1").trainable = False


def _add_lora(model):
    for layer in compat.all_layers(model):
        if layer.name in ("qkv", "hidden"):
            layer.enable_lora(2)


@pytest.mark.parametrize(
    "make, settings, kinds",
    [
        (transformer, {}, 2),
        pytest.param(transformer, {"remat": True}, 2, marks=pytest.mark.slow),
        pytest.param(transformer, {"positions": "relative"}, 2, marks=pytest.mark.slow),
        pytest.param(transformer, {"positions": "rotary"}, 2, marks=pytest.mark.slow),
        pytest.param(transformer, {"decoder": "ssru"}, 2, marks=pytest.mark.slow),
        pytest.param(causal_lm, {}, 1, marks=pytest.mark.slow),
        pytest.param(text_classifier, {}, 2, marks=pytest.mark.slow),  # one for the first token
        pytest.param(vit, {"prepare": _freeze}, 3, marks=pytest.mark.slow),
        pytest.param(vit, {"prepare": _add_lora}, 2, marks=pytest.mark.slow),
        pytest.param(vit, {"stochastic_depth": 0.2}, 3, marks=pytest.mark.ci),
    ],
)
def test_each_kind_of_block_is_compiled_and_learns_the_same(make, settings, kinds):
    """In batches of two shapes, and each kind is traced once for both."""
    compiled = trained(make, True, **settings)
    check_equal(compiled, trained(make, False, **settings))
    assert [one.experimental_get_tracing_count() for one in functions(compiled)] == [1] * kinds
    assert not compiled.jit_compile


@pytest.mark.slow
def test_of_half_precision():
    """bfloat16 has 8 bits, and XLA keeps more of them between operations."""
    optimizers = [keras.optimizers.SGD(0.01) for _ in range(2)]
    settings = {"dtype": "mixed_bfloat16", "dropout": 0.0}
    compiled, plain = (
        trained(transformer, jit_compile, optimizer=optimizer, **settings)
        for jit_compile, optimizer in zip((True, False), optimizers)
    )
    start = transformer_at_start(**settings)
    for mine, other, first in zip(compiled.get_weights(), plain.get_weights(), start, strict=True):
        assert np.linalg.norm(mine - other) <= 0.1 * np.linalg.norm(other - first) + 1e-6


def transformer_at_start(**settings):
    keras.utils.set_random_seed(0)
    return transformer(**settings).get_weights()


@pytest.mark.slow
def test_a_model_within_a_model_of_keras_and_muon():
    """The optimizer is compiled on its own; blocks are found within other models."""

    def make(**settings):
        layers = [keras.Input((8, 8, 3)), vit(**settings), keras.layers.Dense(3)]
        return keras.Sequential(layers)

    make_batches[make] = vit
    runs = []
    for jit_compile in (True, False):
        optimizer = Muon(1e-2, exclude_layers=["dense"])
        runs.append(trained(make, jit_compile, optimizer=optimizer))
    check_equal(*runs, atol=1e-3)  # orthogonalizing enlarges what is small, and its rounding
    assert len(functions(runs[0])) == 2 and runs[0].jit_update


def test_other_values_that_a_block_changes_are_kept():
    """Those of batch normalization, and not of dropout only."""
    block = keras.layers.BatchNormalization(momentum=0.5)
    block.build((None, 4))
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 4)).astype("float32"))
    compiler = CompiledBlocks()

    @tf.function
    def call(x):
        with compat.call_context(training=True):
            return compiler(block, "__call__", x)

    call(x)
    np.testing.assert_allclose(block.moving_mean, 0.5 * np.mean(x, axis=0), rtol=1e-5)


def test_models_without_blocks_are_compiled_as_a_whole():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    trainer = Trainer(model)
    trainer.compile("sgd", "mse", jit_compile=True)
    assert trainer.jit_compile and not trainer.jit_update


@pytest.mark.slow
def test_gpus_compile_blocks_for_batches_of_any_shape(monkeypatch):
    gpu = SimpleNamespace(device_type="GPU", name="/device:GPU:0")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [gpu])
    assert len(functions(trained(transformer, "auto", num_layers=1))) == 2
