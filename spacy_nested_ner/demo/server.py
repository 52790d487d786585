"""The web server of the page: a few files, what panes there are, and what they find."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import secrets
import socket
from functools import partial
from importlib.resources import files
from typing import Any, Awaitable, Callable, Dict, List, Sequence, Tuple

from spacy_nested_ner.demo.panes import OVERLAP, Pane, Unreadable, example_text

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError as err:
    raise ImportError(
        "The page needs Starlette and uvicorn: python -m pip install 'spacy_nested_ner[demo]'. "
        f"({err})"
    ) from err

LOGGER = logging.getLogger(__name__)

FILES: Dict[str, Tuple[str, str, str]] = {
    "/": ("spacy_nested_ner.demo", "demo.html", "text/html"),
    "/demo.css": ("spacy_nested_ner.demo", "demo.css", "text/css"),
    "/demo.js": ("spacy_nested_ner.demo", "demo.js", "text/javascript"),
    "/spans.css": ("spacy_nested_ner.evaluation.page", "spans.css", "text/css"),
    "/spans.js": ("spacy_nested_ner.evaluation.page", "spans.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
BYTES = 16
"""Of a request, for each character that a pipeline takes: a text that is a little too long is
refused with words, what is much longer is not even read."""


def make_app(panes: Sequence[Pane], host: str) -> Starlette:
    """The web application.

    host: that it listens on. On a loopback one, a request must name such a host: a web page that
    gives its own name the address of this machine gets no answer.
    """
    locks = {id(pane.nlp): asyncio.Lock() for pane in panes}
    longest = max(pane.nlp.max_length for pane in panes)
    run = secrets.token_hex(8)
    facts = {
        "run": run,
        "panes": [pane.facts() for pane in panes],
        "example": example_text(panes[0].nlp.lang or ""),
    }

    async def describe(request: Request) -> Response:
        return JSONResponse(facts)

    async def annotate(request: Request) -> Response:
        number, wanted = _wanted(await _json(request), len(panes), run)
        pane = panes[number]
        try:
            async with locks[id(pane.nlp)]:
                if await request.is_disconnected():  # the reader has asked for something else
                    return Response(status_code=204)
                found = await run_in_threadpool(partial(pane.find, **wanted))
        except asyncio.CancelledError:  # Ctrl-C, while this text or one before it is being read
            return Response(status_code=503)
        except Unreadable as err:
            raise HTTPException(422, str(err)) from err
        except Exception as err:  # whatever a pipeline raises: the page says so and lives on
            LOGGER.exception("%s cannot read a text", pane.title)
            raise HTTPException(500, f"{type(err).__name__}: {err}") from err
        return JSONResponse(found)

    return Starlette(
        routes=[
            *(Route(path, _file(*which)) for path, which in FILES.items()),
            Route("/panes", describe),
            Route("/annotate", annotate, methods=["POST"], max_body_size=BYTES * longest),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=_names(host), www_redirect=False),
        ],
        exception_handlers={HTTPException: _error},
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that waits for requests. port: 0 for any that is free.

    Raises OSError, with the remedy, if the port is taken or the host is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as err:
        raise OSError(
            f"Cannot listen on {host}, port {port}: {err}. Give another --port (0 for any free "
            "one), or an address of this machine as --host."
        ) from err


def address(listening: socket.socket) -> str:
    """What to type into a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listening.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(app: Starlette) -> uvicorn.Server:
    """Its `run(sockets=[...])` answers requests until Ctrl-C."""
    # Pages that are open keep connections, and a long text may be being read.
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,
        headers=list(HEADERS.items()),
        server_header=False,
    )
    return uvicorn.Server(config)


def _names(host: str) -> List[str]:
    """What a request may call the host; anything where the whole network may ask."""
    return ["localhost", "127.0.0.1", "[::1]", host] if is_loopback(host) else ["*"]


def _file(package: str, name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = (files(package) / "files" / name).read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=media_type)

    return send


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code)


async def _json(request: Request) -> Any:
    """The body. A page of another site can send a form, but no JSON: the browser would ask first
    whether it may, and is not answered."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Send JSON, as application/json.")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as err:
        raise HTTPException(400, "This is not JSON.") from err


def _wanted(body: Any, n_panes: int, run: str) -> Tuple[int, Dict[str, Any]]:
    """The number of the pane, and what `Pane.find` is given. A page that names another run has the
    panes of that."""
    given = dict(body) if isinstance(body, dict) else {}
    if given.pop("run", run) != run:
        raise HTTPException(409, "The server has been restarted. Reload the page.")
    pane, text = given.pop("pane", None), given.get("text")
    known = given.keys() <= {"text", "threshold", "overlap"}
    threshold, overlap = given.get("threshold"), given.get("overlap")
    known &= threshold is None or (type(threshold) in (int, float) and 0 <= threshold <= 1)
    known &= overlap is None or overlap in OVERLAP
    if not known or not isinstance(text, str) or pane not in range(n_panes):
        raise HTTPException(
            400,
            f"Send an object with pane (a number below {n_panes}), text and, to override "
            "those of the component, threshold (0 to 1) and overlap "
            f"({', '.join(map(json.dumps, OVERLAP))}).",
        )
    return int(pane), given
