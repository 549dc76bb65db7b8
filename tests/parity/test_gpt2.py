"""GPT-2 beside the library transformers.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import json  # noqa: E402
import shutil  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import LINES, gpt2_tokenizer  # noqa: E402
from tests.text.samples import SAMPLE  # noqa: E402

ODD_TEXTS = [
    *SAMPLE,
    "I'm we'll they'Re don't's 's 've",
    "a  b\n\nc \n d\t\t e   ",
    "<|endoftext|> x <|endoftext|>",
    "x" * 300,
]
PROMPTS = ["Hello", "", "I am a ", "What\n\nis this?", LINES[5], " ".join(LINES[:2])]
SIZES = {"n_positions": 64, "n_embd": 24, "n_layer": 3, "n_head": 3, "initializer_range": 0.3}
SIZES |= {"bos_token_id": 0, "eos_token_id": 0}

torch.set_num_threads(1)


def write(folder, kind="GPT2LMHeadModel", saving=(), dtype=None, **changed):
    """A folder of a random model with the files of its tokenizer; returns the model."""
    folder.mkdir()
    for name, text in gpt2_tokenizer().items():
        (folder / name).write_text(text, encoding="utf-8")
    size = len(json.loads((folder / "vocab.json").read_text()))
    torch.manual_seed(0)
    config = transformers.GPT2Config(**{"vocab_size": size, **SIZES, **changed})
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():  # biases and norms matter as well
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    if dtype is not None:
        model = model.to(dtype)
    model.save_pretrained(folder, **dict(saving))
    return model.float()


def difference(generator, model):
    """The largest difference of the logits, and the largest logit."""
    ids = np.random.default_rng(0).integers(0, generator.model.vocab_size, (3, 20))
    with torch.no_grad():
        if hasattr(model, "lm_head"):
            expected = model(torch.tensor(ids)).logits
        else:
            expected = model(torch.tensor(ids)).last_hidden_state @ model.wte.weight.T
    expected = expected.numpy()
    return np.abs(expected - np.asarray(generator.model(ids))).max(), np.abs(expected).max()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2") / "model"
    return folder, write(folder)


@pytest.fixture(scope="module")
def generator(folder):
    return zoo.load(folder[0])


@pytest.fixture(scope="module")
def published(folder):
    return transformers.GPT2Tokenizer.from_pretrained(folder[0])


def test_logits(folder, generator):
    found, largest = difference(generator, folder[1])
    assert found < 1e-4 < 1 < largest


@pytest.mark.parametrize("files", ["vocab.json and merges.txt", "tokenizer.json"])
def test_tokens_are_those_of_the_published_tokenizer(folder, published, tmp_path, files):
    """A special token in a text is ordinary text: `split_special_tokens` of transformers."""
    shutil.copytree(folder[0], tmp_path / "model")
    if files == "tokenizer.json":
        (tmp_path / "model" / "vocab.json").unlink()
        (tmp_path / "model" / "merges.txt").unlink()
        published.save_pretrained(tmp_path / "model")
    tokenizer, texts = zoo.load(tmp_path / "model").tokenizer, LINES[:50] + ODD_TEXTS
    expected = [published(text, split_special_tokens=True)["input_ids"] for text in texts]
    assert tokenizer.encode(texts) == expected
    assert tokenizer.decode(expected) == texts
    ids = np.random.default_rng(0).integers(0, len(published), (50, 8))
    assert tokenizer.decode(ids) == published.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_those_of_generate(folder, published, generator, beams):
    found = generator(PROMPTS, beam_size=beams, max_new_tokens=12)
    search = {"num_beams": beams, "length_penalty": 0.0, "early_stopping": "never"}
    for prompt, text in zip(PROMPTS, found):
        ids = torch.tensor([published(prompt)["input_ids"] or [0]])
        [expected] = folder[1].generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            pad_token_id=0,
            do_sample=False,
            **(search if beams > 1 else {}),
        )
        assert text == published.decode(expected, skip_special_tokens=True)
    assert len({text[-4:] for text in found}) > 3


@pytest.mark.parametrize(
    "options",
    [
        {"tie_word_embeddings": False},
        {"kind": "GPT2Model"},
        {"kind": "GPT2DoubleHeadsModel"},
        {"n_layer": 1, "n_head": 6, "n_inner": 40, "vocab_size": 411},
        {"activation_function": "relu", "layer_norm_epsilon": 1e-3},
        {"saving": {"max_shard_size": "20KB"}},
        {"dtype": torch.bfloat16},
    ],
    ids=["untied", "no head", "two heads", "other sizes", "relu", "several files", "bfloat16"],
)
def test_other_folders(tmp_path, options):
    model = write(tmp_path / "model", **options)
    assert difference(zoo.load(tmp_path / "model"), model)[0] < 1e-4


def test_old_files(folder, generator, tmp_path):
    """Pickled, with the causal masks and a copy of the tied head."""
    copy = tmp_path / "model"
    shutil.copytree(folder[0], copy)
    (copy / "model.safetensors").unlink()
    tensors = folder[1].state_dict()
    for layer in range(3):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64).tril().bool()
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    torch.save(tensors, copy / "pytorch_model.bin")
    assert zoo.load(copy)(["Hello"]) == generator(["Hello"])
