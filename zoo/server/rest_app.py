"""The served models, TensorFlow Serving's REST API, health endpoints and a web page.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest).
"""

import asyncio
import concurrent.futures
import contextlib
import importlib.resources
import json
import time

import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from zoo.server import rest_json
from zoo.server.batching import Batcher
from zoo.server.errors import RequestError, release
from zoo.server.models import DEFAULT_SIGNATURE, give_back_memory

REQUESTS = prometheus_client.Counter("zoo_requests", "Requests for a model", ["model", "code"])
SECONDS = prometheus_client.Histogram("zoo_request_seconds", "Of answered requests", ["model"])
LARGE_BODIES = 8  # requests of the maximum size that are in memory at once


class Service:
    """Serves models; its `app` is an ASGI application.

    Args:
        models: list of `zoo.server.models.Model` with different names.
        limits: `zoo.server.limits.Limits`.
        hosts: host names of the server in requests, without ports; "*" for any.
        origins: other sites whose pages may send requests, such as "https://example.com".

    Attributes:
        batchers: {name of a model: `zoo.server.batching.Batcher`}.
        memory: number of bytes that requests have reserved.
        converters: two threads that read requests and write answers.
    """

    def __init__(self, models, limits, hosts=("*",), origins=()):
        self.limits = limits
        self.batchers = {}
        self.memory = 0
        self._freed = 0  # bytes since memory was given back
        for model in models:
            self.serve(model)
        self._origins = origins
        # JSON is parsed and written outside the event loop; two threads suffice because of the GIL.
        self.converters = concurrent.futures.ThreadPoolExecutor(2)
        self.app = Starlette(
            routes=self._routes(),
            exception_handlers={
                HTTPException: self._error,
                ClientDisconnect: lambda request, error: Response(status_code=499),
            },
            middleware=[
                Middleware(TrustedHostMiddleware, hosts, www_redirect=False),
                Middleware(CORSMiddleware, origins, ["GET", "POST"], ["*"]),
            ],
        )

    def serve(self, model):
        """Serves a model; a previous one of the same name finishes its requests."""
        self.batchers[model.name] = Batcher(model, self.limits)

    def batcher(self, name, version=None):
        """Returns the `zoo.server.batching.Batcher` of a model.

        Raises:
            RequestError: 404 if there is no such model or version.
        """
        batcher = self.batchers.get(name)
        if batcher and version in (None, str(batcher.model.version)):
            return batcher
        asked = name[:80] if version is None else f"{name[:80]}, version {version[:20]}"
        serves = ", ".join(f"{n}, version {b.model.version}" for n, b in self.batchers.items())
        raise RequestError(f"Servable not found for request: {asked}. Available: {serves}", 404)

    @contextlib.asynccontextmanager
    async def accepted(self):
        """Context of a request that limits its time; yields a function that reserves bytes.

        Raises:
            RequestError: 504 if the request takes too long; the function raises 503 if the memory
                for requests is full.
        """
        seconds = self.limits.request_timeout
        taken = 0

        def take(count):
            nonlocal taken
            if self.memory + count > LARGE_BODIES * self.limits.max_body:
                raise RequestError("The memory for requests is full. Try again later.", 503)
            self.memory += count
            taken += count

        try:
            async with asyncio.timeout(seconds):
                yield take
        except TimeoutError:
            raise RequestError(f"The request took more than {seconds:g} s.", 504) from None
        finally:
            self.memory -= taken
            self._freed += taken
            if self._freed - taken <= self.limits.max_body < self._freed:
                asyncio.get_running_loop().call_later(1.0, self._give_back)

    def _give_back(self):
        self._freed = 0
        self.converters.submit(give_back_memory)

    def _routes(self):
        page = importlib.resources.files("zoo.server").joinpath("page.html").read_text("utf-8")
        routes = [
            Route("/", HTMLResponse(page), methods=["GET"]),
            Route("/healthz", JSONResponse({"status": "alive"}), methods=["GET"]),
            Route("/readyz", JSONResponse({"status": "ready"}), methods=["GET"]),
            Mount("/monitoring/prometheus", prometheus_client.make_asgi_app()),  # and /metrics
            Route("/v1/models", self.models),
        ]
        for model in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
            routes += [
                Route(f"{model}:predict", self.predict, methods=["POST"]),
                Route(f"{model}/metadata", self.metadata),
                Route(model, self.status),
            ]
        return routes

    async def models(self, request):
        """The names and versions of all models, for the web page."""
        models = [batcher.model for batcher in self.batchers.values()]
        return JSONResponse({"models": [{"name": m.name, "version": m.version} for m in models]})

    async def metadata(self, request):
        """`GetModelMetadataResponse` as JSON."""
        model = self.batcher(**request.path_params).model
        spec = {"name": model.name, "signature_name": "", "version": str(model.version)}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": model.metadata}})

    async def status(self, request):
        """`GetModelStatusResponse` as JSON."""
        model = self.batcher(**request.path_params).model
        status = {"error_code": "OK", "error_message": ""}
        found = {"version": str(model.version), "state": "AVAILABLE", "status": status}
        return JSONResponse({"model_version_status": [found]})

    async def predict(self, request):
        started = time.monotonic()
        self._check_origin(request.headers)
        async with self.accepted() as take:
            body = await _body(request, self.limits.max_body, take)
            batcher = self.batcher(**request.path_params)
            answer = await _while_connected(request, self._answer(batcher, body))
        SECONDS.labels(batcher.model.name).observe(time.monotonic() - started)
        return self._counted(request, Response(answer, media_type="application/json"))

    async def _error(self, request, error):
        release(error)
        detail = error.detail
        if error.status_code in (404, 405):
            received = f"{request.method} {request.url.path[:80]}"
            detail += f". Predictions are POST /v1/models/NAME:predict. Received: {received}."
        content = json.dumps({"error": detail})  # in ASCII: there may be lone surrogates
        response = Response(content, error.status_code, error.headers, "application/json")
        return self._counted(request, response)

    def _counted(self, request, response):
        if request.method == "POST":
            name = request.path_params.get("name")
            if name not in self.batchers:  # clients can send any name
                name = ""
            REQUESTS.labels(name, response.status_code).inc()
        return response

    def _check_origin(self, headers):
        """Refuses requests that browsers send for pages of other sites, with 403.

        CORS only hides the answers. Clients other than browsers send no `Origin`.
        """
        origin = headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not is_own and origin not in self._origins:
            raise RequestError(f"{ascii(origin[:80])} is not allowed: see --allowed-origin.", 403)

    async def _answer(self, batcher, body):
        loop = asyncio.get_running_loop()

        def read():
            request = rest_json.parse(body, self.limits.max_values)
            name = request.get("signature_name") or DEFAULT_SIGNATURE
            arrays = rest_json.decode(request, batcher.model.signature(name).inputs)
            return name, arrays, "instances" in request

        name, arrays, row_form = await loop.run_in_executor(self.converters, read)
        found = await batcher.run(name, arrays)
        return await loop.run_in_executor(self.converters, rest_json.encode, found, row_form)


async def _body(request, limit, take):
    """Reads the body of a request, of at most `limit` bytes; `take` reserves memory."""
    too_large = RequestError(f"The request is larger than {limit} bytes.", 413)
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        take(len(chunk))
        body += chunk
        if len(body) > limit:
            raise too_large
    return body


async def _while_connected(request, answer):
    """Awaits `answer`, and cancels it if the client disconnects."""

    async def disconnected():
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect()
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()
