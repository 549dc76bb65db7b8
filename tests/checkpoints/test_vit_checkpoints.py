"""Published Vision Transformers give the logits of the libraries that published them.

The goldens were recorded by tests/parity/record_*.py.
"""

import inspect
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import zoo
from tests.checkpoints import drawn, text_folders
from tests.deploy.small_models import small_classifier
from zoo.checkpoints import CheckpointError
from zoo.checkpoints.formats import hugging_face_vit
from zoo.models.copying import copy_model
from zoo.tasks.classifier import PROBLEMS

GOLDENS = pathlib.Path(__file__).parent / "goldens"
HUGGING_FACE, TIMM, GOOGLE = (
    json.loads((GOLDENS / f"{name}.json").read_text())["kinds"]
    for name in ("hugging_face_vit", "timm_vit", "google_vit")
)
# Sums of a few hundred float32 products of numbers around 1.
TOLERANCE = 1e-4


def write_folder(folder, golden, **changed):
    """Hugging Face's layout."""
    return text_folders.write(folder, golden["config"], golden["shapes"], {}, **changed)


MODULES = {  # names in files, and those of modules since transformers 5
    ("attention.attention.query.", "attention.q_proj."),
    ("attention.attention.key.", "attention.k_proj."),
    ("attention.attention.value.", "attention.v_proj."),
    ("attention.output.dense.", "attention.o_proj."),
}
MODULES_OF_VIT = {("encoder.layer.", "layers."), ("intermediate.dense.", "mlp.fc1.")}


@pytest.mark.parametrize("kind, names", [("vit", MODULES_OF_VIT), ("dinov2", set())])
def test_names_of_modules(kind, names, tmp_path):
    """torch.save(model.state_dict()) writes them, and buffers."""
    folder = write_folder(tmp_path / "model", HUGGING_FACE[kind])
    expected = zoo.load(folder).model(drawn.images(32, 32))
    tensors = {"embeddings.position_ids": np.arange(17)}
    for name, value in drawn.tensors(HUGGING_FACE[kind]["shapes"]).items():
        for file, module in MODULES | names:
            name = name.replace(file, module)
        tensors[name.replace("0.output.dense.", "0.mlp.fc2.")] = value
    save_file(tensors, folder / "model.safetensors")
    assert not any("query" in name for name in tensors)
    np.testing.assert_array_equal(zoo.load(folder).model(drawn.images(32, 32)), expected)


def write_npz(path, golden, change=lambda tensors: tensors):
    tensors = change(drawn.tensors(golden["shapes"]))
    np.savez(path, **{golden["prefix"] + name: value for name, value in tensors.items()})
    return path


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_hugging_face(kind, tmp_path):
    golden = HUGGING_FACE[kind]
    images = drawn.images(32, 32)
    folder = write_folder(tmp_path / "model", golden)
    if kind.endswith("no head"):
        found = zoo.load(folder).model(images)
        np.testing.assert_allclose(found, np.array(golden["outputs"])[:, 0], atol=TOLERANCE)
        found = zoo.load(folder, num_classes=3).model.features(images)
    else:
        classifier = zoo.load(folder)
        found = classifier.model(images)
        assert classifier.class_names == [f"LABEL_{index}" for index in range(5)]
    np.testing.assert_allclose(found, golden["outputs"], atol=TOLERANCE)


@pytest.mark.parametrize("kind", TIMM)
def test_timm(kind, tmp_path):
    golden = TIMM[kind]
    path = tmp_path / "vit.safetensors"
    save_file(drawn.tensors(golden["shapes"]), path)
    for size, expected in golden["logits"].items():
        height, width = map(int, size.split("x"))
        options = {"num_heads": golden["num_heads"], "input_shape": (height, width, 3)}
        classifier = zoo.load(path, **options)
        found = classifier.model(drawn.images(height, width))
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
        assert classifier.preprocessing.image_size == (height, width)


def in_bfloat16(tensors):
    return {name: value.astype(ml_dtypes.bfloat16) for name, value in tensors.items()}


@pytest.mark.parametrize("kind", GOOGLE)
def test_google(kind, tmp_path):
    golden = GOOGLE[kind]
    images = drawn.images(32, 32)
    expected = golden["logits"]["32x32"]
    found = zoo.load(write_npz(tmp_path / "a.npz", golden)).model(images)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    found = zoo.load(write_npz(tmp_path / "b.npz", golden, drawn.scanned)).model(images)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    found = zoo.load(write_npz(tmp_path / "c.npz", golden, in_bfloat16)).model(images)
    # weights of 8 bits: 0.4 % each
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_google_with_a_representation_layer(tmp_path):
    """The logits of the 21,843 classes are those of the head on tanh of the layer."""
    golden = {**GOOGLE["vision_transformer"], "prefix": "params/img/"}
    shapes = {**golden["shapes"], "pre_logits/kernel": [24, 24], "pre_logits/bias": [24]}
    shapes |= {"head/kernel": [24, 21843], "head/bias": [21843]}
    path = write_npz(tmp_path / "a.npz", {**golden, "shapes": shapes})
    model = zoo.load(path).model
    images = drawn.images(32, 32)
    tensors = drawn.tensors(shapes)
    hidden = model.features(images)[:, 0] @ tensors["pre_logits/kernel"]
    hidden = np.tanh(hidden + tensors["pre_logits/bias"])
    np.testing.assert_allclose(model.pooled_features(images), hidden, atol=TOLERANCE)
    expected = hidden @ tensors["head/kernel"] + tensors["head/bias"]
    np.testing.assert_allclose(model(images), expected, atol=TOLERANCE)


def test_google_without_positions(tmp_path):
    """big_vision's fixed positions, which are those of a layer here."""
    golden = GOOGLE["big_vision, mean"]
    shapes = {k: v for k, v in golden["shapes"].items() if k != "pos_embedding"}
    path = write_npz(tmp_path / "a.npz", {**golden, "shapes": shapes})
    model = zoo.load(path, input_shape=(32, 32, 3)).model
    assert model.positions == "sinusoidal" and model.pool == "mean"


def test_square_patches_written_as_two_sides(tmp_path):
    golden = HUGGING_FACE["vit"]
    side = golden["config"]["patch_size"]
    folder = write_folder(tmp_path / "model", golden, patch_size=[side, side])
    assert zoo.load(folder).model.patch_size == side


@pytest.mark.parametrize(
    "change, message",
    [
        ({"without": ["vit.layernorm.bias"]}, "Tensors that are missing: layernorm.bias"),
        ({"num_hidden_layers": 1}, "no place in the model: encoder.layer.1.attention"),
        ({"hidden_size": 48}, "would give .* the shape"),
        ({"num_attention_heads": 5}, "num_heads must divide embed_dim"),
        ({"hidden_act": "mish"}, "the activation 'mish' is not supported"),
        ({"model_type": "swin"}, "the model 'swin' is not supported"),
        ({"id2label": {"0": "cat"}}, "would give head/kernel the shape"),
        ({"image_size": 16}, "17 positions, which do not fit 16 x 16 pixels"),
        ({"image_size": 10**9}, "do not fit 1000000000 x 1000000000 pixels"),
        ({"patch_size": [8, 4]}, r"patch_size=\[8, 4\] is not supported"),
        ({"problem_type": "regression"}, "5 outputs and problem_type 'regression'"),
    ],
)
def test_mismatches_are_named(change, message, tmp_path):
    folder = write_folder(tmp_path / "model", HUGGING_FACE["vit"], **change)
    with pytest.raises(CheckpointError, match=message) as error:
        zoo.load(folder)
    assert str(tmp_path) in str(error.value)


def test_a_head_with_one_output(tmp_path, capsys):
    """Of a regression: it is not a classifier, but may get another head."""
    golden = HUGGING_FACE["vit"]
    shapes = {name: list(shape) for name, shape in golden["shapes"].items()}
    for name in ("classifier.weight", "classifier.bias"):
        shapes[name][0] = 1
    folder = write_folder(tmp_path / "a", {**golden, "shapes": shapes}, id2label={"0": "score"})
    for problem in (None, "regression", "single_label_classification"):
        write_folder(folder, {**golden, "shapes": shapes}, problem_type=problem)
        with pytest.raises(CheckpointError, match="has 1 outputs and .* as in a regression"):
            zoo.load(folder)
    zoo.load(folder, num_classes=1)
    assert "the classification head is new, with 1 classes" in capsys.readouterr().out
    names = {"id2label": {"0": "cat"}, "problem_type": "multi_label_classification"}
    write_folder(folder, {**golden, "shapes": shapes}, **names)
    classifier = zoo.load(folder)
    assert (classifier.problem, classifier.class_names) == ("multi_label", ["cat"])


def test_a_ratio_of_widths_may_be_a_float(tmp_path):
    golden = HUGGING_FACE["dinov2"]
    ratio = float(golden["config"].get("mlp_ratio", 4))
    folder = write_folder(tmp_path / "a", golden, mlp_ratio=ratio)
    assert zoo.load(folder).model.ff_dim == ratio * golden["config"]["hidden_size"]


def timm_folder(folder, width, **config):
    shapes = TIMM["distilled"]["shapes"]
    shapes = {k: [width if n == 24 else n for n in shape] for k, shape in shapes.items()}
    shapes = {k: [3 * width if n == 72 else n for n in shape] for k, shape in shapes.items()}
    folder.mkdir()
    save_file(drawn.tensors(shapes), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "architecture, width, heads, activation",
    [
        # the widths are smaller than those of timm: many have their number of heads
        ("vit_small_patch16_224", 384, 6, "gelu"),
        ("vit_giantopt_patch16_siglip_gap_256", 48, 16, "gelu_tanh"),
        ("vit_base_patch32_siglip_gap_256", 192, 3, "gelu_tanh"),
        ("vit_base_patch16_siglip_gap_224", 192, 3, "gelu"),
        ("vit_base_patch16_gap_224", 48, 16, "gelu"),
    ],
)
def test_what_only_the_name_of_a_model_of_timm_says(
    architecture, width, heads, activation, tmp_path
):
    model = zoo.load(timm_folder(tmp_path / "a", width, architecture=architecture)).model
    assert (model.num_heads, model.activation) == (heads, activation)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"architecture": "vit_base_patch16_rpn_224"}, "vit_base_patch16_rpn_224 is not supported"),
        ({"model_args": {"act_layer": "relu", "depth": 2}}, "act_layer is not supported"),
        ({"architecture": "vit_huge"}, "does not say how many heads it has: pass num_heads"),
        ({"crop_mode": "border", "num_heads": 3}, "crop_mode='border' is not supported"),
        ({"interpolation": "lanczos", "num_heads": 3}, "'lanczos' is not supported"),
        ({"global_pool": "prr", "num_heads": 3}, "global_pool='prr' is not supported"),
        ({"input_size": [3, 64, 32], "num_heads": 3}, "do not fit 64 x 32 pixels"),
        ({"model_args": {"num_heads": 5}}, "num_heads must divide embed_dim"),
    ],
)
def test_models_of_timm_that_are_not_supported(config, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        zoo.load(timm_folder(tmp_path / "a", 24, **{"architecture": "vit", **config}))


def test_preprocessing_follows_the_folder(tmp_path):
    folder = write_folder(tmp_path / "model", HUGGING_FACE["vit"])
    settings = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 40},
        "crop_size": {"height": 32, "width": 32},
        "do_center_crop": True,
        "resample": 3,
        "rescale_factor": 0.003921568859368563,  # in float32
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    found = zoo.load(folder).preprocessing
    assert found.resize == 40 and found.interpolation == "bicubic"
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert zoo.load(folder, input_shape=(64, 64, 3)).preprocessing.resize == 80
    (folder / "preprocessor_config.json").write_text('{"resample": 5, "size": 32}')
    with pytest.raises(CheckpointError, match="resample=5 is not supported"):
        zoo.load(folder)
    no_rescale = '{"do_rescale": false, "rescale_factor": null, "size": 32}'
    (folder / "preprocessor_config.json").write_text(no_rescale)
    with pytest.raises(CheckpointError, match="do_rescale=False is not supported"):
        zoo.load(folder)
    settings |= {"crop_size": {"height": 48, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"crop_size \(48, 32\) is larger than size 40"):
        zoo.load(folder)


@pytest.mark.parametrize(
    "processor, settings, resize, mean",
    [
        ("DeiT", {"size": 40, "crop_size": 32}, (40, 40), 0.5),
        ("Bit", {"size": 40, "crop_size": 32}, 40, 0.481),
        ("ViT", {"size": [32, 32], "image_mean": None, "resample": None}, (32, 32), 0.5),
    ],
)
def test_defaults_of_image_processors(processor, settings, resize, mean, tmp_path, recwarn):
    """The defaults are those of transformers; ignored settings that affect pixels are named."""
    folder = write_folder(tmp_path / "model", HUGGING_FACE["vit"])
    path = folder / "preprocessor_config.json"
    settings |= {"image_processor_type": f"{processor}ImageProcessor", "do_convert_rgb": True}
    path.write_text(json.dumps({**settings, "crop_pct": None}))
    found = zoo.load(folder).preprocessing
    assert (found.resize, found.image_size) == (resize, (32, 32))
    assert found.mean[0] == pytest.approx(mean, abs=1e-3)
    assert not [warning for warning in recwarn if "are ignored" in str(warning.message)]
    path.write_text(json.dumps({**settings, "crop_pct": 0.9, "do_pad": True}))
    with pytest.warns(UserWarning, match="are ignored: crop_pct=0.9, do_pad=True"):
        zoo.load(folder)
    path.write_text(json.dumps({**settings, "size": {"shortest_edge": 32, "longest_edge": 40}}))
    with pytest.raises(CheckpointError, match="the size {.*'longest_edge': 40} is not supported"):
        zoo.load(folder)


def test_dinov2_has_the_image_size_of_its_processor(tmp_path):
    """It was trained at 518 and is mostly used at 224; the positions are resized."""
    folder = write_folder(tmp_path / "model", HUGGING_FACE["dinov2"])
    settings = {"size": {"shortest_edge": 20}, "crop_size": 16, "do_center_crop": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    classifier = zoo.load(folder)
    assert tuple(classifier.model.input_shape) == (16, 16, 3)
    assert (classifier.preprocessing.image_size, classifier.preprocessing.resize) == ((16, 16), 20)
    native = zoo.load(folder, input_shape=(32, 32))
    assert (native.preprocessing.image_size, native.preprocessing.resize) == ((32, 32), 40)


def test_class_names_are_in_the_order_of_their_numbers(tmp_path):
    """And not in that of config.json, which is often that of strings: 0, 1, 10, 2."""
    names = {str(index): f"class {index}" for index in (4, 0, 2, 1, 3)}
    folder = write_folder(tmp_path / "model", HUGGING_FACE["vit"], id2label=names)
    assert zoo.load(folder).class_names == [f"class {index}" for index in range(5)]
    write_folder(folder, HUGGING_FACE["vit"], id2label={"cat": 0})
    with pytest.raises(CheckpointError, match="id2label does not name classes 0, 1"):
        zoo.load(folder)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_saved_and_loaded(problem, tmp_path):
    classifier = small_classifier(image=(8, 8, 1), activation="quick_gelu", qkv_bias=False)
    classifier.problem = problem
    zoo.save_hf(classifier, tmp_path / "hf")
    loaded = zoo.load(tmp_path / "hf")
    assert (loaded.class_names, loaded.problem) == (classifier.class_names, problem)
    # the longer side is rounded in the zoo, and rounded down in Hugging Face's processors
    images = [np.random.default_rng(0).integers(0, 256, (11, 22, 3), dtype=np.uint8)]
    assert loaded.preprocessing.normalize(np.ones(1)) == classifier.preprocessing.normalize([1])
    np.testing.assert_array_equal(loaded.probabilities(images), classifier.probabilities(images))
    for taken in ("hf", "hf/config.json"):
        with pytest.raises(CheckpointError, match=f"{taken} is a file or not empty"):
            zoo.save_hf(classifier, tmp_path / taken)


def test_a_run_takes_the_options_of_published_weights(tmp_path, capsys):
    """A folder of Hugging Face with the same weights gives the same."""
    classifier = small_classifier(image=(8, 8, 1))
    classifier.problem = "multi_label"
    classifier.save(tmp_path / "run")
    zoo.save_hf(classifier, tmp_path / "hf")
    options = {"num_classes": 7, "input_shape": (12, 12), "dropout": 0.1}
    run, other = (zoo.load(tmp_path / name, **options) for name in ("run", "hf"))
    assert "run: the classification head is new, with 7 classes" in capsys.readouterr().out
    assert run.model.input_shape == (12, 12, 1) and run.model.dropout == 0.1
    assert run.problem == other.problem == "multi_label"
    assert run.preprocessing.image_size == (12, 12) and len(run.class_names) == 7
    classifier.model = copy_model(classifier.model, dtype="mixed_bfloat16")
    classifier.save(tmp_path / "mixed")
    policies = [
        zoo.load(tmp_path / "mixed", dropout=0.1, dtype=dtype).model.dtype_policy.name
        for dtype in (None, "float32")
    ]
    assert policies == ["mixed_bfloat16", "float32"]
    images = np.random.default_rng(0).normal(size=(2, 12, 12, 1)).astype("float32")
    np.testing.assert_array_equal(run.model.features(images), other.model.features(images))
    with pytest.raises(CheckpointError, match="depth"):
        zoo.load(tmp_path / "run", depth=3)


def test_a_run_with_tables_of_biases_takes_another_image_size(tmp_path):
    """Resized at loading as those of the published file, and as by the model for larger images."""
    save_file(drawn.tensors(TIMM["BEiT"]["shapes"]), tmp_path / "beit.safetensors")
    published = zoo.load(tmp_path / "beit.safetensors")
    published.save(tmp_path / "run")
    images = drawn.images(48, 64)
    expected = published.model(images)
    for path in (tmp_path / "beit.safetensors", tmp_path / "run"):
        found = zoo.load(path, input_shape=(48, 64)).model(images)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_every_argument_is_written_or_must_have_one_value():
    """Or is among these, which `contents` writes, or which change nothing in use."""
    written = {"input_shape", "num_classes", "activation", "dropout", "attention_dropout"}
    checked = {"attention", "norm_type"}
    of_others = {"interpolation", "representation_activation"}  # of positions that are resized
    of_training = {"patch_dropout", "stochastic_depth", "kernel_initializer", "remat"}
    others = {"self", "kwargs"} | written | checked | of_others | of_training
    known = {*hugging_face_vit.ARGUMENTS, *hugging_face_vit.REQUIRED, *others}
    assert {*inspect.signature(zoo.models.ViT.__init__).parameters} == known


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"pool": "mean", "num_registers": 2}, "pool='mean', num_class_tokens=0, num_registers=2"),
        ({"activation": "swiglu", "attention": "linear"}, "'swiglu', attention='linear'"),
        ({"image": (8, 12, 3)}, r"input_shape=\(8, 12, 3\)"),
        ({"rotation": zoo.layers.RotaryGridPositions(8)}, "rotation="),
    ],
)
def test_what_hugging_face_does_not_have(settings, message, tmp_path):
    classifier = small_classifier(**{"image": (8, 8, 3), **settings})
    with pytest.raises(CheckpointError, match=message):
        zoo.save_hf(classifier, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    with pytest.raises(CheckpointError, match="writes an ImageClassifier"):
        zoo.save_hf(classifier.model, tmp_path / "hf")


def test_pixels_that_fill_no_patch(tmp_path):
    """transformers and timm leave them out; its folders say so by the size of the images only."""
    folder = write_folder(tmp_path / "model", HUGGING_FACE["vit"], image_size=37)
    classifier = zoo.load(folder)
    assert classifier.model.input_shape == (32, 32, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (37, 37, 3), "uint8")
    np.testing.assert_array_equal(classifier.preprocessing.read(pixels), pixels[:32, :32])
    classifier.save(tmp_path / "run")
    assert zoo.load(tmp_path / "run").preprocessing == classifier.preprocessing
    with pytest.raises(CheckpointError, match=r"crop_size=\(37, 37\)"):
        zoo.save_hf(classifier, tmp_path / "hf")


def test_a_new_head_keeps_the_trained_normalization_before_it(tmp_path):
    """As in timm, whose new head follows the same `fc_norm`; of a run too."""
    golden = TIMM["mean"]
    path = tmp_path / "vit.safetensors"
    save_file(drawn.tensors(golden["shapes"]), path)
    published = zoo.load(path, num_heads=golden["num_heads"])
    published.save(tmp_path / "run")
    expected = published.model.pooled_features(drawn.images(32, 32))
    for source, options in ((path, {"num_heads": golden["num_heads"]}), (tmp_path / "run", {})):
        found = zoo.load(source, num_classes=7, **options).model
        assert found.num_classes == 7
        np.testing.assert_array_equal(found.pooled_features(drawn.images(32, 32)), expected)


@pytest.mark.parametrize(
    "others",
    [
        ["head.mlp.0.weight", "head.last_layer.weight_g"],  # DINO's
        ["dino_head.mlp.0.weight", "ibot_head.mlp.0.weight"],  # DINOv2's
        ["decoder_embed.weight", "decoder_blocks.0.attn.qkv.weight", "decoder_pos_embed"],  # MAE's
    ],
)
def test_heads_of_pre_training_are_left_out_and_named(others, tmp_path, capsys):
    golden = TIMM["mean"]
    path = tmp_path / "vit.safetensors"
    tensors = drawn.tensors({k: v for k, v in golden["shapes"].items() if "head" not in k})
    found = []
    images = drawn.images(32, 32)
    for beside in ({}, {name: np.ones(3, "float32") for name in others}):
        save_file({**tensors, **beside}, path)
        found.append(zoo.load(path, num_heads=golden["num_heads"]).model(images))
        classifier = zoo.load(path, num_heads=golden["num_heads"], num_classes=2)
        assert len(classifier.class_names) == 2
        parts = {name.split(".")[0] for name in beside} - {"decoder_pos_embed"}
        told = f" Not used: {', '.join(sorted(parts))}.\n" if parts else "pass num_classes.\n"
        assert told in capsys.readouterr().out
    np.testing.assert_array_equal(*found)


def test_timm_with_a_representation_layer(tmp_path):
    """As in early versions of timm: tanh of a dense layer before the head."""
    golden = TIMM["distilled"]
    path = tmp_path / "vit.safetensors"
    shapes = {k: v for k, v in golden["shapes"].items() if not k.startswith(("dist", "head_dist"))}
    shapes["pos_embed"] = [1, shapes["pos_embed"][1] - 1, 24]
    shapes |= {"pre_logits.fc.weight": [8, 24], "pre_logits.fc.bias": [8], "head.weight": [5, 8]}
    tensors = drawn.tensors(shapes)
    save_file(tensors, path)
    model = zoo.load(path, num_heads=3).model
    images = drawn.images(32, 32)
    hidden = model.features(images)[:, 0] @ tensors["pre_logits.fc.weight"].T
    hidden = np.tanh(hidden + tensors["pre_logits.fc.bias"])
    expected = hidden @ tensors["head.weight"].T + tensors["head.bias"]
    np.testing.assert_allclose(model(images), expected, atol=TOLERANCE)


def test_three_means_for_one_channel(tmp_path):
    """As transformers writes them for models of gray images."""
    golden = HUGGING_FACE["vit"]
    [kernel] = [name for name in golden["shapes"] if name.endswith("projection.weight")]
    width, _, *patch = golden["shapes"][kernel]
    shapes = {**golden["shapes"], kernel: [width, 1, *patch]}
    folder = write_folder(tmp_path / "a", {**golden, "shapes": shapes}, num_channels=1)
    settings = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "size": 32}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    found = zoo.load(folder).preprocessing
    assert found.channels == 1
    np.testing.assert_allclose([found.mean, found.std], [[0.2], [0.5]])
