"""Every key of config.json that changes what transformers computes changes what zoo computes alike.

Or it is refused: the keys are those of transformers' config classes, each with another value.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import functools  # noqa: E402
import json  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import bert_tokenizer, gpt2_tokenizer  # noqa: E402
from tests.checkpoints.translation_folders import (  # noqa: E402
    write_bart,
    write_m2m100,
    write_marian,
    write_mbart50,
    write_pegasus,
)
from tests.parity.test_text_encoders import FAMILIES  # noqa: E402
from tests.parity.test_text_models import BERT, GPT2, write  # noqa: E402
from zoo.errors import UserError  # noqa: E402

VIT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16}
VIT |= {"patch_size": 4, "initializer_range": 0.4, "num_labels": 5}
DINOV2 = {**VIT, "mlp_ratio": 2}
VIT |= {"intermediate_size": 40}
NLLB = {"src_lang": "eng_Latn", "tgt_lang": "spa_Latn"}
CASES = {
    "BertForSequenceClassification": {**BERT, "num_labels": 5},
    **{f"{name}ForSequenceClassification": config for name, (_, config) in FAMILIES.items()},
    "GPT2LMHeadModel": GPT2,
    "ViTForImageClassification": VIT,
    "DeiTForImageClassificationWithTeacher": VIT,
    "Dinov2Model": DINOV2,
    "IJepaForImageClassification": VIT,
    "BeitForImageClassification": {**VIT, "use_relative_position_bias": True},
    "Data2VecVisionForImageClassification": {**VIT, "use_shared_relative_position_bias": True},
    "DINOv3ViTModel": {**VIT, "num_attention_heads": 3, "num_register_tokens": 2},
    "MarianMTModel": (write_marian, {}),
    "M2M100ForConditionalGeneration": (write_m2m100, {"src_lang": "en", "tgt_lang": "es"}),
    "M2M100ForConditionalGeneration, NLLB": (functools.partial(write_m2m100, is_nllb=True), NLLB),
    "MBartForConditionalGeneration": (write_mbart50, {"src_lang": "en_XX", "tgt_lang": "es_XX"}),
    "BartForConditionalGeneration": (write_bart, {}),
    "PegasusForConditionalGeneration": (write_pegasus, {}),
}
TOKENIZERS = {f"{name}ForSequenceClassification": made for name, (made, _) in FAMILIES.items()}
TOKENIZERS |= {"BertForSequenceClassification": bert_tokenizer, "GPT2LMHeadModel": gpt2_tokenizer}
ACTIVATIONS = {"hidden_act", "activation_function", "activation"}
IDS = np.array([[5, 6, 7, 8, 2]])
PREFIX = np.array([[2, 9, 10]])
PIXELS = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype("float32")
# Families with a table of another one here
SLOW = (
    "M2M100ForConditionalGeneration, NLLB",
    "MBartForConditionalGeneration",
    "PegasusForConditionalGeneration",
    "XLMRobertaForSequenceClassification",
    "DistilBertForSequenceClassification",
)
# The mask of padding is an argument in transformers, and not of the config.
NOT_COMPARED = {"pad_token_id"}


def another(name, value):
    if name in ACTIVATIONS:
        return "gelu" if value == "relu" else "relu"
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return 0.3 if value != 0.3 else 0.1
    if isinstance(value, int):
        return value + 1
    return 1 if value is None else "another"


def theirs(cls, folder):
    """The outputs of transformers; None if it does not take the config."""
    try:
        model = cls.from_pretrained(folder).eval()
        with torch.no_grad():
            if model.main_input_name == "pixel_values":
                found = model(torch.tensor(PIXELS.transpose(0, 3, 1, 2)))
            elif model.config.is_encoder_decoder:
                found = model(torch.tensor(IDS), decoder_input_ids=torch.tensor(PREFIX))
            else:
                found = model(torch.tensor(IDS))
        return (found.logits if hasattr(found, "logits") else found.pooler_output).numpy()
    except Exception:  # of any kind, also from PyTorch
        return None


def ours(folder, options):
    """The outputs of zoo; None if the config is refused."""
    try:
        task = zoo.load(folder, **options)
    except UserError:
        return None
    if task.model.name == "vit":
        return np.asarray(task.model(PIXELS))
    if task.model.name == "transformer":
        return np.asarray(task.model({"source": IDS, "target": PREFIX}))
    return np.asarray(task.model(IDS))


def is_close(one, other):
    return one.shape == other.shape and np.allclose(one, other, atol=2e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES],
)
def test_keys_of_config(name, tmp_path):
    cls = getattr(transformers, name.partition(",")[0])
    options = {}
    if isinstance(CASES[name], tuple):
        write_folder, options = CASES[name]
        write_folder(tmp_path)
    else:
        tokenizer = TOKENIZERS.get(name, dict)
        torch.manual_seed(0)
        write(tmp_path, cls(cls.config_class(**CASES[name])), tokenizer())
    path = tmp_path / "config.json"
    published = json.loads(path.read_text())
    default = theirs(cls, tmp_path)
    assert is_close(default, ours(tmp_path, options))
    changing = []
    for key, value in {**cls.config_class(**published).to_dict(), **published}.items():
        if key in NOT_COMPARED or isinstance(value, (list, dict)):
            continue
        path.write_text(json.dumps({**published, key: another(key, value)}))
        expected = theirs(cls, tmp_path)
        found = ours(tmp_path, options)
        if expected is not None and found is not None:
            assert is_close(expected, found), key
            if not is_close(expected, default):
                changing.append(key)
    assert ACTIVATIONS & {*changing}, "it changes both"
