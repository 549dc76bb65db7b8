"""Which files of a folder are a model of the program Marian.

They are a file of weights (.bin or .npz), its vocabularies, and usually a configuration in YAML
that names them: decoder.yml, or Bergamot's config*.yml.
"""

import contextlib
import pathlib
import re
import tempfile
import zipfile

from zoo.checkpoints.marian_file import read_yaml, reader
from zoo.errors import CheckpointError
from zoo.tasks.task import MODEL_FILE

MODELS = ("*.npz", "*.bin", "*.bin.gz")
_CONFIG = "decoder.yml"
FILES = (".npz", ".bin", ".yml", ".yaml", ".json", ".vocab", ".spm")
_MOST_EXPANDED = 20  # times the size of an archive; weights hardly become smaller


def is_folder(path):
    """Whether a folder without config.json holds a model of Marian, and is not a run."""
    return not (path / MODEL_FILE).is_file() and bool(_models(path) or _configs(path))


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
    return name == pathlib.PurePosixPath(name).name and name.endswith(FILES)


def _check_size(path, files):
    """Raises `CheckpointError` if an archive has no weights, or expands to far more than it is."""
    if not any(file.filename.endswith((".npz", ".bin")) for file in files):
        raise CheckpointError(
            f"{path} has no model of Marian: no .npz or .bin outside of folders. Unpack any other."
        )
    size = sum(file.file_size for file in files)
    if size > _MOST_EXPANDED * path.stat().st_size:
        raise CheckpointError(f"{path} would expand to {size / 1e6:,.0f} MB: it is not a model.")


def _models(folder):
    files = [file for pattern in MODELS for file in sorted(folder.glob(pattern))]
    return [file.name for file in files if file.is_file() and reader(file)]


def model_file(path):
    """The file of weights of a file or folder, and the configuration that names it, or {}."""
    if path.is_file():
        configs = _configs(path.parent).values()
        return path, next((each for each in configs if path.name in each["models"]), {})
    configs = _configs(path)
    if _CONFIG in configs:
        configs = {_CONFIG: configs[_CONFIG]}
    named = {name for config in configs.values() for name in config["models"]}
    names = sorted(named) or _models(path)
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise CheckpointError(f"{path} must have one model; load one of its files. Found: {found}.")
    return path / names[0], next(iter(configs.values()), {})


def _configs(folder):
    """{name: content} of the files that name models, with lists of names without a folder."""
    found = {}
    for file in filter(pathlib.Path.is_file, sorted(folder.glob("*.yml"))):
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        if re.search("^models *:", text, re.MULTILINE):
            config = read_yaml(file, text)
            for name in ("models", "vocabs"):
                named = config.get(name) or []
                named = named if isinstance(named, list) else [named]
                config[name] = [pathlib.PurePosixPath(str(each)).name for each in named]
            # "models" may also be a piece of a vocabulary
            if any(name.endswith((".npz", ".bin")) for name in config["models"]):
                found[file.name] = config
    return found


def vocab_files(file, config):
    """For source and target the files (SentencePiece model, list of pieces or None)."""
    folder, found = file.parent, []
    named = [folder / name for name in config.get("vocabs", ())]
    for index, (side, short) in enumerate((("source", "src"), ("target", "trg"))):
        patterns = f"*.fsv {short}vocab*.spm *{short}.vocab vocab*.spm *vocab*.yml {side}.spm *.spm"
        globbed = (sorted(folder.glob(pattern)) for pattern in patterns.split())
        files = [named[-index]] if named else next(filter(None, globbed), [])
        if len(files) != 1:
            names = ", ".join(each.name for each in files) or "none"
            raise CheckpointError(
                f"{folder} must have one vocabulary of the {side} language, or a {_CONFIG} that "
                f"names those of both under `vocabs`. Found: {names}."
            )
        [vocab] = files
        if vocab.suffix == ".fsv":
            raise CheckpointError(f"{vocab} is a vocabulary of factors, which is not supported.")
        model = vocab if vocab.suffix == ".spm" else folder / f"{side}.spm"
        if vocab.is_file() and not model.is_file():
            raise CheckpointError(
                f"{folder} contains no {model.name}, the SentencePiece model of {vocab.name}. "
                "Models with another tokenizer, such as source.bpe, are not supported."
            )
        found.append((model, None if vocab is model else vocab))
    return found
