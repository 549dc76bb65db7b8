"""A server of exported models: TensorFlow Serving's REST API, and a page to try them on."""

from zoo.server.server import serve
