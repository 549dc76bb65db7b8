"""Features of images and texts are those of the model, alone and in any batch, saved or not."""

import functools
import json

import numpy as np
import pytest

import zoo
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.text_folders import LINES, write_files, xlm_roberta_tokenizer
from tests.deploy.small_models import small_classifier, small_text_classifier
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError
from zoo.errors import TaskError, UserError
from zoo.tasks import task
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.encoder import ImageEncoder, TextEncoder

IMAGES = [np.random.default_rng(n).integers(0, 256, (9 + n, 20, 3), np.uint8) for n in range(3)]
TEXTS = ["The cat sat.", "", "a dog", LINES[0], "the cat and the dog"]
# the same float32 operations in another order
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """What a test loads is called once or twice: no graph is traced, but for the fixtures."""

    def uncompiled(graph, specs, jit_compile, attributes, **constants):
        return functools.partial(graph, **constants)

    monkeypatch.setattr(task, "_compiled", uncompiled)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run, an image classifier."""
    folder = tmp_path_factory.mktemp("run")
    small_classifier(image=(8, 12, 3)).save(folder)
    return folder


@pytest.fixture(scope="module")
def images(run):
    return zoo.load(run, num_classes=0)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return zoo.load(folder_of(tmp_path_factory.mktemp("bert"), "bert, no head"))


@pytest.fixture(params=["images", "texts"])
def encoder(request):
    """(encoder, items)"""
    items = {"images": IMAGES, "texts": TEXTS}[request.param]
    return request.getfixturevalue(request.param), items


def test_features_are_the_input_of_the_head(run, images):
    classifier = zoo.load(run)
    expected = classifier.model.pooled_features(classifier.preprocess(IMAGES))
    assert type(images) is ImageEncoder and images(IMAGES).dtype == np.float32
    np.testing.assert_allclose(images(IMAGES), expected, atol=TOLERANCE)


def test_an_item_does_not_depend_on_the_others(encoder):
    encoder, items = encoder
    together = encoder(items * 30)
    for index, item in enumerate(items):
        [alone] = encoder([item])
        found = together[index :: len(items)]
        np.testing.assert_allclose(found, [alone] * 30, atol=TOLERANCE)
    assert encoder([]).shape == (0, encoder.model.num_features)


def test_similarity(encoder):
    encoder, items = encoder
    features = encoder(items)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    found = encoder.similarity(items, items[:2])
    assert found.shape == (len(items), 2) and found.dtype == np.float32
    np.testing.assert_allclose(found, unit @ unit[:2].T, atol=TOLERANCE)
    np.testing.assert_allclose(encoder.similarity(features, items[:2]), found, atol=TOLERANCE)
    assert not encoder.similarity(features * 0, features).any()  # nor NaN
    assert encoder.similarity([], items).shape == (0, len(items))
    with pytest.raises(TaskError, match=r"must be \[B, E\]. Received: .*7\)"):
        encoder.similarity(items, np.ones((2, 7)))


def test_saved_and_loaded(encoder, tmp_path, capsys):
    encoder, items = encoder
    encoder.save(tmp_path)
    again = zoo.load(tmp_path)
    assert type(again) is type(encoder) and again.description() == encoder.description()
    np.testing.assert_allclose(again(items), encoder(items), atol=TOLERANCE)
    half = zoo.load(tmp_path, dtype="bfloat16")(items)
    assert half.dtype == np.float32 and (half != encoder(items)).any()
    capsys.readouterr()
    assert main(["info", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["type"] == type(encoder.model).__name__
    for command in ("classify", "translate", "generate"):
        assert main([command, str(tmp_path), "x"]) == 2
        assert "Encoder in" in (error := capsys.readouterr().err) and "zoo export" in error
    with pytest.raises(UserError, match="Received: .*Encoder"):
        zoo.load(tmp_path, engine="onnxruntime")
    with pytest.raises(UserError, match="Received: .*Encoder"):
        zoo.load(tmp_path, dtype="int8")


def test_arguments_of_a_saved_encoder(images, tmp_path):
    images.save(tmp_path)
    classifier = zoo.load(tmp_path, num_classes=2)
    assert type(classifier) is ImageClassifier and classifier.class_names == ["0", "1"]
    inputs = classifier.preprocess(IMAGES)
    expected = images.model.pooled_features(inputs)
    np.testing.assert_allclose(classifier.model.pooled_features(inputs), expected, atol=TOLERANCE)
    assert zoo.load(tmp_path, input_shape=(16, 16))(IMAGES).shape == (3, 16)
    for wrong in (-1, True, 2.0):
        with pytest.raises(UserError, match="num_classes must be an integer from 0 to"):
            zoo.load(tmp_path, num_classes=wrong)


def test_a_head_is_refused():
    with pytest.raises(TaskError, match="num_classes=0. Received: 4"):
        ImageEncoder(small_classifier().model, small_classifier().preprocessing)
    classifier = small_text_classifier()
    with pytest.raises(TaskError, match="num_classes=0. Received: 3"):
        TextEncoder(classifier.model, classifier.tokenizer)


def sentence_encoder(folder, modules=("Transformer", "Pooling"), pooling=None, **files):
    """A folder of sentence-transformers: that of a BERT and its files, {name: content}."""
    folder = folder_of(folder, "bert, no head")
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    listed = [
        {"idx": index, "path": paths.get(name, name), "type": f"sentence_transformers.{name}"}
        for index, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True} if pooling is None else pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def flags(*on):
    """The content of 1_Pooling/config.json as most folders have it."""
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {"word_embedding_dimension": 24} | {f"pooling_mode_{n}": n in on for n in names}


@pytest.mark.parametrize(
    "pooling, pool",
    [
        (flags("max_tokens"), "max"),  # others in tests/parity
        ({"pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({}, "mean"),
    ],
)
def test_poolings(pooling, pool, texts, tmp_path):
    modules = ("Transformer", "Pooling", "Normalize")
    encoder = zoo.load(sentence_encoder(tmp_path, modules, pooling))
    for text, found in zip(TEXTS, encoder(TEXTS)):
        tokens = np.asarray(texts.model.features(np.array(texts.encode([text]))))[0]
        expected = {"cls": tokens[0], "mean": tokens.mean(axis=0), "max": tokens.max(axis=0)}[pool]
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=TOLERANCE)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"modules": ("Transformer", "Pooling", "Dense")}, "Received: .*'Dense'"),
        ({"modules": ("Transformer", "WeightedLayerPooling")}, "Received: .*WeightedLayerPooling"),
        ({"modules": ("Pooling",)}, r"modules.json: .* Received: \['Pooling'\]"),
        ({"modules": ()}, r"must be Transformer and Pooling.* Received: \[\]"),
        ({"pooling": flags("cls_token", "max_tokens")}, r"Received: \['cls', 'max'\]"),
        ({"pooling": flags("mean_sqrt_len_tokens")}, "Received: .'mean_sqrt_len'"),
        ({"pooling": flags()}, r"Received: \[\]"),
        ({"pooling": {"pooling_mode": ["cls", "max"]}}, "Received: .*'cls', 'max'"),
        ({"config_sentence_transformers": {"default_prompt_name": "query"}}, "prompt_name='query'"),
        ({"config_sentence_transformers": {"truncate_dim": 8}}, "truncate_dim=8 is not supported"),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "metadata cannot be used"),
    ],
)
def test_folders_that_are_refused(settings, message, tmp_path):
    folder = sentence_encoder(tmp_path, **settings)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(folder)
    assert zoo.load(folder, num_classes=2).class_names == ["0", "1"]


def test_long_texts(tmp_path):
    folder = sentence_encoder(tmp_path, sentence_bert_config={"max_seq_length": 9})
    encoder, long = zoo.load(folder), LINES[-1]
    whole = zoo.load(folder, max_length=32)
    with pytest.raises(TaskError, match=r"Text 1 is too long: \d+ tokens, and the model takes 9."):
        encoder(["a", long])
    [tokens], [all_tokens] = (task.encode([long], "truncate") for task in (encoder, whole))
    assert tokens == [*all_tokens[:8], all_tokens[-1]] and len(all_tokens) > 9
    expected = np.mean(whole.model.features(np.array([tokens]))[0], axis=0)
    np.testing.assert_allclose(encoder([long], too_long="truncate")[0], expected, atol=TOLERANCE)
    found = encoder.similarity([long], [long], too_long="truncate")
    np.testing.assert_allclose(found, [[1.0]], atol=TOLERANCE)
    with pytest.raises(TaskError, match='too_long must be "error" or "truncate"'):
        encoder(["a"], too_long="split")


def test_the_tokenizer_of_xlm_roberta(tmp_path):
    """As in multilingual E5; and a length that has the name of another family."""
    folder = sentence_encoder(tmp_path, sentence_roberta_config={"max_seq_length": 9})
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    write_files(folder, xlm_roberta_tokenizer(size=298))
    encoder = zoo.load(folder)
    assert encoder.special_tokens == (0, 2, 1, ()) and encoder.model.pad_id == 1
    assert encoder.model.max_length == 9
    assert encoder(TEXTS, too_long="truncate").shape == (5, 24)
    (folder / "sentence_roberta_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(CheckpointError, match="do_lower_case with a Unigram tokenizer is not"):
        zoo.load(folder)


def test_a_pooling_that_is_missing(tmp_path):
    folder = sentence_encoder(tmp_path)
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(CheckpointError, match="contains no 1_Pooling/config.json"):
        zoo.load(folder)
    (folder / "modules.json").unlink()
    assert zoo.load(folder).model.pool == "mean"


def test_a_config_that_is_missing(tmp_path):
    folder = sentence_encoder(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="contains no config.json"):
        zoo.load(folder)


def test_modules_that_are_missing(tmp_path):
    """Another program downloaded a part of a model, or somebody copied one."""
    snapshot = tmp_path / "models--me--mini" / "snapshots" / "0a1b"
    snapshot.parent.mkdir(parents=True)
    modules = ("Transformer", "Pooling", "Normalize")
    files = {name: {} for name in ("sentence_bert_config", "config_sentence_transformers")}
    sentence_encoder(tmp_path, modules, **files).rename(snapshot)
    np.testing.assert_allclose(np.linalg.norm(zoo.load(snapshot)(TEXTS), axis=1), 1, atol=1e-5)
    for name in ("sentence_bert_config.json", "modules.json", "tokenizer_config.json"):
        kept = (snapshot / name).read_bytes()
        (snapshot / name).unlink()
        with pytest.raises(CheckpointError, match=f"contains no {name}.*hf://me/mini once"):
            zoo.load(snapshot)
        (snapshot / name).write_bytes(kept)
    (snapshot / "modules.json").unlink()
    known = snapshot.parents[1] / ".no_exist" / "0a1b"
    known.mkdir(parents=True)
    (known / "modules.json").touch()
    with pytest.raises(CheckpointError, match="sentence_bert_config.json, but no modules.json"):
        zoo.load(snapshot)
    for name in ("sentence_bert_config.json", "config_sentence_transformers.json"):
        (snapshot / name).unlink()
    (snapshot / "1_Pooling" / "config.json").unlink()
    assert zoo.load(snapshot).model.pool == "mean"  # the model has none
    (known / "modules.json").unlink()
    (snapshot / ".gitattributes").touch()  # all files were downloaded
    assert zoo.load(snapshot).model.pool == "mean"


@pytest.mark.parametrize("kind", ["Transformer", "BERT", "XLMRoBERTa"])
def test_folders_of_sentence_transformers_before_1(kind, tmp_path):
    new = sentence_encoder(tmp_path, ("Transformer", "Pooling", "Normalize"), flags("max_tokens"))
    expected = zoo.load(new)(TEXTS)
    old = tmp_path / "old"
    old.mkdir()
    (new / "1_Pooling").rename(old / "1_Pooling")
    listed = json.loads((new / "modules.json").read_text())
    listed[0] |= {"path": f"0_{kind}", "type": f"sentence_transformers.models.{kind}"}
    (old / "modules.json").write_text(json.dumps(listed))
    (new / "modules.json").unlink()
    new.rename(old / f"0_{kind}")
    np.testing.assert_array_equal(zoo.load(old)(TEXTS), expected)


def test_a_length_of_the_tokenizer(tmp_path):
    folder = folder_of(tmp_path, "bert, no head")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 12}))
    assert zoo.load(folder).model.max_length == 12
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 1e30}))
    assert zoo.load(folder).model.max_length == zoo.load(folder, num_classes=2).model.max_length


def test_unused_settings_are_named(tmp_path, capsys):
    library = {"similarity_fn_name": "dot", "default_prompt_name": None}
    zoo.load(sentence_encoder(tmp_path, config_sentence_transformers=library))
    assert "similarity_fn_name='dot' is ignored" in capsys.readouterr().out
    zoo.load(folder_of(tmp_path / "model", "bert"), num_classes=0)
    told = "an encoder. For a classifier with a new head, pass num_classes. Not used: classifier"
    assert f"{told}, pooler." in capsys.readouterr().out
