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

from zoo.server import inputs, outputs
from zoo.server.batching import Batcher
from zoo.server.bodies import Body, Memory
from zoo.server.errors import RequestError, unavailable
from zoo.server.inputs import shown
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
        hosts, origins: see `zoo.server.origins.TrustedSites`; by default any host and no origin.
        report: called with one line for each model when its warm-up is done.

    Attributes:
        app: the ASGI application.
        is_ready: whether the warm-up of all models is done.
        is_stopping: set it to True to answer new requests with 503.
        in_flight: number of requests that are being handled.
        failure: the error of a model whose warm-up failed, or None.
    """

    def __init__(self, models, limits, hosts=None, origins=(), report=print):
        self.batchers = {model.name: Batcher(model, limits) for model in models}
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
        return any(batcher.is_running for batcher in self.batchers.values())

    async def page(self, request):
        return HTMLResponse(self._page, headers=_PAGE_HEADERS)

    async def healthz(self, request):
        return JSONResponse({"status": "alive"})

    async def readyz(self, request):
        if self.is_stopping or not self.is_ready:
            status = "stopping" if self.is_stopping else "starting"
            return JSONResponse({"status": status}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    async def rest(self, request):
        """Handles requests to TensorFlow Serving's API."""
        self.in_flight += 1
        body = Body(request, self.limits.max_body)
        try:
            response = await self._routed(request, body)
        except RequestError as error:
            await body.drain()
            response = _error(error.status, error.message, error.headers)
        except ClientDisconnect:
            response = Response(status_code=499)  # the client is gone
        except Exception as error:
            traceback.print_exc()
            response = _error(500, f"Internal server error: {type(error).__name__}: {error}")
        finally:
            self.in_flight -= 1
        if self.is_stopping:
            response.headers["Connection"] = "close"
        return response

    async def _routed(self, request, body):
        path, method = request.scope["path"], request.method
        match = _PATH.fullmatch(path)
        if match is None:
            raise RequestError(400, f"Malformed request: {method} {shown(path)}")
        allowed = "POST" if match["verb"] else "GET"
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            message = f"{shown(path)} takes {allowed}, not {shown(method)}."
            raise RequestError(405, message, {"Allow": allowed})
        if not match["name"]:
            return JSONResponse({"models": [b.model.summary() for b in self.batchers.values()]})
        batcher = self._batcher(match)
        if match["metadata"]:
            return JSONResponse(batcher.model.metadata())
        if not match["verb"]:
            return JSONResponse(self._status(batcher.model))
        if match["verb"] != "predict":
            raise RequestError(501, f":{shown(match['verb'])} is not supported. Use :predict.")
        return await self._predict(request, body, batcher)

    def _batcher(self, match):
        batcher = self.batchers.get(match["name"])
        version = match["version"] or match["label"]
        if batcher and (not version or int(match["version"] or -1) == batcher.model.version):
            return batcher
        asked = f"{match['name'][:80]}, version {version}" if version else match["name"][:80]
        serves = ", ".join(f"{n}, version {b.model.version}" for n, b in self.batchers.items())
        raise RequestError(404, f"Servable not found for request: {asked}. Available: {serves}.")

    def _status(self, model):
        """`GetModelStatusResponse` as JSON."""
        state = "UNLOADING" if self.is_stopping else "AVAILABLE" if self.is_ready else "LOADING"
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": str(model.version), "state": state, "status": status}
        return {"model_version_status": [version]}

    async def _predict(self, request, body, batcher):
        if self.is_stopping:
            raise unavailable("The server is stopping.")
        try:
            with self._memory.share() as take:
                async with asyncio.timeout(self.limits.request_timeout):
                    answer = self._answer(batcher, body, await body.read(take), take)
                    return await self._while_connected(request, answer)
        except TimeoutError:
            seconds = self.limits.request_timeout
            raise RequestError(504, f"The request took more than {seconds:g} s.") from None

    async def _answer(self, batcher, body, data, take):
        loop = asyncio.get_running_loop()

        def read():
            found = inputs.parse(body.decompressed(data, take), self.limits.max_values)
            name = _signature_name(found, batcher.model)
            arrays = inputs.decode(found, batcher.model.signatures[name].inputs)
            return name, arrays, inputs.is_row_form(found)

        name, arrays, row_form = await loop.run_in_executor(self._converters, read)
        found = await batcher.run(name, arrays)
        answer = await loop.run_in_executor(self._converters, outputs.encode, found, row_form)
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
        for batcher in self.batchers.values():
            batcher.start()
        warming = asyncio.create_task(self._warm_up())
        yield
        warming.cancel()
        for batcher in self.batchers.values():
            await batcher.stop()
        self._converters.shutdown(wait=False, cancel_futures=True)

    async def _warm_up(self):
        try:
            for name, batcher in self.batchers.items():
                started, model = time.monotonic(), batcher.model
                await warm_up(batcher)
                seconds = time.monotonic() - started
                self.report(
                    f"{name}, version {model.version}: {model.kind}, loaded in "
                    f"{model.seconds:.1f} s, warmed up in {seconds:.1f} s"
                )
            self.is_ready = True
        except Exception as error:
            self.failure = error


def _signature_name(request, model):
    name = request.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise RequestError(400, f"'signature_name' must be a string. Received: {shown(name)}.")
    if name not in model.signatures:
        raise RequestError(
            400,
            f"Serving signature name: {shown(name)} not found in signature def. "
            f"Available: {sorted(model.signatures)}.",
        )
    return name


async def _disconnected(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _http_error(request, error):
    return _error(error.status_code, error.detail, error.headers)


def _error(status, message, headers=None):
    # in ASCII, as what a client sent may have lone surrogates
    content = json.dumps({"error": message})
    return Response(content, status, headers, media_type="application/json")
