"""Which files of a folder, or of a .zip, are a model of the program Marian.

They are a file of weights (.bin or .npz), its vocabularies, and usually a configuration in YAML
that names them: decoder.yml, or Bergamot's config*.yml.
"""

import contextlib
import pathlib
import re
import tempfile
import zipfile

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.marian_file import is_marian, read_yaml

MODELS = ("*.npz", "*.bin")
_READ = (".npz", ".bin", ".yml", ".vocab", ".spm")
_MOST_EXPANDED = 20  # times the size of an archive; weights hardly become smaller


def is_folder(path):
    """Whether a folder without config.json holds a model of Marian."""
    return any(map(is_marian, _weights(path)))


def _weights(folder):
    return [file for pattern in MODELS for file in sorted(folder.glob(pattern))]


@contextlib.contextmanager
def unpacked(path):
    """A folder with the files of an archive that are read; errors name the archive.

    Any other path is yielded as it is.
    """
    if path.suffix != ".zip" or path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                files = [file for file in archive.infolist() if _is_read(file.filename)]
                _check_size(path, files)
                archive.extractall(folder, files)
        except (CheckpointError, OSError):
            raise
        except Exception as error:  # each compression has its own
            raise CheckpointError(f"{path} is damaged, or not a .zip file: {error}") from None
        try:
            yield pathlib.Path(folder)
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(folder, str(path))) from None


def _is_read(name):
    return name == pathlib.PurePosixPath(name).name and name.endswith(_READ)


def _check_size(path, files):
    """Raises `CheckpointError` if an archive has no weights, or expands to far more than it is."""
    if not any(file.filename.endswith((".npz", ".bin")) for file in files):
        raise CheckpointError(f"{path} has no model of Marian: no .npz or .bin outside of folders.")
    size = sum(file.file_size for file in files)
    if size > _MOST_EXPANDED * path.stat().st_size:
        raise CheckpointError(f"{path} would expand to {size / 1e6:,.0f} MB: it is not a model.")


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
