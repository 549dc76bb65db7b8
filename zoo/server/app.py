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

import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from zoo.server import bodies, examples, inputs, metrics, outputs, versions
from zoo.server.batching import Batcher
from zoo.server.errors import RequestError, bad_request, release, shown, unavailable
from zoo.server.models import DEFAULT_SIGNATURE
from zoo.server.origins import TrustedSites
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
        poll_seconds: seconds between checks for other versions; 0 for no checks.
        hosts, origins: see `zoo.server.origins.TrustedSites`; by default any host and no origin.
        grpc_address: "host:port" to answer gRPC requests at; none by default.
        report: called with a line to print for each model when its warm-up is done, and for each
            version that cannot be loaded.

    Attributes:
        app: the ASGI application.
        is_ready: whether the warm-up of all models is done.
        is_stopping: set it to True to answer new requests with 503.
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
        self.batchers = {model.name: Batcher(model, limits) for model in models}
        self._folders = folders
        self._poll_seconds = poll_seconds
        self._grpc_address = grpc_address
        self._all = set(self.batchers.values())  # with those that finish the last requests
        self.limits = limits
        self.report = report
        self.is_ready = False
        self.is_stopping = False
        self.failure = None
        self._memory = bodies.Memory(limits.max_bodies)
        # JSON is parsed and written outside the event loop; two threads suffice because of the GIL.
        self._converters = concurrent.futures.ThreadPoolExecutor(2, "json")
        page = importlib.resources.files("zoo.server").joinpath("page.html")
        page = HTMLResponse(page.read_text("utf-8"), headers=_PAGE_HEADERS)
        self.app = Starlette(
            routes=[
                Route("/", page, methods=["GET"]),
                Route("/healthz", JSONResponse({"status": "alive"}), methods=["GET"]),
                Route("/readyz", self.readyz),
                Route("/monitoring/prometheus/metrics", self.metrics),
                Route("/v1/{rest:path}", self.rest, methods=_METHODS),
            ],
            exception_handlers={HTTPException: _error},
            middleware=[
                Middleware(TrustedSites, hosts, origins),
                Middleware(CORSMiddleware, origins, ["GET", "POST"], ["*"]),
            ],
            lifespan=self._lifespan,
        )

    @property
    def in_flight(self):
        """Number of requests that are being handled."""
        return sum(batcher.in_flight for batcher in self._all)

    @property
    def is_calling(self):
        """Whether a model call is running."""
        return any(batcher.is_running for batcher in self._all)

    async def readyz(self, request):
        if self.is_ready and not self.is_stopping:
            return JSONResponse({"status": "ready"})
        status = "stopping" if self.is_stopping else "starting"
        return JSONResponse({"status": status}, 503, {"Retry-After": "1"})

    async def metrics(self, request):
        for name, batcher in self.batchers.items():
            metrics.QUEUED.labels(name).set(batcher.queue_length)
        text = prometheus_client.generate_latest()
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_PLAIN_0_0_4)

    async def replace(self, model):
        """Serves another version of a model, and lets the requests of the old one end.

        Args:
            model: `zoo.server.models.Model`.

        Raises:
            ServerError: if its warm-up fails; the old version is then still served.
        """
        new, old = Batcher(model, self.limits), self.batchers[model.name]
        self._all.add(new)
        try:
            await self._warm_up(new)
            self.batchers[model.name], new = new, old
        finally:
            await new.stop()  # the one that is not served
            served = self.batchers.values()
            # A call whose request was given up may still run.
            self._all = {b for b in self._all if b in served or b.in_flight or b.is_running}

    async def rest(self, request):
        """Handles requests to TensorFlow Serving's API."""
        started = time.monotonic()
        match = _PATH.fullmatch(request.scope["path"])
        try:
            response = await self._response(request, match)
        except RequestError as error:
            release(error)
            await bodies.drain(request, self.limits.max_body)
            response = _error(request, error)
        except ClientDisconnect:
            response = Response(status_code=499)  # the client is gone
        except Exception as error:
            traceback.print_exc()
            reason = f"Internal server error: {type(error).__name__}: {error}"
            response = _error(request, RequestError(500, reason))
        if request.method == "POST":
            name = match["name"] if match and match["name"] in self.batchers else ""
            metrics.REQUESTS.labels(name, response.status_code).inc()
            if response.status_code == 200:
                metrics.SECONDS.labels(name).observe(time.monotonic() - started)
        if self.is_stopping:
            response.headers["Connection"] = "close"
        return response

    @contextlib.asynccontextmanager
    async def accepted(self, batcher):
        """Counts and limits a request: yields a function to reserve memory; see `Memory.share`.

        Raises:
            RequestError: 503 if the server is stopping; 504 if the request takes too long.
        """
        if self.is_stopping:
            raise unavailable("The server is stopping.")
        seconds = self.limits.request_timeout
        batcher.in_flight += 1
        try:
            async with asyncio.timeout(seconds):
                with self._memory.share() as take:
                    yield take
        except TimeoutError:
            raise RequestError(504, f"The request took more than {seconds:g} s.") from None
        finally:
            batcher.in_flight -= 1

    async def _response(self, request, match):
        method, path = request.method, shown(request.scope["path"])
        if not match or match["verb"] not in (None, "predict", *examples.METHODS):
            raise bad_request(f"Malformed request: {method} {path}")
        allowed = ("POST",) if match["verb"] else ("GET", "HEAD")
        if method not in allowed:  # TensorFlow Serving's status, where HTTP has 405
            raise bad_request(f"{path} takes {allowed[0]}, not {shown(method)}.")
        if not match["name"]:
            return JSONResponse({"models": [b.model.summary() for b in self.batchers.values()]})
        batcher = self.batcher(match["name"], match["version"], match["label"])
        if not match["verb"]:
            model = batcher.model
            return JSONResponse(model.metadata() if match["metadata"] else self._status(model))
        async with self.accepted(batcher) as take:
            body = await bodies.read(request, self.limits.max_body, take)
            answer = await _while_connected(
                request, self._answer(batcher, match["verb"], body, request.headers, take)
            )
            return Response(answer, media_type="application/json")

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
        found = {"version": str(model.version), "state": state, "status": status}
        return {"model_version_status": [found]}

    async def _answer(self, batcher, verb, body, headers, take):
        loop, model, limits = asyncio.get_running_loop(), batcher.model, self.limits

        def read():
            encoding = headers.get("content-encoding", "identity").lower()
            data = bodies.decompress(body, encoding, limits.max_body, take)
            found = inputs.parse(data, limits.max_values)
            name = found.get("signature_name", "")
            if not isinstance(name, str):
                raise bad_request(f"'signature_name' must be a string. Received: {shown(name)}.")
            name = name or DEFAULT_SIGNATURE
            if verb == "predict":
                arrays = inputs.decode(found, model.signature(name).inputs)
                return name, arrays, outputs.encode, inputs.is_row_form(found)
            examples.check_signature(model, name, verb)
            return name, examples.decode(found, limits.max_body), examples.encode, verb

        name, arrays, encode, form = await loop.run_in_executor(self._converters, read)
        found = await batcher.run(name, arrays)
        count = sum(array.size for array in found.values())
        if count > limits.max_values:
            raise RequestError(
                413,
                f"The answer has {count:,} values. At most {limits.max_values:,} are allowed: "
                "request fewer rows at a time.",
            )
        return await loop.run_in_executor(self._converters, encode, found, form)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        running = asyncio.create_task(self._run())
        yield
        running.cancel()
        await asyncio.wait([running])
        self._converters.shutdown(wait=False, cancel_futures=True)

    async def _run(self):
        """Warms up the models; then answers gRPC requests and looks for other versions."""
        grpc_server = None
        try:
            for batcher in self.batchers.values():
                await self._warm_up(batcher)
            if self._grpc_address:
                from zoo.server import grpc_service

                grpc_server, port = await grpc_service.start(self, self._grpc_address)
                self.report(f"gRPC at port {port}")
            self.is_ready = True
            if self._poll_seconds:
                await versions.watch(self, self._folders, self._poll_seconds)
            await asyncio.Event().wait()  # until the server stops
        except Exception as error:
            self.failure = error
        finally:
            if grpc_server:
                await grpc_server.stop(grace=None)

    async def _warm_up(self, batcher):
        started, model = time.monotonic(), batcher.model
        await warm_up(batcher)
        seconds = time.monotonic() - started
        self.report(
            f"{model.name}, version {model.version}: {model.kind}, "
            f"loaded in {model.seconds:.1f} s, warmed up in {seconds:.1f} s"
        )


async def _while_connected(request, answer):
    """Awaits `answer`; cancels it if the client disconnects."""

    async def disconnected():
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer, gone = asyncio.ensure_future(answer), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect()
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


def _error(request, error):
    # in ASCII, as what a client sent may have lone surrogates
    content = json.dumps({"error": error.detail})
    return Response(content, error.status_code, error.headers, media_type="application/json")
