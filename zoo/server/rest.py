"""The ASGI application: TensorFlow Serving's REST API, health endpoints and a web page.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest).
"""

import asyncio
import importlib.resources
import json
import time
import traceback

import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from zoo.server import inputs, metrics, outputs
from zoo.server.errors import RequestError, bad_request, release, shown
from zoo.server.models import DEFAULT_SIGNATURE

_PAGE_HEADERS = {
    # The page loads nothing from other hosts and connects to its own server only.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Rest:
    """Answers REST requests by the models of a service.

    Args:
        service: `zoo.server.service.Service`.
        hosts: host names of the server in requests, without ports; "*" for any.
        origins: other sites whose pages may send requests, such as "https://example.com".

    Attributes:
        app: the ASGI application.
        was_aborted: whether the server was stopped before a request was answered.
    """

    def __init__(self, service, hosts=("*",), origins=()):
        self._service = service
        self._origins = origins
        self.was_aborted = False
        self.app = Starlette(
            routes=self._routes(),
            exception_handlers={HTTPException: _error},
            middleware=[
                Middleware(TrustedHostMiddleware, hosts, www_redirect=False),
                Middleware(CORSMiddleware, origins, ["GET", "POST"], ["*"]),
            ],
        )

    def _routes(self):
        page = importlib.resources.files("zoo.server").joinpath("page.html").read_text("utf-8")
        routes = [
            Route("/", HTMLResponse(page, headers=_PAGE_HEADERS), methods=["GET"]),
            Route("/healthz", JSONResponse({"status": "alive"}), methods=["GET"]),
            Route("/readyz", JSONResponse({"status": "ready"}), methods=["GET"]),
            Route("/monitoring/prometheus/metrics", self.metrics),
            Route("/v1/models", self.models),
        ]
        for model in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
            routes += [
                Route(f"{model}:predict", self.predict, methods=["POST"]),
                Route(f"{model}/metadata", self.metadata),
                Route(model, self.status),
            ]
        return routes

    async def metrics(self, request):
        for name, batcher in self._service.batchers.items():
            metrics.QUEUED.labels(name).set(len(batcher.queue))
        text = prometheus_client.generate_latest()
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_PLAIN_0_0_4)

    async def models(self, request):
        """Which models there are, for the web page."""
        models = [batcher.model for batcher in self._service.batchers.values()]
        return JSONResponse({"models": [{"name": m.name, "version": m.version} for m in models]})

    async def metadata(self, request):
        return JSONResponse(self._service.batcher(**request.path_params).model.metadata())

    async def status(self, request):
        """`GetModelStatusResponse` as JSON."""
        model = self._service.batcher(**request.path_params).model
        status = {"error_code": "OK", "error_message": ""}
        found = {"version": str(model.version), "state": "AVAILABLE", "status": status}
        return JSONResponse({"model_version_status": [found]})

    async def predict(self, request):
        started, name = time.monotonic(), request.path_params["name"]
        try:
            self._check_origin(request.headers)
            async with self._service.accepted() as take:
                body = await _body(request, self._service.limits.max_body, take)
                batcher = self._service.batcher(**request.path_params)
                answer = await _while_connected(request, self._answer(batcher, body))
            response = Response(answer, media_type="application/json")
        except RequestError as error:
            release(error)
            response = _error(request, error)
        except ClientDisconnect:
            response = Response(status_code=499)  # the client is gone
        except asyncio.CancelledError:
            self.was_aborted = True
            raise
        except Exception as error:
            traceback.print_exc()
            reason = f"Internal server error: {type(error).__name__}: {error}"
            response = _error(request, RequestError(500, reason))
        name = name if name in self._service.batchers else ""  # others are made up by clients
        metrics.REQUESTS.labels(name, response.status_code).inc()
        if response.status_code == 200:
            metrics.SECONDS.labels(name).observe(time.monotonic() - started)
        return response

    def _check_origin(self, headers):
        """Refuses what a page of another site makes its visitor's browser send, with 403.

        A browser sends such requests to any address that it can reach, a server on the same machine
        too; CORS only hides the answers. Other clients send no `Origin`.
        """
        origin = headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not is_own and origin not in self._origins:
            raise RequestError(
                403,
                f"Requests from pages of {ascii(origin[:80])} are not allowed. "
                "To allow this site, start the server with --allowed-origin.",
            )

    async def _answer(self, batcher, body):
        limits = self._service.limits

        def read():
            request = inputs.parse(body, limits.max_values)
            name = request.get("signature_name", "")
            if not isinstance(name, str):
                raise bad_request(f"'signature_name' must be a string. Received: {shown(name)}.")
            name = name or DEFAULT_SIGNATURE
            arrays = inputs.decode(request, batcher.model.signature(name).inputs)
            return name, arrays, "instances" in request

        name, arrays, row_form = await asyncio.to_thread(read)  # outside the event loop
        found = await batcher.run(name, arrays)
        count = sum(array.size for array in found.values())
        if count > limits.max_values:
            raise RequestError(
                413,
                f"The answer has {count:,} values. At most {limits.max_values:,} are allowed: "
                "request fewer rows at a time.",
            )
        return await asyncio.to_thread(outputs.encode, found, row_form)


async def _body(request, limit, take):
    """Reads the body of a request, of at most `limit` bytes; takes memory for each piece."""
    body, declared = bytearray(), int(request.headers.get("content-length", 0))
    too_large = RequestError(413, f"The request is larger than {limit} bytes.")
    if declared > limit:
        raise too_large
    async for chunk in request.stream():
        take(len(chunk))
        body += chunk
        if len(body) > limit:
            raise too_large
    return body


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
