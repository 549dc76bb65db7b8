"""Finds the files of a model of the program Marian in a folder or an archive.

These are the weights (.bin or .npz), the vocabularies, and usually a configuration in YAML that
names them: decoder.yml, or Bergamot's config*.yml.
"""

import contextlib
import pathlib
import re
import tempfile
import zipfile

from zoo.checkpoints.marian_file import read_yaml, reader
from zoo.errors import CheckpointError
from zoo.files import check_archive, read_text
from zoo.tasks.task import MODEL_FILE

MODELS = ("*.npz", "*.bin", "*.bin.gz")
_CONFIG = "decoder.yml"
FILES = (".npz", ".bin", ".yml", ".yaml", ".json", ".vocab", ".spm")


def is_folder(path):
    """Whether a folder without config.json contains a model of Marian, and not a run."""
    return not (path / MODEL_FILE).is_file() and bool(_models(path) or _configs(path))


@contextlib.contextmanager
def unpacked(path):
    """Context in which a ``.zip`` archive is a temporary folder; any other path is unchanged."""
    if path.suffix != ".zip" or path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                check_archive(path, archive)
                names = [name for name in archive.namelist() if name.endswith(FILES)]
                names = [name for name in names if pathlib.PurePosixPath(name).name == name]
                archive.extractall(folder, names)
        except (CheckpointError, OSError):
            raise
        except Exception as error:  # each compression method raises its own
            raise CheckpointError(f"{path} is damaged, or not a .zip file: {error}") from None
        try:
            yield pathlib.Path(folder)
        except CheckpointError as error:  # names the archive in place of the folder
            raise CheckpointError(str(error).replace(folder, str(path))) from None


def _models(folder):
    files = [file for pattern in MODELS for file in sorted(folder.glob(pattern))]
    return [file.name for file in files if file.is_file() and reader(file)]


def model_file(path):
    """Returns the path of the weights in a folder, and the configuration that names it, or {}.

    The path may also be that of the weights. Raises `CheckpointError` if there are none or several.
    """
    if path.is_file():
        for config in _configs(path.parent).values():
            if path.name in config["models"]:
                return path, config
        return path, {}
    configs = _configs(path)
    if _CONFIG in configs:
        configs = {_CONFIG: configs[_CONFIG]}
    named = {name for config in configs.values() for name in config["models"]}
    names = sorted(named) or _models(path)
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise CheckpointError(
            f"{path} must contain one model, outside of folders. Load one of its files. Found: "
            f"{found}."
        )
    return path / names[0], next(iter(configs.values()), {})


def _configs(folder):
    """{name: content} of the configurations; `models` and `vocabs` are lists of names of files."""
    found = {}
    for file in sorted(folder.glob("*.yml")):
        if not file.is_file():
            continue
        text = read_text(file, errors="replace")
        if re.search("^models *:", text, re.MULTILINE):
            config = read_yaml(file, text)
            for name in ("models", "vocabs"):
                paths = config.get(name) or []
                if not isinstance(paths, list):
                    paths = [paths]
                config[name] = [pathlib.PurePosixPath(str(path)).name for path in paths]
            # a vocabulary may have a piece "models"
            if any(name.endswith((".npz", ".bin")) for name in config["models"]):
                found[file.name] = config
    return found


def vocab_files(file, config):
    """Returns the paths of (SentencePiece model, vocabulary) for source and target.

    The vocabulary is None if it is that of the SentencePiece model.
    """
    folder = file.parent
    named = [folder / name for name in config.get("vocabs", ())]
    found = []
    for side, short in (("source", "src"), ("target", "trg")):
        if named:
            files = [named[0] if side == "source" else named[-1]]
        else:
            files = _first_matches(folder, side, short)
        if len(files) != 1:
            names = ", ".join(each.name for each in files) or "none"
            raise CheckpointError(
                f"{folder} must contain one vocabulary of the {side} language, or a {_CONFIG} that "
                f"names both under `vocabs`. Found: {names}."
            )
        [vocab] = files
        if vocab.suffix == ".fsv":
            raise CheckpointError(f"{vocab}: vocabularies of factors are not supported.")
        model = vocab if vocab.suffix == ".spm" else folder / f"{side}.spm"
        if vocab.is_file() and not model.is_file():
            raise CheckpointError(
                f"{folder} contains no {model.name}, the SentencePiece model of {vocab.name}. "
                "Models with another tokenizer, such as source.bpe, are not supported."
            )
        found.append((model, None if vocab is model else vocab))
    return found


def _first_matches(folder, side, short):
    """The vocabularies of the first of these patterns that has matches."""
    own = (f"{short}vocab*.spm", f"*{short}.vocab")
    for pattern in ("*.fsv", *own, "vocab*.spm", "*vocab*.yml", f"{side}.spm", "*.spm"):
        files = sorted(folder.glob(pattern))
        if files:
            return files
    return []


def shortlist_file(file, config):
    """Returns the path of the lexical shortlist beside a model."""
    named = config.get("shortlist")
    if named:  # the path, and numbers
        files = [file.parent / pathlib.PurePosixPath(str(named[0])).name]
    else:
        files = sorted(file.parent.glob("lex*.bin"))
    if len(files) != 1 or not files[0].is_file():
        names = ", ".join(each.name for each in files) or "lex*.bin"
        raise CheckpointError(f"{file.parent} must contain one lexical shortlist: {names}.")
    return files[0]
