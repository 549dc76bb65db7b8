"""Clients of `serving_soak.py`: good ones, whose answers are known, and hostile ones."""

import asyncio
import base64
import collections
import contextlib
import io
import json
import random
import time
import zlib

import httpx
from PIL import Image
from serving import agrees


class Good:
    """Clients whose every answer is known.

    Attributes:
        results: [(time of the answer, seconds it took, "right", "wrong" or "lost")].
        reasons: what the wrong and lost requests got instead.
    """

    def __init__(self, url, answers):
        self._url = url
        self._answers = collections.defaultdict(list)
        for name, instance, prediction in answers:
            self._answers[name].append((instance, prediction))
        self.results = []
        self.reasons = []

    async def client(self, seed, end):
        """Sends requests of one to three instances until `end`."""
        choice = random.Random(seed)
        async with httpx.AsyncClient(timeout=120) as client:
            while time.monotonic() < end:
                name = choice.choice(sorted(self._answers))
                asked = choice.choices(self._answers[name], k=choice.randint(1, 3))
                started = time.monotonic()
                result = await self._ask(client, name, asked)
                now = time.monotonic()
                self.results.append((now, now - started, result))
                if result == "lost":
                    await asyncio.sleep(0.1)

    async def _ask(self, client, name, asked):
        body = json.dumps({"instances": [instance for instance, _ in asked]})
        try:
            answer = await client.post(f"{self._url}/v1/models/{name}:predict", content=body)
        except httpx.HTTPError as error:
            self.reasons.append(repr(error))
            return "lost"
        if answer.status_code == 200 and agrees(
            answer.json()["predictions"], [prediction for _, prediction in asked]
        ):
            return "right"
        self.reasons.append(f"{answer.status_code}: {answer.text[:200]}")
        return "wrong" if answer.status_code == 200 else "lost"


class Hostile:
    """Clients that try to make the server fail, or to keep it busy.

    Attributes:
        results: {kind of request: counts of what it got: a status or what happened instead}.
    """

    def __init__(self, url, answers, seed):
        self._url = httpx.URL(url)
        self._choice = random.Random(seed)
        self._instances = collections.defaultdict(list)
        for name, instance, _ in answers:
            self._instances[name].append(json.dumps(instance))
        self._bodies = bodies()
        self._kinds = {
            **dict.fromkeys(self._bodies, self._post),
            "1,025 rows": self._too_many_rows,
            "1,024 rows": self._many_rows,
            "1,024 rows, and leaves": self._leaves,
            "1,024 rows, read slowly": self._reads_slowly,
            "200 pipelined requests, read slowly": self._reads_pages_slowly,
            "name with a lone surrogate": self._odd_name,
            "foreign host": self._foreign_host,
            "foreign origin": self._foreign_origin,
            "50 half-sent headers": self._half_sent_headers,
            "half-sent body": self._half_sent_body,
            "body in single bytes": self._slow_body,
            "noise": self._noise,
        }
        self.results = {kind: collections.Counter() for kind in self._kinds}
        self._next = self._shuffled()

    def _shuffled(self):
        """Yields all kinds in a random order, then in another, and so on."""
        while True:
            yield from self._choice.sample(list(self._kinds), len(self._kinds))

    async def client(self):
        """Sends requests until it is cancelled."""
        async with httpx.AsyncClient(timeout=120) as client:
            while True:
                kind = next(self._next)
                name = self._choice.choice(sorted(self._instances))
                try:
                    got = await self._kinds[kind](client, name, kind)
                except asyncio.CancelledError:
                    self.results[kind]["not finished"] += 1
                    raise
                except (httpx.HTTPError, OSError, asyncio.IncompleteReadError) as error:
                    got = type(error).__name__
                self.results[kind][str(got)] += 1

    async def _post(self, client, name, kind):
        body, headers = self._bodies[kind]
        return await self._posted(client, name, body, headers)

    async def _posted(self, client, name, body, headers=None):
        url = self._url.join(f"/v1/models/{name}:predict")
        return (await client.post(url, content=body, headers=headers)).status_code

    def _rows(self, name, count, **settings):
        """A request of as many of the longest instance that fits into a body."""
        fits = [one for one in self._instances[name] if len(one) * count < 2**24]
        start = json.dumps({**settings, "instances": []})[:-2]
        longest = max(fits, key=len)
        return f"{start}{', '.join([longest] * count)}]}}".encode()

    async def _too_many_rows(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1025))

    async def _many_rows(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1024))

    async def _leaves(self, client, name, kind):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._choice.uniform(0.05, 2.0)):
                return await self._posted(client, name, self._rows(name, 1024))
        return "left"

    async def _odd_name(self, client, name, kind):
        return await self._posted(client, "%ED%A0%80", self._rows(name, 1))

    async def _foreign_host(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1), {"host": "evil.example"})

    async def _foreign_origin(self, client, name, kind):
        headers = {"origin": "https://evil.example"}
        return await self._posted(client, name, self._rows(name, 1), headers)

    # --- connections of their own -----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _connection(self):
        reader, writer = await asyncio.open_connection(self._url.host, self._url.port, limit=2**12)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def _head(self, name, body=b""):
        return (
            f"POST /v1/models/{name}:predict HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()

    async def _answer(self, *parts, pause=0.0):
        """Sends parts with pauses; returns the status of the answer, "closed" if none comes."""
        async with self._connection() as (reader, writer):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            line = await reader.readline()
            return line.split()[1].decode() if line else "closed"

    async def _half_sent_headers(self, client, name, kind):
        head = self._head(name)[: self._choice.randint(0, 40)]
        got = await asyncio.gather(*(self._answer(head) for _ in range(50)), return_exceptions=True)
        return ", ".join(sorted({str(one) for one in got}))

    async def _half_sent_body(self, client, name, kind):
        body = self._rows(name, 100)
        return await self._answer(self._head(name, body) + body[: len(body) // 2])

    async def _slow_body(self, client, name, kind):
        body = self._rows(name, 1)[:100]  # cut off, so that it gets 400
        parts = [body[index : index + 1] for index in range(len(body))]
        return await self._answer(self._head(name, body), *parts, pause=0.2)

    async def _noise(self, client, name, kind):
        noise = self._choice.randbytes(self._choice.randint(20, 200_000))
        return await self._answer(noise + b"\r\n\r\n")

    async def _reads_slowly(self, client, name, kind):
        is_image = self._instances[name][0].startswith("{")
        settings = {"signature_name": "attention"} if is_image else {}  # has larger outputs
        body = self._rows(name, 1024, **settings)
        return await self._read_slowly(self._head(name, body) + body)

    async def _reads_pages_slowly(self, client, name, kind):
        return await self._read_slowly(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)

    async def _read_slowly(self, request):
        async with self._connection() as (reader, writer):
            writer.write(request)
            await writer.drain()
            start = await reader.read(12)
            for _ in range(100):
                if not await reader.read(2**10):
                    break
                await asyncio.sleep(0.2)
            return start[9:].decode() or "closed"


def bodies():
    """{kind of hostile request: (its body, its headers)}."""
    wide = Image.new("L", (7000, 7000))
    empty = {}
    jpeg = encoded(wide, "JPEG", progressive=True)
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    gif = encoded(wide, "GIF")
    png = encoded(Image.new("L", (8, 8)), "PNG")
    claim = png[:16] + (50_000).to_bytes(4, "big") * 2 + png[24:]
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()
    gzipped = {"content-encoding": "gzip"}
    return {
        "JPEG of 1,000 scans": (images(jpeg[:-2] + 1000 * scan + b"\xff\xd9"), empty),
        "JPEG of 90 scans": (images(jpeg[:-2] + 80 * scan + b"\xff\xd9" + bytes(10**5)), empty),
        "GIF of 49 million pixels": (images(gif), empty),
        "PNG of 49 million pixels": (images(encoded(wide, "PNG")), empty),
        "PNG that claims 2,500 million": (images(claim), empty),
        "gzip of 256 MiB": (bomb, gzipped),
        "no gzip": (b"{}", gzipped),
        "8 million lists": (b'{"instances": [' + b"[]," * 8_000_000 + b"[]]}", empty),
        "2 million lists": (b'{"instances": [' + b"[]," * 2_000_000 + b"[]]}", empty),
        "100,000 lists in each other": (b'{"instances": ' + b"[" * 100_000, empty),
        "40 MB": (bytes(40_000_000), empty),
        "malformed b64": (b'{"instances": [{"b64": "?"}]}', empty),
        "20 MB of malformed b64": (
            b'{"instances": [{"b64": "' + b"A" * 20_000_000 + b'?"}]}',
            empty,
        ),
        "text of 2 MB": (texts("A dog. " * 300_000), empty),
        "text of 30 MB": (texts("A dog. " * 4_200_000), empty),
        "100 texts of 100 KB": (texts(*["A dog. " * 15_000] * 100), empty),
        "blank text of 30 MB": (texts("\u3000" * 10_000_000), empty),
        "number of 4 million digits": (b'{"instances": [' + b"7" * 4_000_000 + b"]}", empty),
        "text with a lone surrogate": (b'{"instances": ["\\ud800"]}', empty),
        "signature with a lone surrogate": (
            b'{"signature_name": "\\ud800", "instances": ["a"]}',
            empty,
        ),
    }


def texts(*values):
    return json.dumps({"instances": values}, ensure_ascii=False).encode()


def images(*files):
    coded = [{"b64": base64.b64encode(file).decode()} for file in files]
    return json.dumps({"instances": coded}).encode()


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
