"""Serves exports with a minimal Starlette program, for `serving.py`.

    python benchmarks/plain_server.py serving/digits

It answers ``/v1/models/NAME:predict`` as the zoo's server does, and calls the same SavedModel in a
thread for each request, with the instances of that request. It does not check its input.
"""

import argparse
import base64
import contextlib
import pathlib
import socket

import tensorflow as tf
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

with contextlib.suppress(ImportError):
    import tensorflow_text  # noqa: F401  has the operations of exports that take texts


class Model:
    """The signature for images or texts of an export, in a folder of versions."""

    def __init__(self, folder):
        versions = [path for path in folder.iterdir() if path.name.isdigit()]
        newest = max(versions, key=lambda path: int(path.name), default=folder)
        self._loaded = tf.saved_model.load(str(newest))
        self._signature = self._loaded.signatures["serving_default"]
        [self._input] = self._signature.structured_input_signature[1]

    def predict(self, instances):
        """The predictions for a list of strings, or of {"b64": ...}, as lists and dicts."""
        rows = [x if isinstance(x, str) else base64.b64decode(x["b64"]) for x in instances]
        named = {self._input: tf.constant(rows)}
        outputs = self._signature(**named)
        columns = {name: as_text(value.numpy().tolist()) for name, value in outputs.items()}
        if len(columns) == 1:
            return next(iter(columns.values()))
        return [dict(zip(columns, row)) for row in zip(*columns.values())]


def as_text(value):
    if isinstance(value, list):
        return [as_text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


def serve(folders):
    names = [folder.parent.name if folder.name.isdigit() else folder.name for folder in folders]
    models = dict(zip(names, map(Model, folders)))

    async def predict(request):
        instances = (await request.json())["instances"]
        model = models[request.path_params["name"]]
        return JSONResponse({"predictions": await run_in_threadpool(model.predict, instances)})

    app = Starlette(routes=[Route("/v1/models/{name}:predict", predict, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as bound:
        print(f"Serving at http://127.0.0.1:{bound.getsockname()[1]}/", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    serve(parser.parse_args().folders)
