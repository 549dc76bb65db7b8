"""Keras's global settings: what is built follows them, and results do not change silently.

Every public layer, every model and the functions beside them, what `zoo.load` gives, and `Run`.
"""

import contextlib
import functools
import inspect

import keras
import numpy as np
import pytest
from keras import ops

import zoo
import zoo.training
from tests import contracts
from tests.contracts import call, numpy, remade
from tests.deploy import small_models
from tests.layers.test_contracts import CASES as LAYERS
from tests.models.test_contracts import CASES as MODELS
from tests.models.test_contracts import shallow
from zoo import compat
from zoo.errors import UserError
from zoo.training.mimetic import _start_sinusoidal

only_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tasks and runs are for TensorFlow"
)
CONFIG = keras.config
# What must not change results: (name, read, write, value).
SETTINGS = (
    ("channels_first", CONFIG.image_data_format, CONFIG.set_image_data_format, "channels_first"),
    ("float16", CONFIG.floatx, CONFIG.set_floatx, "float16"),
    ("float64", CONFIG.floatx, CONFIG.set_floatx, "float64"),
    ("epsilon", CONFIG.epsilon, CONFIG.set_epsilon, 0.5),
)
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=[name for name, *_ in SETTINGS])
_IMAGE = np.random.default_rng(0).normal(size=(1, 4, 6, 3)).astype("float32")
_HEADS = np.random.default_rng(1).normal(size=(1, 2, 6, 4)).astype("float32")
_VALID = np.arange(6)[None] < 4
# The arguments of each public function of `zoo.layers`; those of other functions are layers.
FUNCTIONS = {
    "attention_mask": (_VALID,),
    "attention_weights": (_HEADS, _HEADS, None, None, True),
    "blockwise_attention": (_HEADS, _HEADS, _HEADS, None, None, None, True),
    "causal_mask": (5,),
    "geglu_tanh": (_HEADS,),
    "gelu": (_HEADS,),
    "gelu_tanh": (_HEADS,),
    "grid_bias": None,
    "grid_positions": ((2, 3),),
    "image_size": (_IMAGE,),
    "layer_normalization": (_HEADS, np.ones(4, "float32"), np.ones(4, "float32"), 1e-6),
    "linear_attention": (_HEADS, _HEADS, _HEADS, None, None, None, True),
    "linear_attention_weights": (_HEADS, _HEADS, None, None, True),
    "normalization_layer": None,
    "padding_mask": (_VALID,),
    "patch_grid": ((4, 6), 2),
    "quick_gelu": (_HEADS,),
    "rms_normalization": (_HEADS, np.ones(4, "float32"), 1e-6),
    "rotate": (_HEADS, _HEADS[:, :1]),
    "scaled_dot_product_attention": (_HEADS, _HEADS, _HEADS, None, None, None, True),
    "sinusoidal_positions": (5, 4),
    "swiglu": (_HEADS,),
    "unit_normalization": (_HEADS,),
}


@contextlib.contextmanager
def changed(setting):
    _, read, write, value = setting
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextlib.contextmanager
def policy(name):
    with changed((name, CONFIG.dtype_policy, CONFIG.set_dtype_policy, name)):
        yield


@each_setting
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, setting):
    function = getattr(zoo.layers, name)
    arguments = FUNCTIONS[name]
    if arguments is None:
        pytest.skip("makes or calls layers")
    expected = function(*arguments)
    with changed(setting):
        found = function(*arguments)
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected)):
        np.testing.assert_array_equal(numpy(one), numpy(other))
        assert numpy(one).dtype == numpy(other).dtype


def test_no_function_is_forgotten():
    functions = [name for name, value in vars(zoo.layers).items() if inspect.isfunction(value)]
    assert sorted(functions) == sorted(FUNCTIONS)


CASES = {**LAYERS, **{name: shallow(case, remat=False) for name, case in MODELS.items()}}
# Both directions have buckets of their own; a language model has one.
CASES["RelativePositions, both directions"] = LAYERS["RelativePositions"]._replace(
    make=functools.partial(zoo.layers.RelativePositions, 2, 8, 20)
)
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@each_case
def test_what_states_its_dtype(case):
    """A layer that was made before, and one that is made from its config, as a loaded one is."""
    layer = case.make()
    expected = call(case, layer)
    for setting in SETTINGS:
        with changed(setting):
            twin = remade(layer)
            call(case, twin)
            twin.set_weights(layer.get_weights())
            for one in (layer, twin):
                found = call(case, one)
                assert found.dtype == expected.dtype, setting[0]
                np.testing.assert_allclose(
                    *(numpy(found), numpy(expected)), atol=1e-6, rtol=1e-6, err_msg=setting[0]
                )
            trained = call(case, layer, training=contracts.EAGERLY)
            assert trained.dtype == expected.dtype, setting[0]


@each_case
@pytest.mark.parametrize("name", ["mixed_bfloat16", "float64"])
def test_what_follows_a_policy(case, name):
    """All layers have the policy, but for heads and output layers, which have full precision."""
    with policy(name):
        layer = case.make()
        output = call(case, layer)
        expected = keras.layers.Dense(1).dtype_policy
    for part in compat.all_layers(layer):
        if part is getattr(layer, "rotation", None):  # given to the model, which has a copy
            continue
        is_output = isinstance(layer, keras.Model) and "mixed" in name
        allowed = (expected.name, "float32") if is_output else (expected.name,)
        assert part.dtype_policy.name in allowed, part.path
    assert layer.dtype_policy.name == name
    weights = {keras.backend.standardize_dtype(weight.dtype) for weight in layer.weights}
    assert weights <= {expected.variable_dtype}
    dtype = layer.variable_dtype if isinstance(layer, keras.Model) else expected.compute_dtype
    assert keras.backend.standardize_dtype(output.dtype) == dtype


@only_tensorflow
@pytest.mark.parametrize("floatx, dtype", [("float16", "float32"), ("float32", "float64")])
def test_recomputed_blocks(floatx, dtype):
    """Weights are not cast to `floatx` where a block is recomputed."""
    case = shallow(MODELS["causal_lm"], dtype=dtype)
    losses = []
    with changed((None, CONFIG.floatx, CONFIG.set_floatx, floatx)):
        for remat in (False, True):
            keras.utils.set_random_seed(0)
            model = case.make(remat=remat, dropout=0.0, attention_dropout=0.0)
            model.compile("sgd", lambda _, y: ops.mean(ops.square(y)), run_eagerly=True)
            inputs = case.inputs[0]
            losses.append([model.train_on_batch(inputs, inputs) for _ in range(2)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)  # Keras adds losses in `floatx`


def test_mimetic_positions_have_the_dtype_of_the_weights():
    tables = []
    for name in ("float32", "mixed_bfloat16"):
        with policy(name):
            positions = zoo.layers.LearnedPositions((2, 3))
            positions.build((None, 6, 8))
            _start_sinusoidal(positions)
            tables.append(numpy(positions.embeddings))
    np.testing.assert_array_equal(tables[0], tables[1])


def _answers(folder):
    """What the tasks that are saved in a folder answer."""
    translator = zoo.load(folder / "translator")
    generator = zoo.load(folder / "generator")
    classifier = zoo.load(folder / "classifier")
    texts = ["the cat sat on the dog.", "the mat"]
    options = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "min_length": 3}
    images = list(small_models.random_images(classifier, 2))
    classes = classifier(images, top_k=4)
    return (
        [translator(texts, max_length=9, **options), translator(texts, beam_size=1, max_length=9)],
        [translator(texts, max_length=9, target_prefix="the")],
        [
            [
                [one.text for one in row]
                for row in generator.sample(texts, max_new_tokens=5, seed=3)
            ],
            generator(texts, max_new_tokens=5, beam_size=2),
        ],
        [[label for label, _ in row] for row in classes],
        np.array([[score for _, score in row] for row in classes]),
        np.asarray(classifier.preprocess(images)),
        np.asarray(translator.score(texts, texts)),
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    small_models.small_translator(positions="relative").save(folder / "translator")
    small_models.small_generator(positions="rotary").save(folder / "generator")
    small_models.small_classifier(positions="relative").save(folder / "classifier")
    return folder, _answers(folder)


SETTINGS_OF_TASKS = (
    *SETTINGS[:3],
    ("float64", CONFIG.dtype_policy, CONFIG.set_dtype_policy, "float64"),
    ("int8", CONFIG.dtype_policy, CONFIG.set_dtype_policy, "int8_from_float32"),
    ("steps", CONFIG.max_steps_per_epoch, CONFIG.set_max_steps_per_epoch, 1),
)


@only_tensorflow
@pytest.mark.ci
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, marks=pytest.mark.slow if setting[0] == "float64" else ())
        for setting in SETTINGS_OF_TASKS
    ],
    ids=lambda setting: setting[0],
)
def test_loaded_runs_answer_the_same(saved, setting):
    folder, expected = saved
    with changed(setting):
        found = _answers(folder)
    for one, other in zip(found, expected):
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-5)
        else:
            assert one == other


@only_tensorflow
@pytest.mark.parametrize(
    "setting",
    [
        ("epochs", CONFIG.max_epochs, CONFIG.set_max_epochs, 1),
        ("steps", CONFIG.max_steps_per_epoch, CONFIG.set_max_steps_per_epoch, 1),
        ("bfloat16", CONFIG.floatx, CONFIG.set_floatx, "bfloat16"),
    ],
    ids=lambda setting: setting[0],
)
def test_runs_refuse_limits_and_sums_in_bfloat16(setting, tmp_path):
    import tensorflow as tf

    run = zoo.training.Run(out=tmp_path / "run")
    with run.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    batches = tf.data.Dataset.from_tensors((np.ones((2, 2)), np.ones((2, 1)))).repeat(2)
    message = rf"(max_{setting[0]}\w*|floatx)\(\) is {setting[-1]}"
    with changed(setting), pytest.raises(UserError, match=message):
        run.train(model, batches, epochs=2)
    assert not list(tmp_path.rglob("*.json"))
