"""The report of a run: scores and pictures."""

import json
import warnings

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import zoo
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import train_tokenizer
from zoo.training import pictures
from zoo.training.report import _draw_alignment, _median, translation_scores
from zoo.training.scores import label_scores

RANDOM = np.random.default_rng(0)


def test_scores():
    report = translation_scores(["a b c d e", "x"], ["a b c d e", "y"])
    assert report["exact_match"] == 0.5 and 50 < report["bleu"] < 100
    same = ["la casa roja de Ana"]
    assert translation_scores(same, same)["bleu"] == pytest.approx(100)


def test_scores_of_several_labels():
    """Average precision is the mean of the precisions at the rank of each item that has the class.

    The last class has no item: it does not count in means.
    """
    labels, probabilities = RANDOM.random((200, 4)) < 0.3, RANDOM.random((200, 4)).astype("float32")
    labels[:, 3] = False
    found = label_scores(labels, probabilities, [*"abcd"], [0.5, 0.6, 0.7, 0.5])
    given = probabilities >= np.float32([0.5, 0.6, 0.7, 0.5])
    precisions, f1 = [], []
    for true, mine, ranked in zip(labels.T[:3], given.T, np.argsort(-probabilities, axis=0).T):
        hits = true[ranked].cumsum() / np.arange(1, 201)
        precisions.append(hits[true[ranked]].mean())
        precision, recall = true[mine].mean(), mine[true].mean()
        f1.append(2 * precision * recall / (precision + recall))
    assert found["average_precision"] == pytest.approx(dict(zip("abc", precisions)))
    assert found["mean_average_precision"] == pytest.approx(np.mean(precisions))
    assert found["f1_macro"] == pytest.approx(np.mean(f1))
    precision, recall = labels[given].mean(), given[labels].mean()
    assert found["f1_micro"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["items"] == {**dict(zip("abc", labels.sum(0).tolist())), "d": 0}
    assert found["mean_average_precision"] == pytest.approx(
        average_precision_score(labels[:, :3], probabilities[:, :3], average="macro")
    )
    one = label_scores(labels[:, :1], labels[:, :1] * 0.6, ["a"])
    assert (one["mean_average_precision"], one["f1_micro"], one["f1_macro"]) == (1, 1, 1)
    json.dumps(found)


def test_the_median_of_a_metric_is_over_the_epochs_in_which_it_was_measured():
    assert _median([5.0, np.nan, 3.0, 4.0]) == _median([5.0, 3.0]) == 4.0
    assert _median([np.nan]) is None


@pytest.mark.parametrize("max_length", [4, 12, 64])
def test_the_picture_of_attention_is_of_a_sentence_that_the_model_takes(max_length, tmp_path):
    """Without one there is no picture, and the run ends all the same."""

    class Short(Translator):  # the translations of an untrained model may be longer than it takes
        def __call__(self, texts):
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
    pixels, answers = np.zeros((7, 8, 8, 3), np.uint8), [(name, 0.5) for name in names]
    pictures.attention(pixels, np.ones((7, 2, 2)), answers, names[::-1], tmp_path / "maps.png")
    assert all(map(is_picture, tmp_path.iterdir()))


@pytest.mark.parametrize("epochs", [1, 40])
def test_learning_curves(tmp_path, epochs):
    names = ("loss", "val_loss", "accuracy", "val_accuracy", "learning_rate")
    history = {name: RANDOM.uniform(size=epochs).tolist() for name in names}
    history["val_loss"][:-1] = [np.nan] * (epochs - 1)  # epochs without validation
    pictures.learning_curves({"epoch": list(range(epochs)), **history}, tmp_path / "curves.png")
    assert is_picture(tmp_path / "curves.png")


@pytest.mark.parametrize(
    "source,target",
    [
        (["▁hello", "▁world"], ["▁hola", "▁mundo", "</s>"]),
        (list("我喜欢吃苹果"), ["अच्छा", "שלום", "$x^2$", "$\\frac{$", "\n\x00\udc80", ""]),
        ([str(n) for n in range(60)], ["Donaudampfschifffahrtsgesellschaft"] * 60),
        (["a"], ["b"]),
    ],
)
def test_cross_attention_of_any_script(tmp_path, source, target):
    weights, path = RANDOM.uniform(size=(len(target), len(source))), tmp_path / "attention.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures.cross_attention(weights, source, target, path)
    assert is_picture(path)
