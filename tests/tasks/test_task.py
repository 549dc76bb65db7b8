"""What every task does: it has a folder, takes another model that fits, and tells NaN."""

import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import keras
import numpy as np
import pytest

import zoo
import zoo.training
from tests.deploy import small_models
from tests.deploy.small_models import (
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.__main__ import main
from zoo.errors import TaskError, UserError

MAKE = [small_classifier, small_text_classifier, small_translator, small_generator]
IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


@pytest.fixture(scope="module", params=MAKE, ids=lambda make: make.__name__)
def saved(request, tmp_path_factory):
    """(what was saved, its folder)."""
    task, folder = request.param(num_layers=1), tmp_path_factory.mktemp("runs") / "run"
    task.save(folder)
    return task, folder


def answers(task):
    return task([IMAGE] if hasattr(task, "preprocessing") else ["The cat sat.", "", "a dog"])


def test_saved_and_loaded(saved):
    task, folder = saved
    loaded = zoo.load(folder)
    assert type(loaded) is type(task) and loaded.run_folder == folder
    assert loaded.description() == task.description()
    for name in task.tokenizer_names:
        assert getattr(loaded, name) == getattr(task, name)
    for weight, expected in zip(loaded.model.weights, task.model.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert answers(loaded) == answers(task)


def test_a_model_that_was_not_called_is_built(saved):
    task = zoo.load(saved[1])
    weights = task.model.get_weights()
    task.model = type(task.model).from_config(task.model.get_config())
    task.model.set_weights(weights)
    assert answers(task) == answers(saved[0])


def test_info_is_json(saved, capsys):
    task, folder = saved
    assert main(["info", str(folder)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"]["type"] == type(task.model).__name__
    description = json.loads(json.dumps(task.description()))
    assert {name: report[name] for name in description} == description


def test_a_model_that_computes_nan(saved):
    """In one of its outputs: a single weight of each variable is NaN."""
    broken = zoo.load(saved[1])
    for weight in broken.model.weights:
        values = keras.ops.convert_to_numpy(weight).copy()
        values.flat[-1] = np.nan
        weight.assign(values)
    with pytest.raises(TaskError, match="the model computed NaN"):
        answers(broken)
    if hasattr(broken, "score"):
        with pytest.raises(TaskError, match="the model computed NaN"):
            broken.score(["a dog"], ["a dog"])


def test_a_change_of_the_models_variables_takes_effect(saved):
    """New values without another trace; without one, an adapter would not be in the graph."""
    task = zoo.load(saved[1])
    task.jit_compile = None
    first = answers(task)
    traced = task._cached_function.cache_info().misses
    for weight in task.model.trainable_weights:
        weight.assign(np.roll(weight, 1))
    before = answers(task)
    assert before != first and task._cached_function.cache_info().misses == traced
    dense = [x for x in task.model._flatten_layers() if isinstance(x, keras.layers.Dense)]
    for layer in dense:
        layer.enable_lora(2)
        for variable in layer.trainable_variables:
            variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    assert dense and answers(task) != before


def test_a_compiled_search_computes_with_new_values():
    """It transposes the embeddings before its steps, in each call."""
    translator = small_translator(num_layers=1)
    texts = ["the cat sat", "a dog"]
    before = translator.n_best(texts, beam_size=4)
    embeddings = translator.model.decoder_embedding.tokens.embeddings
    embeddings.assign(np.roll(embeddings, 1, axis=0))
    assert translator.n_best(texts, beam_size=4) != before
    embeddings.assign(np.roll(embeddings, -1, axis=0))
    assert translator.n_best(texts, beam_size=4) == before


def test_attributes_that_graphs_read_take_effect():
    """Others do not need another trace, and an old value has its function again."""
    translator = small_translator(num_layers=1)
    texts = ["the cat sat", "a dog"]
    before = translator.n_best(texts, length_penalty=1.0)
    translator.run_folder = "elsewhere"
    assert translator.n_best(texts, length_penalty=1.0) == before
    assert translator._cached_function.cache_info().misses == 1
    translator.length_offset = 0.0
    assert translator.n_best(texts, length_penalty=1.0) != before
    translator.length_offset = 5.0
    assert translator.n_best(texts, length_penalty=1.0) == before
    assert translator._cached_function.cache_info().misses == 2


@pytest.mark.parametrize("shape", [(2, 16, 12, 3), (2, 12, 8, 3), (8, 12, 3), (2, 8, 12, 1)])
def test_images_of_another_shape(shape):
    message = r"must be float32 \(None, 8, 12, 3\)\. Received: float32 \("
    with pytest.raises(TaskError, match=message):
        small_classifier(num_layers=1).outputs(np.zeros(shape, np.float32))


@pytest.mark.parametrize("make", MAKE[1:])
def test_an_assigned_model_must_fit(make):
    """The tokenizers of different kinds have vocabularies of different sizes."""
    task, other = make(num_layers=1), make(num_layers=1, kind="character").model
    model, task.jit_compile = task.model, False
    with pytest.raises(ValueError, match="Received a tokenizer with"):
        task.model = other
    assert task.model is model
    task.model = make(num_layers=1).model
    assert task.model is not model and not task.jit_compile


def test_models_of_tokens_of_earlier_versions(tmp_path):
    small_generator(num_layers=1).save(tmp_path)
    file = tmp_path / "generator.json"
    description = json.loads(file.read_text())
    description["special_tokens"]["first"] = None
    file.write_text(json.dumps(description))
    with pytest.raises(UserError, match=r"saved by a version of zoo before 0\.1\.0"):
        zoo.load(tmp_path)


MAKERS = [
    small_models.small_classifier,
    small_models.small_text_classifier,
    small_models.small_translator,
    small_models.small_generator,
]


@pytest.mark.parametrize("make", MAKERS)
def test_tasks_can_be_pickled(make):
    task = make()
    assert answers(pickle.loads(pickle.dumps(task))) == answers(task)


@pytest.mark.ci
def test_tasks_are_passed_to_spawned_processes():
    task = small_models.small_classifier()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as processes:
        [[found]] = processes.submit(answers, task).result()
    [[expected]] = answers(task)
    assert found[0] == expected[0] and found[1] == pytest.approx(expected[1], abs=1e-5)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_is_one_error(monkeypatch, backend):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    for start in (lambda: zoo.load("run"), lambda: zoo.training.Run(out="run")):
        with pytest.raises(UserError, match=f"Keras computes with {backend}.*KERAS_BACKEND=tens"):
            start()
