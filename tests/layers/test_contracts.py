"""Every public layer keeps the promises of `tests/contracts.py`."""

import functools
import inspect

import keras
import numpy as np
import pytest

import zoo
from tests import contracts
from tests.contracts import Case

_RANDOM = np.random.default_rng(0)
_B, _T, _S, _E = 3, 5, 4, 8


def _array(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


def _hiding_a_row(queries, keys):
    mask = np.ones((_B, 1, queries, keys), bool)
    mask[0, :, 1] = False
    return mask


_PADDING = np.arange(_B)[:, None] * np.ones(_T) > 0  # the first sequence is all padding
_ATTENTION = {"num_heads": 2, "key_dim": 3, "value_dim": 5, "dropout": 0.1}
_ATTENTION |= {"qkv_bias": False, "output_bias": False, "kernel_initializer": "he_uniform"}
_ATTENTION |= {"attention": "blockwise"}
_SELF_ATTENTION = {**_ATTENTION, "causal": True}
_BLOCK = {"embed_dim": _E, "num_heads": 2, "ff_dim": 12, "key_dim": 4, "qkv_bias": False}
_BLOCK |= {"dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.1, "layer_scale": 0.5}
_BLOCK |= {"norm": "post", "epsilon": 1e-3, "kernel_initializer": "he_uniform"}
_BLOCK |= {"activation": "silu", "attention": "blockwise", "norm_type": "rms"}
_BLOCK["use_bias"] = False
_SEQUENCE = _array(_B, _T, _E)
_POSITIONS = np.arange(_B * 6, dtype="int32").reshape(_B, 6) % 10
_ONE_ROW = np.zeros((_B, 1), "int32")  # a grid of one patch, whatever it is multiplied by
_IMAGES = _array(_B, 4, 6, 3)
L = zoo.layers


def _case(layer, inputs, *arguments, settings=None, free=(1,), **fields):
    """A `Case` of a layer of that name; all inputs have the same free axes."""
    make = functools.partial(getattr(L, layer), *arguments, **(settings or {}))
    return Case(make, inputs, [free for _ in inputs], **fields)


_OF_ATTENTION = {"mask": _hiding_a_row(_T, _T), "keys": {"mask": 0}, "rates": ("dropout",)}
_RATES = ("dropout", "attention_dropout", "stochastic_depth")
_OF_BLOCK = {**_OF_ATTENTION, "rates": _RATES}
_OF_DECODER = {**_OF_BLOCK, "keys": {"mask": 0, "memory_mask": 1}}
_ALONE = {**_BLOCK, "cross_attention": False}
_CHANNELS = [_array(_B, 5, 4, _E)]
_PLACES = [np.stack([_POSITIONS, _POSITIONS[::-1]], axis=-1)]
CASES = {
    "MultiHeadSelfAttention": _case(
        "MultiHeadSelfAttention", [_SEQUENCE], _E, settings=_SELF_ATTENTION, **_OF_ATTENTION
    ),
    "MultiHeadAttention": _case(
        "MultiHeadAttention",
        [_SEQUENCE, _array(_B, _T, 6)],
        _E,
        settings=_ATTENTION,
        mask=_hiding_a_row(_T, _T),
        keys={"mask": 1},
        rates=("dropout",),
    ),
    "AttentionPool": _case(
        *("AttentionPool", [_SEQUENCE], _E, 2, 12, "silu", 3, 1e-3, "he_uniform", "rms")
    ),
    "FeedForward": _case(
        "FeedForward", [_SEQUENCE], 6, 12, "silu", 0.1, "he_uniform", False, rates=("dropout",)
    ),
    "TransformerEncoder": _case("TransformerEncoder", [_SEQUENCE], settings=_BLOCK, **_OF_BLOCK),
    "TransformerDecoder": _case(
        "TransformerDecoder", [_SEQUENCE, _array(_B, _S, 6)], settings=_BLOCK, **_OF_DECODER
    ),
    "TransformerDecoder, no memory": _case(
        "TransformerDecoder", [_SEQUENCE], settings=_ALONE, **_OF_BLOCK
    ),
    "SSRU": _case(
        *("SSRU", [_array(_B, _T, 6)], _E, "he_uniform"),
        mask=_PADDING,
        keys={"mask": 0},
        for_each_query=False,
    ),
    "Dropout": _case("Dropout", [_SEQUENCE], 0.3, (None, 1, 1), 7),
    "LayerNormalization": _case("LayerNormalization", [_SEQUENCE], 1e-3),
    "RMSNormalization": _case("RMSNormalization", [_SEQUENCE], 1e-3),
    "LayerScale": _case("LayerScale", [_SEQUENCE], 0.3),
    "RelativePositions": _case(
        *("RelativePositions", [_POSITIONS[:, :_T], _POSITIONS[:, :_S]]), 2, 8, 20, False
    )._replace(free=[(1,), ()]),
    "RelativePositionTable": _case(
        "RelativePositionTable", [_ONE_ROW, _ONE_ROW], 2, (2, 3), 1, free=()
    ),
    "RotaryPositions": _case("RotaryPositions", _PLACES, 8, 100.0, 2),
    "RotaryGridPositions": _case("RotaryGridPositions", _PLACES, 8, 50.0, 16.0, True),
    "SinusoidalGridPositions": _case("SinusoidalGridPositions", [_array(_B, 4, 8)], (2, 2)),
    "SinusoidalPositions": _case("SinusoidalPositions", [_SEQUENCE], "halves", 100.0, 3),
    "LearnedPositions": _case("LearnedPositions", [_SEQUENCE], (2, 2), 1, "bilinear"),
    "TokenEmbedding": _case(
        *("TokenEmbedding", [_POSITIONS], 300, _E, "learned", 7, False, 2, True, 1e-3, "rms")
    ),
    "PatchExtract": _case("PatchExtract", [_IMAGES], 2, free=(1, 2)),
    "PatchEmbed": _case("PatchEmbed", [_IMAGES], _E, 2, "he_uniform", free=(1, 2)),
    "PatchDropout": _case("PatchDropout", [_SEQUENCE], 0.5, 1, 7),
    "SqueezeExcite": _case("SqueezeExcite", _CHANNELS, 2, True, free=(1, 2)),
    "ConvBlockAttention": _case("ConvBlockAttention", _CHANNELS, 2, 3, True, free=(1, 2)),
    "ClassToken": _case("ClassToken", [_SEQUENCE], 2, "ones"),
    "RegisterTokens": _case("RegisterTokens", [_SEQUENCE], 2, 1, "ones"),
}
# The others are made with blockwise attention, which is softmax attention for short inputs.
for _class, _arguments, _kind in (
    ("MultiHeadSelfAttention", {"embed_dim": _E, **_SELF_ATTENTION}, "linear"),
    ("TransformerEncoder", _BLOCK, "linear"),
    ("TransformerDecoder", _BLOCK, "linear"),
    ("TransformerDecoder", _BLOCK, "ssru"),
):
    _made = functools.partial(getattr(L, _class), **{**_arguments, "attention": _kind})
    CASES[f"{_class}, {_kind}"] = CASES[_class]._replace(
        make=_made, mask=_PADDING, for_each_query=False
    )
each_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
# Blocks pass masks and rates on to their attention, whatever its kind.
_ONE_BLOCK = {n: c for n, c in CASES.items() if "," not in n or "Transformer" not in n}


def test_no_layer_is_forgotten():
    classes = {name: value for name, value in vars(L).items() if inspect.isclass(value)}
    public = {name for name, value in classes.items() if issubclass(value, keras.layers.Layer)}
    tested = {name.split(",")[0] for name in CASES}
    assert public == {*tested, "TransformerBlock"}, "TransformerBlock is a base"


def test_no_mask_and_no_rate_is_forgotten():
    for name, case in CASES.items():
        taken = [n for n in inspect.signature(case.make().call).parameters if n.endswith("mask")]
        assert taken[: len(case.inputs)] == list(case.keys), name
        rates = [n for n in case.make().get_config() if "dropout" in n or "depth" in n]
        assert sorted(rates) == sorted(case.rates), name


@pytest.mark.parametrize(
    "check",
    [
        contracts.check_config_is_complete,
        contracts.check_symbolic_shape,
        contracts.check_every_weight_learns,
        contracts.check_subclass_config,
        contracts.check_paths,
        contracts.check_any_initializer,
        contracts.check_sublayer_configs,
        contracts.check_all_is_built,
        contracts.check_frozen_stays_frozen,
    ],
    ids=lambda check: check.__name__,
)
@each_layer
def test_contract(case, check):
    check(case)


_EMPTY = {
    # A grid has as many patches as tokens.
    "LearnedPositions": {"make": functools.partial(L.LearnedPositions, 7)},
    "SinusoidalGridPositions": {
        "make": functools.partial(L.SinusoidalGridPositions, (0, 2)),
        "inputs": [_array(_B, 0, 8)],
    },
    "PatchDropout": {"free": [()]},  # in training, their number has to be known
    # The channels of no pixels have no mean. Gradients of the bias of a convolution fail in Keras.
    "SqueezeExcite": {"free": [()]},
    "ConvBlockAttention": {"make": functools.partial(L.ConvBlockAttention, 2, 3), "free": [()]},
}


@pytest.mark.parametrize("name", _ONE_BLOCK)
def test_empty(name, monkeypatch):
    contracts.check_empty(CASES[name]._replace(**_EMPTY.get(name, {})), monkeypatch)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.inputs[0].ndim == 4])
def test_channels_stay_last(name):
    contracts.check_channels_stay_last(CASES[name])


@each_layer
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(case, policy):
    contracts.check_mixed_precision(case, policy)


@pytest.mark.parametrize("name", [name for name, case in _ONE_BLOCK.items() if case.rates])
def test_dropout_acts_in_fit(name):
    contracts.check_dropout_acts_in_fit(CASES[name])


@pytest.mark.parametrize("name", [name for name, case in _ONE_BLOCK.items() if case.keys])
def test_masks(name):
    contracts.check_carried_masks(CASES[name])
    contracts.check_float_masks_are_refused(CASES[name])
