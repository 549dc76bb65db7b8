"""``python -m zoo serve``."""

import dataclasses
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from zoo.commands.shared import Int, flag
from zoo.errors import UserError
from zoo.server.limits import Limits
from zoo.startup import import_tensorflow_quietly

_LIMITS = Limits()


def serve(
    folders: flag(Positional[tuple[str, ...]], "FOLDER [FOLDER ...]"),
    host: str = "127.0.0.1",
    port: int = 8501,
    grpc_port: Int = None,
    poll_seconds: float = 2.0,
    access_log: bool = False,
    allowed_hosts: flag(UseAppendAction[tuple[str, ...]], "NAME", name="allowed-host") = (),
    allowed_origins: flag(UseAppendAction[tuple[str, ...]], "SITE", name="allowed-origin") = (),
    limits: Annotated[Limits, OmitArgPrefixes] = _LIMITS,
):
    """Serve exported models: TensorFlow Serving's REST API and a web page.

    For example: python -m zoo serve serving/vit serving/en_es

    Args:
        folders: .../NAME/1; .../NAME, which serves its highest version; or NAME=path
        host: 0.0.0.0 listens on all networks
        port: 0 selects a free port
        grpc_port: port for gRPC requests (none)
        poll_seconds: seconds between checks for other versions on disk; 0 for no checks
        access_log: log every request
        allowed_hosts: host name in requests (localhost, or any with another --host); repeatable
        allowed_origins: web site that may send requests, such as https://example.com; repeatable
    """
    if not folders:
        raise UserError("Pass the folder of an export, such as serving/vit.")
    import_tensorflow_quietly()
    from zoo.server.serve import serve

    return serve(
        folders=folders,
        host=host,
        port=port,
        grpc_port=grpc_port,
        poll_seconds=poll_seconds,
        access_log=access_log,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        **dataclasses.asdict(limits),
    )
