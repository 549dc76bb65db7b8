"""The report of a run: scores and pictures."""

import json
import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import sacrebleu
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    recall_score,
)

import zoo
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import UserError
from zoo.models.attention_rollout import attention_rollout
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import train_tokenizer
from zoo.training import pictures, report
from zoo.training.report import _draw_alignment
from zoo.training.report_scores import class_scores, epoch_scores, label_scores
from zoo.training.report_translation_scores import bleu_tokenizer, translation_scores
from zoo.training.run_folder import RunFolder

RANDOM = np.random.default_rng(0)


def test_scores():
    report = translation_scores(["a b c d e", "x"], ["a b c d e", "y"])
    assert report["exact_match"] == 0.5 and 50 < report["bleu"] < 100
    for same in (["la casa roja de Ana"], ["uno", "la casa"], ["ꦱꦸꦒꦼꦁ"]):
        assert translation_scores(same, same)["bleu"] == pytest.approx(100)


def test_scores_of_several_labels():
    """Those of scikit-learn. The last class has no item: it does not count in means."""
    labels = RANDOM.random((200, 4)) < 0.3
    probabilities = RANDOM.random((200, 4)).astype("float32")
    labels[:, 3] = False
    found = label_scores(labels, probabilities, [*"abcd"], [0.5, 0.6, 0.7, 0.5])
    given = probabilities >= np.float32([0.5, 0.6, 0.7, 0.5])
    precisions = average_precision_score(labels[:, :3], probabilities[:, :3], average=None)
    assert found["average_precision"] == pytest.approx(dict(zip("abc", precisions)))
    assert found["mean_average_precision"] == pytest.approx(np.mean(precisions))
    f1 = f1_score(labels[:, :3], given[:, :3], average="macro")
    assert found["f1_macro"] == pytest.approx(f1)
    assert found["f1_micro"] == pytest.approx(f1_score(labels, given, average="micro"))
    assert found["items"] == {**dict(zip("abc", labels.sum(0).tolist())), "d": 0}
    assert found["loss"] == pytest.approx(log_loss(labels.ravel(), probabilities.ravel()), rel=1e-5)
    one = label_scores(labels[:, :1], labels[:, :1] * 0.6, ["a"])
    assert (one["mean_average_precision"], one["f1_micro"], one["f1_macro"]) == (1, 1, 1)
    json.dumps(found)


def test_the_scores_of_classes_are_those_of_scikit_learn():
    labels = np.repeat([0, 1, 3], [90, 9, 1])
    predicted = np.where(RANDOM.random(100) < 0.8, labels, 0)
    scores = class_scores(labels, predicted, list("abcd"), np.repeat(range(4), [5, 6, 7, 8]))
    assert scores["test_accuracy"] == accuracy_score(labels, predicted)
    found = scores["class_accuracy"]
    recalls = recall_score(labels, predicted, average=None)
    assert found["c"] is None and [found[name] for name in "abd"] == pytest.approx(recalls)
    balanced = balanced_accuracy_score(labels, predicted)
    assert scores["balanced_accuracy"] == pytest.approx(balanced)
    assert scores["test_counts"] == {"a": 90, "b": 9, "c": 0, "d": 1}
    assert scores["train_counts"] == {"a": 5, "b": 6, "c": 7, "d": 8}
    twice = label_scores(np.eye(3), np.eye(3), ["crane", "b", "crane"])
    assert twice["average_precision"] == {"crane (0)": 1.0, "b": 1.0, "crane (2)": 1.0}
    assert twice["items"] == {"crane (0)": 1, "b": 1, "crane (2)": 1}
    twice = class_scores(labels, predicted, ["crane", "b", "crane", "d"], labels)["test_counts"]
    assert twice == {"crane (0)": 90, "b": 9, "crane (2)": 0, "d": 1}


def test_the_epoch_that_was_tested():
    history = {"epoch": [0, 1, 2, 3], "val_loss": [3.0, np.nan, 1.0, 2.0]}
    metrics, words = epoch_scores(history)
    assert metrics == {"best_epoch": 3, "tested_epoch": 4}
    assert words == "after epoch 4 of 4 (best: 3)"
    assert epoch_scores(history, True)[0] == {"best_epoch": 3, "tested_epoch": 3}
    assert epoch_scores({"epoch": [0], "val_loss": [np.nan]})[0]["best_epoch"] == 1


@pytest.mark.parametrize("tested_epoch, loss", [(None, 3.0), (2, 1.0)])
def test_metrics_are_those_of_the_tested_epoch(tmp_path, capsys, tested_epoch, loss):
    losses = [2.0, 1.0, 3.0]
    history = {
        "epoch": [0, 1, 2],
        "loss": losses,
        "val_loss": losses,
        "val_accuracy": losses,
        "images_per_second": [math.nan] * 3,  # each epoch was resumed after its last step
    }
    folder = RunFolder(tmp_path, {})
    task = SimpleNamespace(model=keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    report._end(folder, task, history, "images", metrics={}, summary={}, tested_epoch=tested_epoch)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert [metrics[name] for name in ("train_loss", "val_loss", "val_accuracy")] == [loss] * 3
    assert metrics["images_per_second"] is None and metrics["epochs"] == 3
    assert "not measured" in capsys.readouterr().out


MECAB = [f"sacrebleu.tokenizers.tokenizer_{code}_mecab.MeCab" for code in ("ja", "ko")]


@pytest.mark.parametrize(
    "reference, tokenizer",
    [
        ("我用 Python 写了一个很小的程序，他也写了。", "zh"),
        ("これは本です。あれは猫です。", "char"),  # or ja-mecab, with its packages
        ("이것은 책입니다. 저것은 고양이입니다.", "char"),
        ("ฉันชอบกินแอปเปิ้ล", "char"),
        ("ｶﾀｶﾅﾃｽﾄ", "char"),
        ("ᦵᦏᦍᦓᦱᧁᦺᦑ", "char"),
        ("I see 我, her cat and the other big dogs.", "13a"),
        ("मैं उसकी बिल्ली को देखता हूँ।", "13a"),
        ("", "13a"),
    ],
)
def test_the_tokenizer_of_bleu_is_that_of_the_script(reference, tokenizer, monkeypatch):
    """Scores are those of sacrebleu, and not 0 if most of a text is correct."""
    for package in MECAB:
        monkeypatch.setattr(package, None)
    references = [reference, reference * 2]
    assert bleu_tokenizer(references) == tokenizer
    wrong = [reference.replace("。", "！"), references[1][:-2]]
    scores = translation_scores(wrong, references)
    short = "eff:yes" in scores["bleu_signature"]
    expected = sacrebleu.BLEU(tokenize=tokenizer, effective_order=short)
    assert scores["bleu"] == expected.corpus_score(wrong, [references]).score
    assert f"tok:{tokenizer}" in scores["bleu_signature"]
    assert scores["bleu"] > 50 or tokenizer == "13a"
    assert "tok:intl" in translation_scores(wrong, references, "intl")["bleu_signature"]


def test_a_tokenizer_of_bleu_that_cannot_be_used(monkeypatch):
    monkeypatch.setattr(MECAB[0], None)
    with pytest.raises(UserError, match=r"ja-mecab: .* pip install sacrebleu\[ja\]"):
        bleu_tokenizer([], "ja-mecab")
    with pytest.raises(UserError, match="tokenizer words: sacrebleu has none, zh, 13a"):
        bleu_tokenizer([], "words")


def test_the_picture_of_attention_is_of_the_images_as_tested(monkeypatch, tmp_path):
    """Where images are resized before the crop, they are not cropped again."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    model = zoo.vit(
        input_shape=(8, 8, 3), num_classes=3, patch_size=4, embed_dim=8, num_heads=2, num_layers=2
    )
    preprocessing = ImagePreprocessing((8, 8), 3, (0.5,) * 3, (0.2,) * 3, resize=12)
    classifier = ImageClassifier(model, preprocessing, ["a", "b", "c"])
    model.head.kernel.assign(np.random.default_rng(1).normal(size=(8, 3)))
    images = SimpleNamespace(pixels=pixels, labels=np.array([0, 2]))
    drawn = []
    monkeypatch.setattr(report, "sample", lambda *_: images)
    monkeypatch.setattr(report.pictures, "attention", lambda *given: drawn.extend(given))
    report._draw_attention_maps(classifier, images, tmp_path / "attention.png")
    inputs = preprocessing.normalize(pixels).numpy()
    np.testing.assert_allclose(drawn[1], attention_rollout(model, inputs), atol=1e-5)  # float32
    shares = [share for [(_, share)] in drawn[2]]
    np.testing.assert_allclose(shares, classifier.outputs(inputs).max(axis=1), atol=1e-6)
    assert drawn[3] == [["a"], ["c"]]


def test_the_attention_weights_of_an_image_are_counted():
    model = zoo.vit(
        input_shape=(8, 12, 3),
        num_classes=3,
        patch_size=4,
        embed_dim=8,
        num_heads=2,
        num_layers=3,
        num_registers=1,
    )
    maps = model.attention_maps(np.zeros((1, 8, 12, 3), np.float32))
    assert report._num_attention_weights(model) == math.prod(maps.shape)


@pytest.mark.parametrize("max_length", [4, 12])
def test_the_picture_of_attention_is_of_a_sentence_that_the_model_takes(max_length, tmp_path):
    """Without one there is no picture, and the run ends all the same."""

    class Short(Translator):  # the translations of an untrained model may be longer than it takes
        def __call__(self, texts, sentences):
            return ["a b"] * len(texts)

    tokenizer = train_tokenizer(["a b c d e f g"], "character", 300)
    size = tokenizer.vocab_size
    sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "max_length": max_length}
    model = zoo.transformer(source_vocab_size=size, target_vocab_size=size, **sizes)
    path = tmp_path / "attention.png"
    _draw_alignment(Short(model, tokenizer, tokenizer), ["a b c d e f g", "a b c d"], path)
    assert path.exists() == (max_length > 4)


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("error")
def test_class_names_are_drawn_as_they_are(tmp_path):
    names = ["pos, very", r"$\frac$", "5 $ or 10 $", "良い", "x" * 200, "a\x07b", ""]
    pictures.confusion_matrix(range(7), range(7), names, tmp_path / "matrix.png", "texts")
    pixels = np.zeros((7, 8, 8, 3), np.uint8)
    answers = [[(name, 0.5)] * n for n, name in enumerate(names)]  # from none to several
    truth = [[name] for name in names[:0:-1]] + [[]]
    pictures.attention(pixels, np.ones((7, 2, 2)), answers, truth, tmp_path / "maps.png")
    assert all(map(is_picture, tmp_path.iterdir()))


@pytest.mark.parametrize("epochs, norms", [(1, True), (40, True), (2, False)])
def test_learning_curves(tmp_path, epochs, norms):
    """Also of a run of an earlier version, without norms."""
    names = ["loss", "val_loss", "accuracy", "val_accuracy", "learning_rate"]
    if norms:
        names += ["gradient_norm", "weight_norm", "update_norm"]
    history = {name: RANDOM.uniform(size=epochs).tolist() for name in names}
    history["val_loss"][:-1] = [np.nan] * (epochs - 1)  # epochs without validation
    pictures.learning_curves({"epoch": list(range(epochs)), **history}, tmp_path / "curves.png")
    assert is_picture(tmp_path / "curves.png")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "source, target",
    [
        (list("我喜欢吃苹果"), ["अच्छा", "שלום", "$x^2$", "$\\frac{$", "\n\x00\udc80", ""]),
        ([str(n) for n in range(60)], ["Donaudampfschifffahrtsgesellschaft"] * 60),
        (["a"], ["b"]),
    ],
)
def test_cross_attention_of_any_script(tmp_path, source, target):
    weights = RANDOM.uniform(size=(len(target), len(source)))
    path = tmp_path / "attention.png"
    pictures.cross_attention(weights, source, target, path)
    assert is_picture(path)
