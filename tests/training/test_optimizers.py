"""Learning rates, weight decay, and the variables that each optimizer updates in its own way."""

import types

import keras
import numpy as np
import pytest

import zoo
from tests.test_recipes import recipe
from zoo.models import Transformer
from zoo.training.optimizers import (
    SGD,
    Muon,
    WarmupInverseSquareRoot,
    adamw,
    limited_momentum,
    muon,
    warmup_cosine,
)

SMALL = {"input_shape": (8, 8, 3), "num_classes": 3, "patch_size": 4, "num_registers": 1}
SMALL |= {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "layer_scale": 0.1}


def compiled(optimizer=adamw, **options):
    keras.utils.set_random_seed(0)
    model = zoo.vit(**SMALL)
    settings = {"learning_rate": warmup_cosine(0.1, 100), "weight_decay": 0.5, **options}
    optimizer = muon(model, **settings) if optimizer is muon else optimizer(**settings)
    model.compile(optimizer, keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("optimizer", [adamw, muon])
def test_only_matrices_decay(optimizer):
    """Without gradients, a step changes what decays and nothing else."""
    model = compiled(optimizer)
    before = [v.numpy() for v in model.trainable_variables]
    zeros = [np.zeros(v.shape, "float32") for v in model.trainable_variables]
    model.optimizer.apply(zeros, model.trainable_variables)
    decayed = {
        variable.path
        for variable, old in zip(model.trainable_variables, before)
        if not np.array_equal(variable.numpy(), old)
    }
    assert decayed == {v.path for v in model.trainable_variables if v.path.endswith("kernel")}
    assert len(decayed) == 2 + 4  # patches and head, and four in a block


@pytest.mark.parametrize(
    "optimizer, options",
    [(muon, {}), *((make, {"rate_factors": [0.5] * 23}) for make in (adamw, SGD))],
)
def test_a_loaded_model_trains_on_identically(optimizer, options, tmp_path):
    """Bit for bit: the config has the factors and the exemptions from weight decay."""
    model = compiled(optimizer, **options)
    random = np.random.default_rng(0)
    gradients = [keras.ops.array(random.normal(size=v.shape)) for v in model.trainable_variables]
    model.optimizer.apply(gradients, model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    for trained in (model, loaded) * 2:
        trained.optimizer.apply(gradients, trained.trainable_variables)
    for found, expected in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_muon_moves_the_matrices_of_blocks_alike_in_all_directions(precision, same_policy):
    """Their updates are close to orthogonal, of AdamW's size; all else moves as with AdamW."""
    keras.config.set_dtype_policy(precision)
    models = [compiled(optimizer, weight_decay=0.0) for optimizer in (adamw, muon)]
    assert models[1].optimizer.in_bfloat16 == ("bfloat16" in precision)
    random = np.random.default_rng(0)
    gradients = [
        random.normal(size=v.shape).astype("float32") for v in models[0].trainable_variables
    ]
    moved = []
    for model in models:
        before = [v.numpy() for v in model.trainable_variables]
        tensors = list(map(keras.ops.convert_to_tensor, gradients))
        model.optimizer.apply(tensors, model.trainable_variables)
        moved.append([old - v.numpy() for v, old in zip(model.trainable_variables, before)])
    matrices = 0
    for variable, by_adamw, by_muon in zip(models[0].trainable_variables, *moved):
        if not (variable.path.startswith("vit/encoder_") and variable.name == "kernel"):
            np.testing.assert_allclose(by_muon, by_adamw, atol=1e-6)
            continue
        matrices += 1
        sizes = np.linalg.svd(by_muon, compute_uv=False)
        # 0.2 · √(longer side) times a singular value that is close to one, between 0.5 and 1.3
        expected = 0.1 * 0.2 * max(by_muon.shape) ** 0.5
        assert 0.5 * expected < sizes.min() and sizes.max() < 1.3 * expected
    assert matrices == 4


def test_the_learning_rate_rises_and_falls():
    schedule = warmup_cosine(0.2, 100, 10)
    optimizer = adamw(schedule, 0.5, clip_norm=0.5)
    assert optimizer.global_clipnorm == 0.5 and not optimizer.use_ema
    rates = np.array([float(schedule(step)) for step in range(101)])
    np.testing.assert_allclose(rates[:11], 0.2 * np.arange(11) / 10, atol=1e-6)
    expected = 0.1 * (1 + np.cos(np.pi * np.arange(91) / 90))
    np.testing.assert_allclose(rates[10:], expected, atol=1e-6)


def test_the_learning_rate_is_that_of_the_paper():
    schedule = WarmupInverseSquareRoot(512, warmup_steps=40, scale=2.0)
    update = np.arange(1, 200)
    expected = 2.0 * 512**-0.5 * np.minimum(update**-0.5, update * 40**-1.5)
    found = [float(schedule(step)) for step in range(199)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert int(np.argmax(found)) + 1 == 40
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert copy.get_config() == schedule.get_config()
    assert float(copy(50)) == float(schedule(50))


def test_muon_updates_the_matrices_of_both_stacks_and_nothing_else():
    model = Transformer(20, 20, 8, 2, 1, shared="all")
    model.build()
    optimizer = muon(model, 0.1, clip_norm=1.5)
    optimizer.build(model.trainable_variables)
    found = {
        variable.path
        for variable, velocity in zip(model.trainable_variables, optimizer.adam_velocities)
        if velocity is None
    }
    blocks = (*model.encoder_blocks, *model.decoder_blocks)
    kernels = {w.path for b in blocks for w in b.trainable_variables if w.name == "kernel"}
    assert found == kernels and len(found) == 4 + 7
    assert optimizer.weight_decay is None and optimizer.global_clipnorm == 1.5


def test_the_optimizer_of_translation_is_that_of_the_paper():
    translate = recipe("translate")
    model = types.SimpleNamespace(embed_dim=512)
    config = translate.Config(clip_norm=1.5, warmup_steps=10)
    optimizer = translate.build_optimizer(config, model)
    assert isinstance(optimizer, keras.optimizers.Adam)
    found = [getattr(optimizer, name) for name in ("beta_1", "beta_2", "epsilon")]
    assert found == [0.9, 0.98, 1e-9]
    expected = {"embed_dim": 512, "warmup_steps": 10, "scale": 2.5}
    assert optimizer._learning_rate.get_config() == expected
    assert optimizer.global_clipnorm == 1.5


def test_the_kernel_of_a_convolution_is_trained_as_a_matrix():
    """[H, W, C, F] as [H · W · C, F]; `exclude_layers` names kernels that AdamW trains."""
    random = np.random.default_rng(0)
    start, gradient = random.normal(size=(2, 3, 2, 4, 5)).astype("float32")
    results = {}
    for name in ("convolution", "matrix", "excluded"):
        shape = (24, 5) if name == "matrix" else start.shape
        kernel = keras.Variable(start.reshape(shape), name=name)
        optimizer = Muon(0.1, exclude_layers=["excluded"])
        optimizer.apply([keras.ops.array(gradient.reshape(shape))], [kernel])
        results[name] = kernel.numpy().reshape(start.shape)
    np.testing.assert_array_equal(results["convolution"], results["matrix"])
    changed = np.abs(results["excluded"] - start)  # AdamW's first step: the sign
    np.testing.assert_allclose(changed, 0.1, rtol=1e-2)


def test_the_share_of_initial_weights_in_averages():
    for steps in (1, 9, 30, 700, 39_000):
        momentum = limited_momentum(0.999, steps)
        assert 0 <= momentum <= 0.999 and momentum**steps < 5e-5
    assert limited_momentum(0.999, 39_000) == 0.999
