"""Every argument of a constructor changes what is computed, or is refused: none is silent.

The layers and models are those of `tests/contracts.py`, in which no argument has its default. Each
argument in turn gets its default, or another value if it has none.
"""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import contracts
from tests.layers.test_contracts import CASES as LAYERS
from tests.models.test_contracts import CASES as MODELS
from zoo.errors import UserError
from zoo.layers.config import ConfigMixin

pytestmark = pytest.mark.slow

OTHER_IMAGES = np.random.default_rng(1).normal(size=(1, 12, 8, 3)).astype("float32")
# Arguments that change nothing in a case, or in any, and why.
ANYWHERE = {
    "remat": "the same numbers, in less memory",
    "max_length": "also the limit of tasks, if positions are not learned",
}
NO_LEARNED_POSITIONS = "only learned positions are of class tokens, and are resized"
OTHERS = ("vit", "vit, rotary positions", "vit, class token")  # without learned positions
WITHOUT_EFFECT = {(name, "prefix_positions"): NO_LEARNED_POSITIONS for name in OTHERS}
WITHOUT_EFFECT |= {(name, "interpolation"): NO_LEARNED_POSITIONS for name in OTHERS}
WITHOUT_EFFECT["vit, class token", "normalize_pooled"] = "the head reads a normalized token, too"
WITHOUT_EFFECT["LearnedPositions", "interpolation"] = "of another grid, as of the model vit"
PLACES = np.arange(30, dtype="int32")[None]
INPUTS = {"RelativePositions": [PLACES, PLACES]}  # some of them far apart


def numbers(cls, config, inputs):
    """What a new layer or model computes, before and after its weights are moved."""
    keras.utils.set_random_seed(0)
    layer = cls.from_config(config)
    found = [layer(*inputs)]
    found += layer.weights
    contracts.shake(layer)
    for training in (False, True):
        found.append(layer(*inputs, training=training))
    if layer.name == "vit":
        found.append(layer(OTHER_IMAGES))
    return [contracts.numpy(array) for array in found]


def another(value):
    if isinstance(value, (int, float)):
        return value * 2
    return None


def check_arguments(name, case):
    """Compares the layer of a case with those in which one argument differs."""
    inputs = INPUTS.get(name, case.inputs)
    cls = type(case.make())
    config = {**case.make().get_config(), **dict.fromkeys(case.rates, 0.5)}
    if name.startswith("Transformer"):
        config["key_dim"] = 6  # that of the case is also the default
    expected = numbers(cls, config, inputs)
    without_effect = set()
    silent = {argument for case_name, argument in WITHOUT_EFFECT if case_name == name}
    for argument, parameter in contracts.own_arguments(cls).items():
        value = parameter.default
        if value is inspect.Parameter.empty:
            value = another(config[argument])
        if value == config[argument] or argument in ANYWHERE:
            continue
        try:
            found = numbers(cls, {**config, argument: value}, inputs)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):  # refused, or on a call
            continue
        if is_equal(found, expected):
            without_effect.add(argument)
    assert without_effect == silent


def is_equal(some, others):
    shapes = [array.shape for array in some]
    if shapes != [array.shape for array in others]:
        return False
    return all(np.array_equal(one, other) for one, other in zip(some, others))


@pytest.mark.parametrize("name", LAYERS)
def test_arguments_of_layers(name):
    check_arguments(name, LAYERS[name])


@pytest.mark.parametrize("name", [name for name in MODELS if "no head" not in name])
def test_arguments_of_models(name):
    check_arguments(name, MODELS[name])


@pytest.mark.parametrize("wrong", ["no", "False", 1, 0, None])
def test_what_is_true_or_false(wrong):
    for case in [*LAYERS.values(), *MODELS.values()]:
        layer = case.make()
        cls = type(layer)
        if not issubclass(cls, ConfigMixin):
            continue
        config = layer.get_config()
        for name, parameter in contracts.own_arguments(cls).items():
            if isinstance(parameter.default, bool):
                with pytest.raises(UserError, match=f"{name} must be True or False"):
                    cls.from_config({**config, name: wrong})
