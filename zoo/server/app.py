"""The ASGI application: TensorFlow Serving's REST API, health endpoints and a web page.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest).
"""

import asyncio
import concurrent.futures
import contextlib
import importlib.resources
import json
import re
import time
import traceback

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from zoo.server import examples, inputs, outputs
from zoo.server.batching import Batcher
from zoo.server.bodies import Body, Memory
from zoo.server.errors import RequestError, ServerError, release, shown, unavailable
from zoo.server.metrics import CONTENT_TYPE, Metrics
from zoo.server.models import DEFAULT_SIGNATURE
from zoo.server.origins import TrustedSites
from zoo.server.versions import VersionWatcher
from zoo.server.warm_up import warm_up

_PATH = re.compile(
    r"/v1/models(?:/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>[0-9]{1,18})|/labels/(?P<label>[^/:]+))?"
    r"(?:(?P<metadata>/metadata)|:(?P<verb>\w+))?)?"
)
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_PAGE_HEADERS = {
    # The page loads nothing from other hosts and connects to its own server only.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Service:
    """Handles the requests and holds the state of the server.

    Args:
        models: list of `zoo.server.models.Model` with different names.
        limits: `zoo.server.limits.Limits`.
        folders: the models as named on the command line, to serve other versions of them when they
            appear on disk.
        poll_seconds: pause between looks for other versions; 0 to keep the first ones.
        hosts, origins: see `zoo.server.origins.TrustedSites`; by default any host and no origin.
        grpc_address: "host:port" to answer gRPC requests at; none by default.
        report: called with one line for each model when its warm-up is done, and for what the
            user should know.

    Attributes:
        app: the ASGI application.
        is_ready: whether the warm-up of all models is done.
        is_stopping: set it to True to answer new requests with 503.
        in_flight: number of requests that are being handled.
        failure: the error of a model whose warm-up failed, or None.
    """

    def __init__(
        self,
        models,
        limits,
        folders=(),
        poll_seconds=0,
        hosts=None,
        origins=(),
        grpc_address=None,
        report=print,
    ):
        self._metrics = Metrics(lambda: {n: b.queue_length for n, b in self.batchers.items()})
        self.batchers = {model.name: Batcher(model, limits, self._metrics) for model in models}
        self._watcher = VersionWatcher(self, folders, report)
        self._poll_seconds = poll_seconds
        self._grpc_address = grpc_address
        self._all = set(self.batchers.values())  # with those that finish the last requests
        self.limits = limits
        self.report = report
        self.is_ready = False
        self.is_stopping = False
        self.in_flight = 0
        self.failure = None
        self._memory = Memory(limits.max_bodies)
        # JSON is parsed and written outside the event loop; two threads suffice because of the GIL.
        self._converters = concurrent.futures.ThreadPoolExecutor(2, "json")
        page = importlib.resources.files("zoo.server").joinpath("page.html")
        self._page = page.read_text("utf-8")
        cors = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        self.app = Starlette(
            routes=[
                Route("/", self.page),
                Route("/healthz", self.healthz),
                Route("/readyz", self.readyz),
                Route("/monitoring/prometheus/metrics", self.metrics),
                Route("/v1/{rest:path}", self.rest, methods=_METHODS),
            ],
            exception_handlers={HTTPException: _http_error},
            middleware=[
                Middleware(TrustedSites, hosts, origins),
                *([Middleware(CORSMiddleware, origins, **cors)] if origins else []),
            ],
            lifespan=self._lifespan,
        )

    @property
    def is_calling(self):
        """Whether a model call is running."""
        return any(batcher.is_running for batcher in self._all)

    async def page(self, request):
        return HTMLResponse(self._page, headers=_PAGE_HEADERS)

    async def healthz(self, request):
        return JSONResponse({"status": "alive"})

    async def readyz(self, request):
        if self.is_stopping or not self.is_ready:
            status = "stopping" if self.is_stopping else "starting"
            return JSONResponse({"status": status}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    async def metrics(self, request):
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def replace(self, model):
        """Serves another version of a model, and lets the requests of the old one end.

        Args:
            model: `zoo.server.models.Model`.

        Raises:
            ServerError: if its warm-up fails; the old version is then still served.
        """
        new, old = Batcher(model, self.limits, self._metrics), self.batchers[model.name]
        self._all.add(new)
        new.start()
        try:
            await self._warmed_up(new)
        except ServerError:
            await self._end(new)
            raise
        self.batchers[model.name] = new
        await old.drain()
        await self._end(old)

    async def rest(self, request):
        """Handles requests to TensorFlow Serving's API."""
        started = time.monotonic()
        self.in_flight += 1
        body = Body(request, self.limits.max_body)
        try:
            response = await self._routed(request, body)
        except RequestError as error:
            release(error)
            await body.drain()
            response = _error(error.status, error.message, error.headers)
        except ClientDisconnect:
            response = Response(status_code=499)  # the client is gone
        except Exception as error:
            traceback.print_exc()
            response = _error(500, f"Internal server error: {type(error).__name__}: {error}")
        finally:
            self.in_flight -= 1
        if request.method == "POST":
            match = _PATH.fullmatch(request.scope["path"])
            name = match["name"] if match and match["name"] in self.batchers else ""
            self._metrics.request(name, response.status_code, time.monotonic() - started)
        if self.is_stopping:
            response.headers["Connection"] = "close"
        return response

    @contextlib.contextmanager
    def accepted(self, batcher, size):
        """Counts a request of so many bytes that does not come by `rest`.

        Raises:
            RequestError: 503 if the server is stopping or its memory for requests is full.
        """
        if self.is_stopping:
            raise unavailable("The server is stopping.")
        self.in_flight += 1
        try:
            with batcher.held(), self._memory.share() as take:
                take(size)
                yield
        finally:
            self.in_flight -= 1

    async def _routed(self, request, body):
        path, method = request.scope["path"], request.method
        match = _PATH.fullmatch(path)
        if match is None:
            raise RequestError(400, f"Malformed request: {method} {shown(path)}")
        allowed = "POST" if match["verb"] else "GET"
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            # TensorFlow Serving's status, where HTTP has 405
            raise RequestError(400, f"{shown(path)} takes {allowed}, not {shown(method)}.")
        if not match["name"]:
            return JSONResponse({"models": [b.model.summary() for b in self.batchers.values()]})
        batcher = self.batcher(match["name"], match["version"], match["label"])
        if match["metadata"]:
            return JSONResponse(batcher.model.metadata())
        if not match["verb"]:
            return JSONResponse(self._status(batcher.model))
        if match["verb"] not in ("predict", *examples.METHODS):
            raise RequestError(400, f"Malformed request: {method} {shown(path)}")
        return await self._call(request, body, batcher, match["verb"])

    def batcher(self, name, version=None, label=None):
        """The `zoo.server.batching.Batcher` of a model.

        Raises:
            RequestError: 404 if there is no such model or version; versions have no labels.
        """
        batcher = self.batchers.get(name)
        if batcher and not label and (version is None or int(version) == batcher.model.version):
            return batcher
        version = label or version
        asked = name[:80] if version is None else f"{name[:80]}, version {version}"
        serves = ", ".join(f"{n}, version {b.model.version}" for n, b in self.batchers.items())
        raise RequestError(404, f"Servable not found for request: {asked}. Available: {serves}.")

    def _status(self, model):
        """`GetModelStatusResponse` as JSON."""
        state = "UNLOADING" if self.is_stopping else "AVAILABLE" if self.is_ready else "LOADING"
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": str(model.version), "state": state, "status": status}
        return {"model_version_status": [version]}

    async def _call(self, request, body, batcher, verb):
        if self.is_stopping:
            raise unavailable("The server is stopping.")
        try:
            with batcher.held(), self._memory.share() as take:
                async with asyncio.timeout(self.limits.request_timeout):
                    data = await body.read(take)
                    answer = self._answer(batcher, verb, lambda: body.decompressed(data, take))
                    return await self._while_connected(request, answer)
        except TimeoutError:
            seconds = self.limits.request_timeout
            raise RequestError(504, f"The request took more than {seconds:g} s.") from None

    async def _answer(self, batcher, verb, body):
        loop = asyncio.get_running_loop()

        def read():
            found = inputs.parse(body(), self.limits.max_values)
            name = found.get("signature_name", DEFAULT_SIGNATURE)
            if not isinstance(name, str):
                raise RequestError(
                    400, f"'signature_name' must be a string. Received: {shown(name)}."
                )
            if verb in examples.METHODS:
                examples.check_signature(batcher.model, name, verb)
                arrays = examples.decode(found, self.limits.max_body)
                return name, arrays, lambda out: examples.encode(out, verb)
            arrays = inputs.decode(found, batcher.model.signature(name).inputs)
            row_form = inputs.is_row_form(found)
            return name, arrays, lambda out: outputs.encode(out, row_form)

        name, arrays, encode = await loop.run_in_executor(self._converters, read)
        found = await batcher.run(name, arrays)
        answer = await loop.run_in_executor(self._converters, encode, found)
        return Response(answer, media_type="application/json")

    async def _while_connected(self, request, answer):
        """Awaits `answer`; cancels it if the client disconnects."""
        answer = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect()
            return answer.result()
        finally:
            answer.cancel()
            gone.cancel()

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        for batcher in self._all:
            batcher.start()
        running = asyncio.create_task(self._run())
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        for batcher in self._all:
            await batcher.stop()
        self._converters.shutdown(wait=False, cancel_futures=True)

    async def _run(self):
        """Warms up the models; then answers gRPC requests and looks for other versions."""
        grpc_server = None
        try:
            for batcher in self.batchers.values():
                await self._warmed_up(batcher)
            if self._grpc_address:
                from zoo.server import grpc_service

                grpc_server, port = await grpc_service.start(self, self._grpc_address)
                self.report(f"gRPC at port {port}")
            self.is_ready = True
            if self._poll_seconds:
                await self._watcher.run(self._poll_seconds)
            await asyncio.Event().wait()  # until the server stops
        except Exception as error:
            self.failure = error
        finally:
            if grpc_server:
                await grpc_server.stop(grace=None)

    async def _warmed_up(self, batcher):
        started, model = time.monotonic(), batcher.model
        await warm_up(batcher)
        seconds = time.monotonic() - started
        self.report(
            f"{model.name}, version {model.version}: {model.kind}, "
            f"loaded in {model.seconds:.1f} s, warmed up in {seconds:.1f} s"
        )

    async def _end(self, batcher):
        await batcher.stop()
        self._all.discard(batcher)


async def _disconnected(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _http_error(request, error):
    return _error(error.status_code, error.detail, error.headers)


def _error(status, message, headers=None):
    # in ASCII, as what a client sent may have lone surrogates
    content = json.dumps({"error": message})
    return Response(content, status, headers, media_type="application/json")
