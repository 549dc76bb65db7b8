"""Every model keeps the promises of `tests/contracts.py`."""

import functools
import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests import contracts
from tests.contracts import Case, remade
from zoo import compat
from zoo.errors import UserError

_RANDOM = np.random.default_rng(0)
_IDS = _RANDOM.integers(3, 20, (3, 5)).astype("int32")
_IMAGES = _RANDOM.normal(size=(3, 8, 12, 3)).astype("float32")
# No argument has its default.
_BLOCKS = {**contracts.SIZES, "ff_dim": 24, "key_dim": 4, "qkv_bias": False, "epsilon": 1e-3}
_BLOCKS |= {"kernel_initializer": "he_normal", "remat": True, "norm_type": "rms"}
_OF_TOKENS = {**_BLOCKS, "dropout": 0.2, "attention_dropout": 0.3}
_OF_TOKENS |= {"activation": "silu", "max_length": 11}
VIT = {**_BLOCKS, "input_shape": (8, 12, 3), "num_classes": 5, "patch_size": 4}
VIT |= {"dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.3, "patch_dropout": 0.4}
VIT |= {"num_class_tokens": 2, "num_registers": 3, "pool": "cls+mean", "representation_dim": 12}
VIT |= {"representation_activation": "linear"}
VIT |= {"positions": "sinusoidal", "prefix_positions": False, "interpolation": "bilinear"}
VIT |= {"norm": "post", "normalize_embeddings": True, "normalize_pooled": True}
VIT |= {"layer_scale": 0.5, "activation": "swiglu", "attention": "linear"}
TRANSFORMER = {**_OF_TOKENS, "source_vocab_size": 20, "target_vocab_size": 20, "pad_id": 4}
TRANSFORMER |= {"num_decoder_layers": 1, "decoder_num_heads": 4, "decoder_ff_dim": 20}
TRANSFORMER |= {
    "norm": "pre",
    "positions": "learned",
    "decoder": "ssru",
    "shared": "none",
    "use_bias": False,
}
TRANSFORMER |= {"scale_embeddings": False, "normalize_embeddings": True, "logits_bias": True}
CAUSAL_LM = {**_OF_TOKENS, "vocab_size": 20, "norm": "post", "positions": "relative"}
CAUSAL_LM |= {"tie_weights": False, "attention": "blockwise"}
TEXT_CLASSIFIER = {**_OF_TOKENS, "vocab_size": 20, "num_classes": 5, "pad_id": 4}
TEXT_CLASSIFIER |= {"norm": "pre", "positions": "rotary", "num_token_types": 3}
TEXT_CLASSIFIER |= {"pool": "mean", "pooler": False, "pooler_activation": "relu"}
# Needs patch_dropout=0, its default.
_ROTATION = {"rotation": zoo.layers.RotaryGridPositions(4, 50.0, 8.0, True)}
_WITH_A_CLASS_TOKEN = {"pool": "cls", "norm": "pre", "patch_dropout": 0.0}
_WITH_A_CLASS_TOKEN |= {"positions": "relative", "attention": "blockwise"}
_FIRST_TOKEN = {**contracts.SIZES, "vocab_size": 20, "num_classes": 5}
_PAIR = {"source": _IDS, "target": _IDS[:, :4]}
_ATTENDING = {"decoder": "attention", "positions": "rotary", "decoder_num_heads": None}


def _case(build, inputs, settings, *others):
    """A `Case` of a model; `others` are rates that not all models have."""
    make = functools.partial(_made, build, settings)
    return Case(make, [inputs], [()], rates=("dropout", "attention_dropout", *others))


def _made(build, settings, **changed):
    return build(**{**settings, **changed})


_of_images = functools.partial(_case, zoo.vit, _IMAGES)
_of_pairs = functools.partial(_case, zoo.transformer, _PAIR)
_of_texts = functools.partial(_case, zoo.text_classifier, _IDS)
_ROTARY = {"positions": "rotary", "patch_dropout": 0.0}
CASES = {
    "vit": _of_images(VIT, "stochastic_depth", "patch_dropout"),
    "vit, rotary positions": _of_images({**VIT, **_ROTARY}, "stochastic_depth"),
    "vit, rotation": _of_images({**VIT, **_ROTATION, "patch_dropout": 0.0}, "stochastic_depth"),
    "vit, class token": _of_images({**VIT, **_WITH_A_CLASS_TOKEN}, "stochastic_depth"),
    "vit, learned positions": _of_images({**VIT, "positions": "learned"}, "stochastic_depth"),
    "vit, no head": _of_images({**VIT, "num_classes": 0}, "stochastic_depth", "patch_dropout"),
    "transformer": _of_pairs(TRANSFORMER),
    "transformer, rotary positions": _of_pairs({**TRANSFORMER, **_ATTENDING}),
    "causal_lm": _case(zoo.causal_lm, _IDS, CAUSAL_LM),
    "text_classifier": _of_texts(TEXT_CLASSIFIER),
    "text_classifier, first token": _of_texts(_FIRST_TOKEN),
    "text_classifier, no head": _of_texts({**TEXT_CLASSIFIER, "num_classes": 0}),
}


def shallow(case, **settings):
    """A model of one block, or one of each kind: of others, the layers' contracts say the same."""
    return case._replace(make=functools.partial(case.make, num_layers=1, **settings))


_CLASSES = {name: case for name, case in CASES.items() if "," not in name}  # one case of each


def deep_once(name, **settings):
    """A model of several blocks for one case of each class, and of one block for most others.

    A class token reads positions through the tokens that the block before has changed.
    """
    is_deep = name in _CLASSES or name == "vit, class token"
    case = CASES[name] if is_deep else shallow(CASES[name])
    return case._replace(make=functools.partial(case.make, **settings))


each_class = pytest.mark.parametrize("case", _CLASSES.values(), ids=_CLASSES.keys())


each_model = pytest.mark.parametrize(
    "model, build, settings",
    [
        (zoo.models.ViT, zoo.vit, VIT),
        (zoo.models.Transformer, zoo.transformer, TRANSFORMER),
        (zoo.models.CausalLM, zoo.causal_lm, CAUSAL_LM),
        (zoo.models.EncoderClassifier, zoo.text_classifier, TEXT_CLASSIFIER),
    ],
)


@each_model
def test_no_argument_has_its_default(model, build, settings):
    arguments = contracts.own_arguments(model)
    if model is zoo.models.ViT:
        settings = {**settings, **_ROTATION}
    assert set(settings) == set(arguments)
    assert all(settings[name] != p.default for name, p in arguments.items())


@pytest.mark.parametrize("pad_id", [None, "4", 1.5, [4], True])
@pytest.mark.parametrize("name", ["transformer", "text_classifier"])
def test_the_padding_token_is_an_integer(name, pad_id):
    with pytest.raises(UserError, match="pad_id must be"):
        shallow(CASES[name], pad_id=pad_id).make()


@each_model
def test_help_describes_every_argument(model, build, settings):
    """Each has a line such as ``    num_heads: number of attention heads.``"""
    for described in (model, build):
        names = re.findall(r"^    (\w+): ", inspect.getdoc(described), re.MULTILINE)
        assert set(contracts.own_arguments(model)) <= set(names)
        parameters = inspect.signature(described).parameters.values()
        own = {p.name for p in parameters if p.kind != inspect.Parameter.VAR_KEYWORD}
        assert own <= set(names)


@pytest.mark.parametrize(
    "check",
    [
        contracts.check_every_weight_learns,
        contracts.check_all_is_built,
        contracts.check_frozen_stays_frozen,
    ],
    ids=lambda check: check.__name__,
)
@pytest.mark.parametrize("name", CASES)
def test_contract(name, check):
    check(deep_once(name, remat=False))


@pytest.mark.parametrize(
    "check", [contracts.check_subclass_config, contracts.check_paths], ids=lambda c: c.__name__
)
@each_class
def test_contract_of_a_class(case, check):
    check(case)


@pytest.mark.parametrize("name", CASES)
def test_save_load_save(name, tmp_path):
    contracts.check_save_load_save(deep_once(name), tmp_path, times=1 + (name in _CLASSES))


@each_class
def test_a_subclass_with_arguments_by_name_only(case, tmp_path):
    """It is saved with all of its arguments, whatever the signatures of its methods."""
    given = shallow(case).make().get_config()

    class Scaled(type(shallow(case).make())):
        def __init__(self, **arguments):
            self.scale = arguments.pop("scale", 1.0)
            super().__init__(**arguments)

        def call(self, *args, **arguments):
            return self.scale * super().call(*args, **arguments)

    model = Scaled(**given, scale=3.0)
    expected = ops.convert_to_numpy(model(case.inputs[0]))
    model.save(tmp_path / "model.keras")
    found = keras.saving.load_model(tmp_path / "model.keras", {"Scaled": Scaled})
    assert found.scale == 3.0
    np.testing.assert_allclose(ops.convert_to_numpy(found(case.inputs[0])), expected, atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels of TensorFlow")
@each_class
def test_export_of_a_model_that_was_never_called(case, tmp_path):
    import tensorflow as tf

    made = shallow(case).make()
    model = type(made).from_config(made.get_config())  # not built either
    model.export(tmp_path / "1", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "1")
    found = loaded.serve(keras.tree.map_structure(tf.constant, case.inputs[0]))
    np.testing.assert_allclose(found, model(case.inputs[0]), atol=1e-5)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="as docs/long_sequences.md says"
)
@pytest.mark.parametrize("remat", [False, True])
def test_second_derivatives(remat):
    import tensorflow as tf

    rates = dict.fromkeys(CASES["vit"].rates, 0.0)
    model = shallow(CASES["vit"], remat=remat, attention="softmax", **rates).make()
    images = tf.constant(CASES["vit"].inputs[0])

    def penalty_gradient():
        with tf.GradientTape() as outer:
            outer.watch(images)
            with tf.GradientTape() as tape:
                tape.watch(images)
                loss = tf.reduce_sum(tf.sin(model(images, training=True)))
            penalty = tf.reduce_sum(tape.gradient(loss, images) ** 2)
        return outer.gradient(penalty, images)

    if remat:
        with pytest.raises(NotImplementedError, match="recompute_grad"):
            penalty_gradient()
    else:
        compiled = tf.function(penalty_gradient, autograph=False)
        np.testing.assert_allclose(compiled(), penalty_gradient(), atol=1e-5)


@each_class
def test_remat_may_be_set_later(case):
    """`zoo.training.run.Run` sets it before it saves a model."""
    model = shallow(case, remat=False).make()
    model.remat = True
    assert remade(model).remat is True


@each_class
def test_dropout_acts_in_fit(case):
    contracts.check_dropout_acts_in_fit(shallow(case))


def _trained(case, prepare=lambda model: None, jit_compile=None, **settings):
    """All variables after training with dropout, among them the states of seeds."""
    keras.utils.set_random_seed(0)
    model, [inputs] = case.make(**settings), case.inputs
    prepare(model)
    targets = np.random.default_rng(2).normal(size=model(inputs).shape)
    how = {"jit_compile": jit_compile}
    if jit_compile is None:
        how = {"run_eagerly": contracts.EAGERLY}
    model.compile(keras.optimizers.SGD(0.1), "mse", **how)
    for _ in range(2):
        model.train_on_batch(inputs, targets)
    return [ops.convert_to_numpy(v) for v in model.variables]


def _freeze(model):
    model.get_layer("encoder_0").trainable = False


def _add_lora(model):
    for layer in compat.all_layers(model):
        if layer.name in ("qkv", "hidden"):
            layer.enable_lora(2)


@pytest.mark.parametrize("name", [*_CLASSES, "transformer, rotary positions"])
def test_gradients_of_blocks_that_are_computed_again(name):
    """With `remat`, weights and random numbers are the same but for the order of sums."""
    case = shallow(CASES[name])
    for again, plain in zip(_trained(case, remat=True), _trained(case, remat=False), strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prepare", [_freeze, _add_lora])
def test_frozen_weights_of_blocks_that_are_computed_again(prepare):
    case = shallow(CASES["vit"])
    results = (_trained(case, prepare, remat=remat) for remat in (True, False))
    for again, plain in zip(*results, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow")
@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [("transformer", False), pytest.param("vit, class token", True, marks=pytest.mark.slow)],
)
def test_gradients_in_graphs(name, jit_compile):
    """Those of blocks that are computed again are the same in the graph of a training step."""
    settings = {"dtype": "mixed_bfloat16", "jit_compile": jit_compile}
    results = (_trained(shallow(CASES[name]), **settings, remat=remat) for remat in (True, False))
    for again, plain in zip(*results, strict=True):
        np.testing.assert_allclose(again, plain, atol=2e-3, rtol=2e-2)


@each_class
def test_logits_of_mixed_precision_are_float32(case):
    case = shallow(case)
    model = case.make(dtype="mixed_bfloat16")
    contracts.shake(model)
    logits = model(*case.inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    logits = ops.convert_to_numpy(logits)
    rounded = ops.cast(ops.cast(logits, "bfloat16"), "float32")
    assert np.abs(logits - ops.convert_to_numpy(rounded)).max() > 0, "they were rounded"
    exact = case.make()
    exact.set_weights(model.get_weights())
    exact = ops.convert_to_numpy(exact(*case.inputs))
    # some dozen products of numbers with 8 bits
    assert np.sqrt(np.mean((logits - exact) ** 2)) < 0.1 * np.sqrt(np.mean(exact**2))
    assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in model.weights)


def test_channels_stay_last():
    contracts.check_channels_stay_last(CASES["vit"])


@pytest.mark.ci
@each_class
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_by_keras(case, tmp_path):
    """Every matrix product of a layer that Keras can quantize is one of 8-bit integers.

    Also in a model that was loaded, and built again. Its weights are not saved: Keras could not
    read the file.
    """
    keras.utils.set_random_seed(0)
    model = shallow(case).make()
    expected = ops.convert_to_numpy(model(*case.inputs))
    kernels = sum(w.name == "kernel" and len(w.shape) == 2 for w in model.weights)
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    model.build(keras.tree.map_structure(lambda array: (None, *array.shape[1:]), case.inputs[0]))
    model.quantize("int8")
    for save, name in (
        (model.save, "model.keras"),
        (functools.partial(keras.saving.save_model, model), "int8.keras"),
        (model.save_weights, "int8.weights.h5"),
    ):
        with pytest.raises(UserError, match="before you call `quantize`"):
            save(tmp_path / name)
    dtypes = [keras.backend.standardize_dtype(w.dtype) for w in model.weights]
    assert dtypes.count("int8") >= kernels > 0
    found = ops.convert_to_numpy(model(*case.inputs))
    np.testing.assert_allclose(found, expected, atol=0.2 * np.abs(expected).max())


@pytest.mark.ci
@each_class
def test_empty(case, monkeypatch):
    """No rows, and no tokens; images always have patches."""
    lengths = [(1,) if array.ndim == 2 else () for array in keras.tree.flatten(case.inputs)]
    contracts.check_empty(shallow(case)._replace(free=lengths), monkeypatch)


@each_class
def test_symbolic_shape(case):
    case = shallow(case)
    model, [arrays] = case.make(), case.inputs
    inputs = keras.tree.map_structure(
        lambda a: keras.Input(
            (None,) * (a.ndim - 1) if a.dtype == "int32" else a.shape[1:], dtype=str(a.dtype)
        ),
        arrays,
    )
    expected = model(arrays).shape
    symbolic = model(inputs).shape
    assert symbolic[0] is None and symbolic[-1] == expected[-1]
    assert case.make(dtype="mixed_bfloat16")(inputs).dtype == "float32"
    shapes = {k: v.shape for k, v in arrays.items()} if isinstance(arrays, dict) else arrays.shape
    assert model.compute_output_shape(shapes) == expected
    whole = keras.Model(inputs, keras.layers.Lambda(ops.negative)(model(inputs)))
    np.testing.assert_allclose(
        whole.predict(arrays, verbose=0), -ops.convert_to_numpy(model(arrays)), atol=1e-5
    )


@pytest.mark.parametrize(
    "name, method",
    [
        ("vit", "features"),
        ("vit", "pooled_features"),
        ("transformer", "encode"),
        ("text_classifier", "features"),
        ("text_classifier", "pooled_features"),
    ],
)
def test_methods_take_training(name, method):
    """On every backend, and within the call of another model, which passes it down."""
    model, inputs = shallow(CASES[name], remat=False).make(), CASES[name].inputs[0]
    inputs, method = _IDS if name == "transformer" else inputs, getattr(model, method)
    assert _differ(lambda: method(inputs, training=True))
    assert not _differ(lambda: method(inputs, training=False))
    assert not _differ(lambda: method(inputs))

    class Outer(keras.Model):
        def __init__(self, **settings):
            super().__init__()
            self.settings = settings

        def call(self, x):
            return method(x, **self.settings)

    outer, frozen = Outer(), Outer(training=False)
    assert _differ(lambda: outer(inputs, training=True))
    assert not _differ(lambda: outer(inputs))
    assert not _differ(lambda: frozen(inputs, training=True))


def _differ(function):
    first, second = (ops.convert_to_numpy(function()) for _ in range(2))
    return np.abs(first - second).max() > 0
