"""``python -m zoo info``."""

import json

from tyro.conf import Positional

from zoo.commands.shared import RUN_HELP, SourceLanguage, TargetLanguage, flag, load
from zoo.files import as_path, read_json
from zoo.startup import import_tensorflow_quietly


def info(
    run_folder: flag(Positional[str | None], "[RUN]", RUN_HELP) = None,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
):
    """Print a description of a run, or of published weights, as JSON.

    Without a model, print the devices, how recipes use them, and versions, for a bug report.
    """
    report = (
        _about_machine() if run_folder is None else _about_model(run_folder, src_lang, tgt_lang)
    )
    print(json.dumps(report, indent=2))


def _about_model(run_folder, src_lang, tgt_lang):
    loaded = load(run_folder, src_lang=src_lang, tgt_lang=tgt_lang)
    model = {"type": type(loaded.model).__name__, "parameters": loaded.model.count_params()}
    report = {"model": model, **loaded.description()}
    for name in ("metrics", "config"):
        path = as_path(run_folder) / f"{name}.json"
        if path.is_file():
            report[name] = read_json(path)
    return report


def _about_machine():
    import_tensorflow_quietly()
    from zoo import __version__, hardware

    report = {"zoo": __version__, **hardware.environment()}
    report["precision auto"] = hardware.faster_precision()
    report["jit_compile auto"] = "on" if hardware.has_gpu() else "off, as there is no GPU"
    warning = hardware.unused_gpu()
    if warning:
        report["warning"] = warning
    return report
