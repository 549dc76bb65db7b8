"""Serves exports as the shortest programs do that people write, for `serving.py`.

    python benchmarks/plain_servers.py starlette serving/digits

Both answer ``/v1/models/NAME:predict`` as the zoo's server does, and call the same SavedModel with
all instances of a request. Starlette calls it in a thread for each request; LitServe has a process
for each model and batches requests. Neither checks its input.
"""

import base64
import pathlib
import socket
import sys
from typing import NamedTuple


class Model:
    """The signature for images or texts of an export, in a folder of versions."""

    def __init__(self, folder):
        import tensorflow as tf

        versions = [path for path in folder.iterdir() if path.name.isdigit()]
        newest = max(versions, key=lambda path: int(path.name))
        self._loaded = tf.saved_model.load(str(newest))
        self._signature = self._loaded.signatures["serving_default"]
        [self._input] = self._signature.structured_input_signature[1]

    def predict(self, instances):
        """The predictions for a list of strings, or of {"b64": ...}, as lists and dicts."""
        import tensorflow as tf

        rows = [x if isinstance(x, str) else base64.b64decode(x["b64"]) for x in instances]
        outputs = self._signature(**{self._input: tf.constant(rows)})
        columns = {name: as_text(value.numpy().tolist()) for name, value in outputs.items()}
        if len(columns) == 1:
            return next(iter(columns.values()))
        return [dict(zip(columns, row)) for row in zip(*columns.values())]


def as_text(value):
    if isinstance(value, list):
        return [as_text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


class Options(NamedTuple):
    port: int
    max_batch: int = 32
    wait_seconds: float = 0.002


def starlette(folders, options):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    models = {folder.name: Model(folder) for folder in folders}

    async def predict(request):
        instances = (await request.json())["instances"]
        model = models[request.path_params["name"]]
        return JSONResponse({"predictions": await run_in_threadpool(model.predict, instances)})

    app = Starlette(routes=[Route("/v1/models/{name}:predict", predict, methods=["POST"])])
    uvicorn.run(app, port=options.port, log_level="warning")


def litserve(folders, options):
    import litserve

    class Api(litserve.LitAPI):
        def __init__(self, folder):
            batching = (options.max_batch, options.wait_seconds)
            super().__init__(*batching, api_path=f"/v1/models/{folder.name}:predict")
            self._folder = folder

        def setup(self, device):
            self._model = Model(self._folder)

        def decode_request(self, request):
            return request["instances"]

        def batch(self, inputs):
            return inputs

        def predict(self, batch):
            found = iter(self._model.predict([one for instances in batch for one in instances]))
            return [[next(found) for _ in instances] for instances in batch]

        def unbatch(self, output):
            return output

        def encode_response(self, output):
            return {"predictions": output}

    server = litserve.LitServer([Api(folder) for folder in folders], accelerator="cpu")
    server.run(host="127.0.0.1", port=options.port, generate_client_file=False, log_level="warning")


SERVERS = {"starlette": starlette, "litserve": litserve}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main():
    name, *folders = sys.argv[1:]
    port = free_port()
    print(f"Serving at http://127.0.0.1:{port}/ ", flush=True)
    SERVERS[name]([pathlib.Path(folder) for folder in folders], Options(port))


if __name__ == "__main__":
    main()
