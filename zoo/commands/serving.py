"""Commands for serving: export a model, and serve exports."""

import json
import sys
from typing import Literal

from tyro.conf import Positional, UseAppendAction

from zoo.commands.shared import (
    Float,
    Int,
    RunFolder,
    Source,
    Target,
    Text,
    app,
    flag,
    given,
    load_task,
)
from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly


@app.command
def export(
    run_folder: RunFolder,
    folder: flag(Positional[str], "FOLDER"),
    format: Literal["saved_model", "onnx", "litert", "ctranslate2"] = "saved_model",
    dtype: Text = None,
    top_k: Int = None,
    n_best: Int = None,
    beam_size: Int = None,
    length_penalty: Float = None,
    max_new_tokens: Int = None,
    overwrite: bool = False,
    src_lang: Source = None,
    tgt_lang: Target = None,
):
    """Export a trained model for serving.

    Args:
        folder: new folder, such as serving/vit/1: name and version
        format: only saved_model takes encoded images and strings
        dtype: such as bfloat16 or int8 (the run's); other formats: float32, float16, int8 (float32)
        top_k: classes that a classifier returns (5)
        n_best: translations or continuations per text (1)
        beam_size: of beam search (the run's; of a generator: N_BEST)
        length_penalty: of beam search (the run's; of a generator: 0)
        max_new_tokens: length limit of a generator (64, or as many as fit)
        overwrite: replace an export in FOLDER
    """
    options = locals()  # the flags by their names
    model_options = {name: options.pop(name) for name in ("run_folder", "src_lang", "tgt_lang")}
    if format == "saved_model":
        model_options["dtype"] = options.pop("dtype")
    model = load_task(**given(**model_options))
    from zoo.deploy.export import DESCRIPTION_FILE, export

    print("Exporting the model and checking the export ...", file=sys.stderr)
    folder = export(model, **options)
    about = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
    print(f"{about['kind']}, {about['format']}, {about['bytes'] / 1e6:.1f} MB")
    print(f"compared with the original model: {json.dumps(about['checked'])}")
    print(f"usage: {folder / 'README.md'}\n{folder}")


@app.command
def serve(
    folders: flag(Positional[tuple[str, ...]], "FOLDER [FOLDER ...]"),
    host: Text = None,
    port: Int = None,
    grpc_port: Int = None,
    poll_seconds: Float = None,
    access_log: bool = False,
    allowed_hosts: flag(UseAppendAction[tuple[str, ...]], "NAME", name="allowed-host") = (),
    allowed_origins: flag(UseAppendAction[tuple[str, ...]], "SITE", name="allowed-origin") = (),
    max_batch: Int = None,
    max_rows: Int = None,
    batch_wait_ms: Float = None,
    max_queue: Int = None,
    max_body: Int = None,
    request_timeout: Float = None,
    shutdown_grace: Float = None,
):
    """Serve exported models: TensorFlow Serving's REST API and a web page.

    Args:
        folders: .../NAME/1; .../NAME, which serves its highest version; or NAME=path
        host: 0.0.0.0 listens on all networks (127.0.0.1)
        port: 0 selects a free port (8501)
        grpc_port: port for gRPC requests (none)
        poll_seconds: seconds between checks for other versions on disk; 0 for no checks (2)
        access_log: log every request
        allowed_hosts: host name in requests (localhost, or any with another --host); repeatable
        allowed_origins: web site that may send requests, such as https://example.com; repeatable
        max_batch: maximum number of rows per model call (32)
        max_rows: maximum number of rows per request, else 400 (1024)
        batch_wait_ms: milliseconds a request waits for others to join its batch (2)
        max_queue: maximum number of queued requests per model, else 503 (256)
        max_body: maximum bytes of a request, else 413 (33554432)
        request_timeout: maximum seconds per request, else 504 (60)
        shutdown_grace: seconds to finish running requests on shutdown (30)
    """
    options = given(**locals())  # the flags by their names
    if not folders:
        raise UserError("Pass the folder of an export, such as serving/vit.")
    import_tensorflow_quietly()
    from zoo.server import serve

    return serve(**options)
