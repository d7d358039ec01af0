"""`forerun serve` and `forerun mcp`: the page, REST and MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun._util.extras import needed


def serve(
    host: Annotated[str, typer.Option(help="The address to bind; any but loopback needs FORERUN_TOKEN.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: any free one.", min=0, max=65535)] = 8000,
    allow_hub: Annotated[bool, typer.Option("--allow-hub", help="Fetch configs from the Hugging Face hub.")] = False,
    rate: Annotated[float, typer.Option(help="Requests per second of one client; 0: no limit.", min=0)] = 20.0,
    workers: Annotated[int, typer.Option(help="Processes that capture models and make decisions.", min=1, max=64)] = 2,
    page: Annotated[bool, typer.Option("--page/--no-page", help="The web page beside REST and MCP.")] = True,
    waiting: Annotated[int, typer.Option(help="The most waiting requests; further ones are rejected.", min=0)] = 64,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name under which clients reach the server; may be given again.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Address of a reverse proxy that names its clients; may be given again.")
    ] = None,
    client_timeout: Annotated[
        float, typer.Option(help="Seconds that a client may take to send a request or to read an answer.", min=0.1)
    ] = 10.0,
) -> None:
    """Serve the web page, the REST API and MCP on one port, until stopped."""
    from forerun.web.settings import ServerSettings, token_of_environment

    settings = ServerSettings(
        host=host, port=port, token=token_of_environment(), allow_hub=allow_hub, rate_per_s=rate, workers=workers,
        waiting=waiting, burst=max(1, round(3 * rate)), allowed_hosts=tuple(allowed_host or ()),
        trusted_proxies=tuple(trusted_proxy or ()), client_s=client_timeout,
    )  # fmt: skip
    with needed("the server", "web"):
        from forerun.web.server import serve as run
    run(settings, page=page)


def mcp(
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of model files that the assistant may name; may be given again."),
    ] = None,
) -> None:
    """Serve the MCP tools to the assistant that started this command, over standard input and output."""
    with needed("MCP", "web"):
        from forerun.web.mcp_server import serve_stdio
    serve_stdio(folder or [Path()])
