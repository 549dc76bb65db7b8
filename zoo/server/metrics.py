"""Metrics of the server, for Prometheus."""

import prometheus_client

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
_ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of a server; each has the name of the model as label.

    Attributes:
        requests: counter, with the HTTP status as second label.
        seconds: histogram of the durations of answered requests.
        rows: histogram of the rows of model calls.
        queued: gauge of the requests in the queue.
    """

    def __init__(self):
        self._registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        self.requests = prometheus_client.Counter(
            "zoo_requests", "Requests for a model", ["model", "code"], registry=registry
        )
        self.seconds = prometheus_client.Histogram(
            "zoo_request_seconds", "Duration of answered requests", ["model"], registry=registry
        )
        self.rows = prometheus_client.Histogram(
            "zoo_call_rows", "Rows of model calls", ["model"], registry=registry, buckets=_ROWS
        )
        self.queued = prometheus_client.Gauge(
            "zoo_queued_requests", "Requests that wait", ["model"], registry=registry
        )

    def text(self):
        """Returns all metrics in Prometheus's text format, bytes."""
        return prometheus_client.generate_latest(self._registry)
