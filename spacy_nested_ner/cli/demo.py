"""`nested-ner demo`: a local web page to try pipelines in."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import os
import sys
import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, List

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, GpuOpt, ModelsArg
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import installed_pipelines, load_pipeline, short_names, use_gpu

if TYPE_CHECKING:
    from spacy_nested_ner.demo.panes import Pane

HostOpt = Annotated[
    str, typer.Option(help="Address to listen on; 0.0.0.0 for all who can reach this machine")
]
PortOpt = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one")]
OpenOpt = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser")]


def demo_cli(
    models: ModelsArg = None,
    host: HostOpt = "127.0.0.1",
    port: PortOpt = 8000,
    open_page: OpenOpt = True,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Type a text into a local web page and see its nested entities, from several pipelines side by
    side. Without MODEL: from all installed pipelines that have a component of this package.

    On the page, threshold and overlap policy can be changed and take effect at once. Nothing is
    loaded from or sent to the network. Ctrl-C stops the server.
    """
    with failing("Cannot show the page."):
        from spacy_nested_ner.demo.server import address, is_loopback, listen, make_app, make_server

        with listen(host, port) as listening:  # nothing is loaded in vain where the port is taken
            use_gpu(gpu_id)
            app = make_app(_load(models or []), host)
            if not is_loopback(host):
                msg.warn(
                    f"Anyone who can reach {host} can run the pipelines. There is no password and "
                    "no encryption."
                )
            msg.good("The page is ready. Ctrl-C stops the server.")
            typer.echo(address(listening))
            if open_page:
                webbrowser.open(address(listening))
            try:
                make_server(app).run(sockets=[listening])
            except KeyboardInterrupt:
                msg.text("The server has stopped.")
                with suppress(AttributeError, OSError):  # nobody reads it
                    sys.stdout.flush()
                os._exit(0)  # no matter how long a text is still being read


def _load(given: List[str]) -> "List[Pane]":
    """given: none for those that are installed, of which damaged ones are left out.

    Raises ValueError, with the remedy, for what is no trained pipeline of this kind.
    """
    from spacy_nested_ner.demo.panes import panes_of

    panes = []
    models = given or installed_pipelines()
    for model, name in zip(models, short_names(models, least=2)):
        msg.text(f"Loading {model}")
        try:
            panes += panes_of(name, load_pipeline(model))
        except ValueError as err:
            if given or len(models) == 1:
                raise
            msg.warn(f"The installed pipeline {model!r} is left out. {err}")
    if not panes:
        raise ValueError("No installed pipeline can be loaded. Install them again.")
    return panes
