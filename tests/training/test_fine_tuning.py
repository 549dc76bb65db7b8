"""What learns in fine-tuning and how fast: rates by depth, frozen weights, LoRA."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import compat
from zoo.training import fine_tuning
from zoo.training.optimizers import SGD, adamw, warmup_cosine
from zoo.training.trainer import Trainer

IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32")
LABELS = np.eye(3, dtype="float32")[np.arange(8) % 3]
WEIGHTS = np.full(8, 1 / 8, "float32")


def vit(**settings):
    keras.utils.set_random_seed(0)
    sizes = {"patch_size": 4, "embed_dim": 8, "num_heads": 2, "num_layers": 1}
    return zoo.vit(**{"input_shape": (8, 8, 3), "num_classes": 3, **sizes, **settings})


def factors_by_path(model, decay):
    paths = [variable.path.split("/", 1)[1] for variable in model.trainable_variables]
    return dict(zip(paths, fine_tuning.layer_rates(model, decay), strict=True))


def changes(model, optimizer, gradient=1.0):
    """How much one step with the same gradient everywhere changes each variable."""
    before = [variable.numpy() for variable in model.trainable_variables]
    gradients = [tf.fill(v.shape, gradient) for v in model.trainable_variables]
    optimizer.apply(gradients, model.trainable_variables)
    return [old - v.numpy() for v, old in zip(model.trainable_variables, before)]


def test_rates_fall_from_the_head_to_the_patches():
    found = factors_by_path(vit(num_layers=2, num_registers=1, representation_dim=8), 0.5)
    expected = {
        "head/kernel": 1.0,
        "representation/bias": 1.0,
        "encoder_norm/gamma": 1.0,
        "encoder_1/attention/qkv/kernel": 0.5,
        "encoder_1/feed_forward/output_projection/bias": 0.5,
        "encoder_0/attention_norm/beta": 0.25,
        "patch_embed/projection/kernel": 0.125,
        "patch_positions/embeddings": 0.125,
        "class_token/tokens": 0.125,
        "registers/tokens": 0.125,
    }
    assert {path: found[path] for path in expected} == expected
    assert sorted(set(found.values())) == [0.125, 0.25, 0.5, 1.0]
    found = factors_by_path(vit(num_layers=2, positions="relative_table"), 0.5)
    assert found["encoder_1_positions/embeddings"] == 0.5, "that of its block"


def adamw_or_sgd(name, weight_decay=0.0, ema_momentum=None, clip_norm=None, **settings):
    rate = warmup_cosine(0.1, 100)
    if name == "sgd":
        return SGD(rate, 0.9, global_clipnorm=clip_norm, **settings)
    return adamw(rate, weight_decay, clip_norm, ema_momentum, **settings)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_step_changes_each_variable_by_its_rate(name):
    """Gradients of one: SGD's first step is the rate, and so is Adam's, whatever their scale."""
    model = vit()
    factors = fine_tuning.layer_rates(model, 0.5)
    optimizer = adamw_or_sgd(name, rate_factors=factors)
    for change, factor in zip(changes(model, optimizer), factors, strict=True):
        # float32 weights of up to 1; Adam adds 1e-7 to a root of 0.03, which is 3e-6 of a rate
        np.testing.assert_allclose(change, 0.1 * factor, atol=1e-6)


def test_weight_decay_has_the_rate_of_its_variable():
    model = vit()
    factors = factors_by_path(model, 0.5)
    optimizer = adamw(warmup_cosine(0.1, 100), 0.3, rate_factors=list(factors.values()))
    before = {v.path: v.numpy() for v in model.trainable_variables}
    for change, variable in zip(changes(model, optimizer, 0.0), model.trainable_variables):
        decays = variable.name == "kernel"
        factor = factors[variable.path.split("/", 1)[1]] if decays else 0.0
        np.testing.assert_allclose(change, 0.1 * 0.3 * factor * before[variable.path], atol=2e-7)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_factors_of_one_are_keras_itself(name):
    """To the last bit, in three steps with clipping, and with weight decay for AdamW."""
    results = []
    for factors in (None, [1.0] * len(vit().trainable_variables)):
        model = vit()
        optimizer = adamw_or_sgd(name, 0.3, 0.9, clip_norm=0.5, rate_factors=factors)
        results.append([changes(model, optimizer, gradient) for gradient in (1.0, -2.0, 0.5)])
        results[-1].append([v.numpy() for v in optimizer.variables])
    tf.nest.map_structure(np.testing.assert_array_equal, *results)


def changed(model, prepare):
    """The names of the variables that training changes, and the trainer."""
    prepare(model)
    before = {id(v): v.numpy() for v in model.weights}
    trainer = Trainer(model)
    trainer.compile(
        adamw(warmup_cosine(0.1, 20), 0.1, ema_momentum=0.9),
        keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum"),
    )
    batches = tf.data.Dataset.from_tensors((IMAGES, LABELS, WEIGHTS)).repeat()
    trainer.fit(batches, epochs=1, steps_per_epoch=3, verbose=0)
    moved = [v for v in model.weights if not np.array_equal(v.numpy(), before[id(v)])]
    return {variable.path.split("/", 1)[1] for variable in moved}, trainer


def test_frozen_weights_stay():
    found, _ = changed(vit(), fine_tuning.freeze)
    assert found == {"head/kernel", "head/bias"}


def test_lora_learns_its_own_weights_and_the_head():
    model = vit()
    expected = model(IMAGES)
    found, trainer = changed(model, lambda model: fine_tuning.enable_lora(model, 2))
    own = {path for path in found if "/lora_kernel_" in path}
    assert len(own) == 2 * 4  # two for each of four matrices
    assert found - own == {"head/kernel", "head/bias"}
    assert np.abs(model(IMAGES) - expected).max() > 0.1
    plain = trainer.trained_model()
    assert [v.path for v in plain.weights] == [v.path for v in vit().weights]
    # one sum of products in place of two, in float32
    np.testing.assert_allclose(plain(IMAGES), model(IMAGES), atol=1e-5)


def test_lora_in_mixed_precision_is_merged_in_full_precision():
    """Keras's own merge rounds to bfloat16, an error of up to 2**-9 of a weight."""
    model = vit(dtype="mixed_bfloat16")
    _, trainer = changed(model, lambda model: fine_tuning.enable_lora(model, 2))
    for block, plain in zip(model.encoder_blocks, trainer.trained_model().encoder_blocks):
        dense = block.attention.qkv
        a = dense.lora_kernel_a.numpy()
        b = dense.lora_kernel_b.numpy()
        expected = compat.stored_matrix(dense).numpy() + a @ b
        np.testing.assert_allclose(plain.attention.qkv.kernel.numpy(), expected, atol=1e-6)


def test_a_new_head_gives_every_class_the_same():
    model = vit(num_class_tokens=2)  # with a distillation token, and a head for it
    fine_tuning.reset_heads(model)
    np.testing.assert_array_equal(model(IMAGES), np.zeros((8, 3)))


def test_models_that_may_know_held_out_data_are_named():
    """A setting that one of both recipes lacks counts as None."""
    of_all = SimpleNamespace(settings={"seed": 0, "data_dir": "/a/images"})
    of_some = SimpleNamespace(settings={"seed": 0, "data_dir": "images", "train_examples": 1000})
    published = SimpleNamespace(settings=None)
    names = ("seed", "data_dir", "train_examples")

    def notes(model, **settings):
        return fine_tuning.other_split("--teacher", "x", model, SimpleNamespace(**settings), names)

    assert notes(of_all, seed=0, data_dir="/b/images") == notes(published, seed=1) == ()
    [note] = notes(of_all, seed=0, data_dir="images", train_examples=1000)
    assert note.endswith("as its run had another --train-examples.")
    [note] = notes(of_some, seed=1, data_dir="images")
    assert note.endswith("as its run had another --seed and --train-examples.")
    of_set = SimpleNamespace(settings={"dataset": "wmt18_translate/de-en"})
    names = ("dataset",)  # a name, not a path
    [note] = notes(of_set, dataset="wmt19_translate/de-en")
    assert note.endswith("as its run had another --dataset.")
    assert notes(of_set, dataset="wmt18_translate/de-en") == ()
