"""One running server, with small models, that the tests of REST and of gRPC share."""

from typing import NamedTuple

import pytest

from tests.server import toys
from zoo.server.models import load_all

MAX_BODY = 300_000
MAX_VALUES = 10_000
MAX_ROWS = 100
MODELS = {
    toys.Translator: "en_es/1",
    toys.Classifier: "vit/2",
    toys.HalfPlusThree: "half_plus_three/123",
    toys.Shapes: "toy/1",
    toys.TextClassifier: "kinds/1",
    toys.Generator: "again/1",
}


class Served(NamedTuple):
    url: str
    grpc_address: str


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    for module, folder in MODELS.items():
        toys.save(module(), home / folder)
    return home


@pytest.fixture(scope="session")
def served(home):
    models = load_all([(home / folder).parent for folder in MODELS.values()])
    grpc_address = f"127.0.0.1:{toys.free_port()}"
    limits = {"max_body": MAX_BODY, "max_values": MAX_VALUES, "max_rows": MAX_ROWS}
    hosts = ["127.0.0.1", "localhost", "[::1]", "*.zoo.example"]
    origins = ["https://good.example"]
    with toys.running(models, hosts, origins, limits, grpc_address=grpc_address) as (url, *_):
        yield Served(url, grpc_address)


@pytest.fixture(scope="session")
def url(served):
    return served.url
