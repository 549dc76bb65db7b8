"""A local server with the part of the Hugging Face Hub's API that downloads models."""

import hashlib
import http.server
import json
import os
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves `repositories`, {"owner/name": {path: bytes}}; those in `gated` need a token."""

    repositories = {}
    gated = ()
    asked = []

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        self.asked.append(self.path)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/?]+)(\?.*)?", self.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)", self.path)
        if not (api or file):
            return self._error(404, "EntryNotFound")
        repository = (api or file).group(1)
        revision = api.group(3) if api else file.group(2)
        if repository not in self.repositories:
            return self._error(401, "RepoNotFound")
        if repository in self.gated:
            return self._error(403, "GatedRepo")
        if revision not in ("main", COMMIT):
            return self._error(404, "RevisionNotFound")
        files = self.repositories[repository]
        if file and file.group(3) not in files:
            return self._error(404, "EntryNotFound")
        if file:
            return self._answer(files[file.group(3)], body, name=file.group(3))
        if api.group(2) == "revision":
            siblings = [{"rfilename": name} for name in files]
            return self._json({"id": repository, "sha": COMMIT, "siblings": siblings})
        listed = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in files.items()
        ]
        return self._json(listed)

    def _json(self, content):
        self._answer(json.dumps(content).encode(), True)

    def _answer(self, data, body, name="json"):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _error(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def serve(repositories, gated=()):
    """Starts a server in a thread; returns its address, the requested paths, and how to stop it."""
    asked = []
    settings = {"repositories": repositories, "gated": gated, "asked": asked}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (Hub,), settings))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop():
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}", asked, stop


def downloaded(names, environment):
    """{name: (kind, text)}: "folder" and its path, or the kind of an error and what it says.

    Needs a process of its own: `huggingface_hub` reads the environment when it is imported.
    """
    os.environ.pop("HF_TOKEN", None)
    os.environ.update(environment)
    from zoo.checkpoints import hub
    from zoo.errors import UserError

    found = {}
    for name in names:
        try:
            found[name] = "folder", str(hub.download(f"hf://{name}"))
        except UserError as error:
            found[name] = type(error).__name__, str(error)
    return found
