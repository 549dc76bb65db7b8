"""Metadata that hold anything are one error that names the folder, whatever the model."""

import json
import shutil

import pytest
from safetensors.numpy import save_file

import zoo
from tests.checkpoints import drawn
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.test_vit_checkpoints import HUGGING_FACE, TIMM, write_folder
from tests.checkpoints.translation_folders import write_marian
from zoo.checkpoints import CheckpointError
from zoo.checkpoints.hub import _OPTIONAL


def vit(folder):
    folder = write_folder(folder / "model", next(iter(HUGGING_FACE.values())))
    images = {"size": {"height": 32, "width": 32}, "crop_size": 32, "do_center_crop": True}
    images |= {"resample": 2, "rescale_factor": 1 / 255}
    images |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


def timm(folder):
    save_file(drawn.tensors(TIMM["distilled"]["shapes"]), folder / "model.safetensors")
    config = {"architecture": "deit", "num_heads": 3}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def marian(folder):
    write_marian(folder)
    (folder / "generation_config.json").write_text("{}")
    return folder


def gpt2(folder):
    return folder_of(folder, "gpt2")


def bert(folder):
    return folder_of(folder, "bert")


SETTINGS = {  # {folder: {file: settings of several kinds}}
    vit: {
        "config.json": ["hidden_size", "image_size", "hidden_act"],
        "preprocessor_config.json": ["size", "crop_size", "resample", "image_mean", "image_std"],
    },
    timm: {"config.json": ["model_args", "pretrained_cfg", "mean", "crop_pct"]},
    marian: {
        "config.json": ["d_model", "encoder_layers", "vocab_size", "activation_function"],
        "generation_config.json": ["max_length"],
    },
    gpt2: {"config.json": ["n_embd", "vocab_size", "bos_token_id", "activation_function"]},
    bert: {"config.json": ["hidden_size", "num_attention_heads", "architectures", "hidden_act"]},
}


@pytest.mark.parametrize("write", SETTINGS, ids=lambda x: x.__name__)
def test_settings_of_another_kind(write, tmp_path):
    folder = write(tmp_path)
    for name, settings in SETTINGS[write].items():
        path = folder / name
        text = path.read_text()
        for setting in settings:
            for value in ("x", [{"a": 1}]):
                path.write_text(json.dumps({**json.loads(text), setting: value}))
                with pytest.raises(CheckpointError, match=folder.name):
                    zoo.load(folder)
                    pytest.fail(f"{setting}={value}")
        path.write_text(text)


def test_json_without_end(tmp_path):
    """Deeper than Python's parser goes."""
    folder = gpt2(tmp_path)
    for name in ("generation_config.json", "model.safetensors.index.json", "config.json"):
        if "index" in name:
            (folder / "model.safetensors").unlink()
        (folder / name).write_text("[" * 100_000)
        with pytest.raises(CheckpointError, match=f"{name} is not JSON"):
            zoo.load(folder)
        (folder / name).unlink()


def test_missing_files_are_no_defaults(tmp_path, capsys):
    folder = marian(tmp_path)
    assert zoo.load(folder).target_tokenizer.vocab == zoo.load(folder).source_tokenizer.vocab
    (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    with pytest.raises(CheckpointError, match="contains no target_vocab.json"):
        zoo.load(folder)
    (tmp_path / "images").mkdir()
    folder = vit(tmp_path / "images")
    (folder / "preprocessor_config.json").unlink()
    zoo.load(folder)
    assert "contains no preprocessor_config.json: mean and" in capsys.readouterr().out


@pytest.mark.parametrize(
    "make, name",
    [
        (vit, "preprocessor_config.json"),
        (marian, "generation_config.json"),
        (marian, "tokenizer_config.json"),
        (gpt2, "generation_config.json"),
        (gpt2, "tokenizer_config.json"),
        (bert, "tokenizer_config.json"),
    ],
)
def test_a_cache_that_another_program_filled_in_part(make, name, tmp_path):
    folder = make(tmp_path)
    snapshot = tmp_path / "hub" / "models--me--model" / "snapshots" / "0a1b"
    shutil.copytree(folder, snapshot)
    known = snapshot.parents[1] / ".no_exist" / "0a1b"
    known.mkdir(parents=True)
    for optional in _OPTIONAL:
        (known / optional).touch()
    zoo.load(snapshot)
    (known / name).unlink()
    (snapshot / name).unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=f"contains no {name}, which .*hf://me/model once"):
        zoo.load(snapshot)
