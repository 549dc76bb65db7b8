"""Metrics of the server, for Prometheus; each has the name of the model as label."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("zoo_requests", "Requests for a model", ["model", "code"])
SECONDS = Histogram("zoo_request_seconds", "Duration of answered requests", ["model"])
_POWERS = (1, 2, 4, 8, 16, 32, 64)
ROWS = Histogram("zoo_call_rows", "Rows of model calls", ["model"], buckets=_POWERS)
QUEUED = Gauge("zoo_queued_requests", "Requests that wait", ["model"])
