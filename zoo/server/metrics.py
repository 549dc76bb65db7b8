"""Figures of the server for Prometheus."""

import prometheus_client

_ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counts requests and model calls.

    Args:
        queue_lengths: function that returns {name of a model: number of queued requests}.
    """

    def __init__(self, queue_lengths):
        self._registry = registry = prometheus_client.CollectorRegistry()
        self._queue_lengths = queue_lengths
        prometheus_client.ProcessCollector(registry=registry)
        self._requests = prometheus_client.Counter(
            "zoo_requests", "Requests for a model", ["model", "code"], registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "zoo_request_seconds", "Duration of answered requests", ["model"], registry=registry
        )
        self._rows = prometheus_client.Histogram(
            "zoo_call_rows", "Rows of model calls", ["model"], registry=registry, buckets=_ROWS
        )
        self._queued = prometheus_client.Gauge(
            "zoo_queued_requests", "Requests that wait", ["model"], registry=registry
        )

    def request(self, model, code, seconds):
        """Records a request: the model's name, the HTTP status and the duration."""
        self._requests.labels(model, code).inc()
        if code == 200:
            self._seconds.labels(model).observe(seconds)

    def call(self, model, rows):
        """Records a model call, in any thread."""
        self._rows.labels(model).observe(rows)

    def text(self):
        """Returns all figures in Prometheus's text format, bytes."""
        for model, length in self._queue_lengths().items():
            self._queued.labels(model).set(length)
        return prometheus_client.generate_latest(self._registry)


CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
