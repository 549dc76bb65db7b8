"""Downloads published models from the Hugging Face Hub, "hf://...", and Kaggle, "kaggle://...".

The packages huggingface_hub and kagglehub download into their own caches, read access tokens and
environment variables (HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE), and show progress. From the Hugging
Face Hub, only the files that `zoo.load` reads are downloaded.
"""

import functools
import pathlib
import re

from zoo.checkpoints import marian_folder
from zoo.checkpoints.formats import registry
from zoo.checkpoints.hugging_face_config import not_downloaded, read_json
from zoo.errors import CheckpointError, needed

SCHEMES = ("hf://", "kaggle://")
_METADATA = (
    "config.json", "preprocessor_config.json", "processor_config.json", "generation_config.json",
    "tokenizer.json", "spiece.model",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "merges.txt", "target_vocab.json", "source.spm", "target.spm",
    "sentencepiece.bpe.model", "task.json", "metadata.json", "modules.json",
    "?_Pooling/config.json", "sentence_*_config.json", "config_sentence_transformers.json",
)  # fmt: skip
_OPTIONAL = (  # files whose absence means something, see `not_downloaded`
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    "tokenizer_config.json", "generation_config.json", "preprocessor_config.json",
)  # fmt: skip
# In order of preference: formats without pickles first.
_WEIGHTS = (
    ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    ("model.weights.h5", "task.weights.h5"),
    ("pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json"),
)
# Explanations of the library's errors, by the name of their class; subclasses come first.
_REASONS = {
    "GatedRepoError": "its owner asks for consent. Accept the conditions on the page of the model, "
    "then run `hf auth login` or set HF_TOKEN.",
    "RevisionNotFoundError": "it has no revision {revision!r}.",
    "RepositoryNotFoundError": "there is no such model, or it is private. Check the name; for a "
    "private model, run `hf auth login` or set HF_TOKEN. Data sets and Spaces cannot be loaded.",
    "LocalEntryNotFoundError": "it is not in the cache, and the Hub cannot be reached ({cause}). "
    "Connect once, or download the model elsewhere and pass its folder.",
    "UserError": "{error}",
    "Exception": "it cannot be downloaded ({kind}: {error}).",
}
_HANDLE = re.compile(r"(?P<repo>([\w.-]+/)?[\w.-]+)(@(?P<revision>[\w./-]+))?")


def is_name(path):
    """Whether a path is the name of a model on a hub."""
    return isinstance(path, str) and path.startswith(SCHEMES)


def download(name, revision=None):
    """Downloads a published model, unless it is in the cache.

    Args:
        name: "hf://owner/name" or "hf://owner/name@revision"; or
            "kaggle://owner/model/framework/variation", with or without "/version".
        revision: branch, tag or commit on the Hugging Face Hub; the main branch by default.

    Returns:
        `pathlib.Path` of the folder.

    Raises:
        CheckpointError: if the name is malformed, or the model cannot be downloaded.
    """
    if name.startswith("kaggle://") and revision is None:
        return _from_kaggle(name)
    match = _HANDLE.fullmatch(name.removeprefix("hf://"))
    if match is None:
        raise CheckpointError(
            f"{name} is not the name of a model on the Hugging Face Hub: use hf://owner/name or "
            "hf://owner/name@revision. Other names have no revision."
        )
    return _from_hugging_face(name, match["repo"], revision or match["revision"])


def _from_hugging_face(name, repo, revision):
    hub = needed("huggingface_hub")
    try:
        fetch = functools.partial(hub.snapshot_download, repo, revision=revision)
        folder = _downloaded(fetch)
        for file in not_downloaded(folder, _OPTIONAL):
            try:
                hub.hf_hub_download(repo, file, revision=revision)
            except hub.errors.LocalEntryNotFoundError:  # there is no network
                break
            except hub.errors.EntryNotFoundError:
                pass  # the library notes in the cache that the model has no such file
        return folder
    except Exception as error:  # connection errors have no common base class
        reason = _reason(error, revision)
    raise CheckpointError(f"{name}: {' '.join(reason.split())}")


def _reason(error, revision):
    kinds = [kind.__name__ for kind in type(error).__mro__]
    for kind, reason in _REASONS.items():
        if kind in kinds:
            cause = error.__cause__ or error
            return reason.format(error=error, kind=kinds[0], cause=cause, revision=revision)


def _downloaded(fetch):
    """Downloads the files that `zoo.load` reads; returns their folder."""
    patterns = [*_METADATA, "*.yml", "*.spm"]
    folder = fetch(allow_patterns=patterns, ignore_patterns=["*/*.yml", "*/*.spm"])
    folder = pathlib.Path(folder)
    if (folder / "config.json").is_file():
        # raises an error before gigabytes are downloaded
        registry.find_format(folder, read_json(folder / "config.json"))
        for weights in _WEIGHTS:
            fetch(allow_patterns=[*_METADATA, *weights])
            if any(any(folder.glob(pattern)) for pattern in weights):
                return folder
    else:
        patterns = [f"*{ending}" for ending in marian_folder.FILES]
        fetch(allow_patterns=patterns, ignore_patterns=["*/*"])  # "*" also matches folders
        if marian_folder.is_folder(folder):
            return folder
    kinds = ", ".join(weights[0] for weights in _WEIGHTS)
    raise CheckpointError(
        f"it has no weights that can be read: none of {kinds}, nor a model of Marian."
    )


def _from_kaggle(name):
    handle = name.removeprefix("kaggle://")
    kagglehub = needed("kagglehub")
    try:
        return pathlib.Path(kagglehub.model_download(handle))
    except Exception as error:  # the errors of kagglehub have no common base class
        raise CheckpointError(
            f"{name}: {error} Check the network and the name, kaggle://owner/model/framework/"
            "variation, with or without /version; a gated model also needs KAGGLE_API_TOKEN. "
            "Without a network, add the version that is in the cache."
        ) from None
