"""Which files of a folder, or of a .zip, are a model of the program Marian.

They are a file of weights (.bin or .npz), its vocabularies, and usually a configuration in YAML
that names them: decoder.yml, or Bergamot's config*.yml.
"""

import pathlib
import re
import zipfile

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.marian_file import is_marian, read_yaml

MODELS = ("*.npz", "*.bin")


def is_folder(path):
    """Whether a folder without config.json holds a model of Marian."""
    return any(map(is_marian, _weights(path)))


def _weights(folder):
    return [file for pattern in MODELS for file in sorted(folder.glob(pattern))]


def unpacked(path, folder):
    """The folder with the files of an archive that have no folder of their own."""
    folder = pathlib.Path(folder)
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if pathlib.PurePosixPath(name).name == name:
                    archive.extract(name, folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged, or not a .zip file: {error}") from None
    return folder


def model_file(path):
    """The file of weights of a file or folder, and the configuration that names it, or {}."""
    folder = path if path.is_dir() else path.parent
    configs = [read_yaml(file, file.read_text()) for file in _configs(folder)]
    for config in configs:
        [name, *others] = config["models"]
        if others:
            raise CheckpointError(f"{folder} is an ensemble of models. Load one of its files.")
        if path.is_dir() or path.name == pathlib.Path(name).name:
            return folder / pathlib.Path(name).name, config
    if path.is_file():
        return path, {}
    [file, *others] = filter(is_marian, _weights(folder))
    if others:
        names = ", ".join(each.name for each in (file, *others))
        raise CheckpointError(f"{folder} has several models: {names}. Load one of these files.")
    return file, {}


def _configs(folder):
    """The YAML files that name models, decoder.yml first."""
    files = sorted(folder.glob("*.yml"), key=lambda file: file.name != "decoder.yml")
    return [file for file in files if re.search("^models:", file.read_text(), re.MULTILINE)]


def vocab_files(file, config):
    """For source and target the files (SentencePiece model, list of pieces or None)."""
    folder, found = file.parent, []
    named = [folder / pathlib.Path(name).name for name in config.get("vocabs", ())]
    for index, side in enumerate(("source", "target")):
        short = ("src", "trg")[index]
        patterns = (f"{short}vocab*.spm", "vocab*.spm", f"*{short}.vocab", "*vocab.yml", "*.spm")
        files = named[index : index + 1] or [f for p in patterns for f in sorted(folder.glob(p))]
        if not files:
            raise CheckpointError(f"{folder} has no vocabulary of the {side} language.")
        pieces = None if files[0].suffix == ".spm" else files[0]
        found.append((files[0] if pieces is None else folder / f"{side}.spm", pieces))
    return found
