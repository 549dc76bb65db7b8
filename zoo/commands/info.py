"""``python -m zoo info``."""

import json

from zoo.commands.shared import RunFolder, SourceLanguage, TargetLanguage, load
from zoo.files import as_path


def info(run_folder: RunFolder, src_lang: SourceLanguage = None, tgt_lang: TargetLanguage = None):
    """Print a description of a run, or of published weights, as JSON."""
    loaded = load(run_folder, src_lang=src_lang, tgt_lang=tgt_lang)
    model = {"type": type(loaded.model).__name__, "parameters": loaded.model.count_params()}
    report = {"model": model, **loaded.description()}
    for name in ("metrics", "config"):
        path = as_path(run_folder) / f"{name}.json"
        if path.is_file():
            report[name] = json.loads(path.read_text())
    print(json.dumps(report, indent=2))
