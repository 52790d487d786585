"""The server: what it answers, and whom."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import spacy
from spacy.language import Language

from spacy_nested_ner.demo.panes import panes_of
from spacy_nested_ner.demo.server import address, is_loopback, listen
from tests.demo.conftest import TEXT, entities_of, served

ASK = {"pane": 0, "text": TEXT}


class Door:
    """A component that lets a text through when it may, or fails."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.seen = []

    def __call__(self, doc):
        self.seen.append(doc.text)
        self.reached.set()
        assert self.open.wait(30)
        if "fail" in doc.text:
            raise RuntimeError("the door is <b>stuck</b>")
        return doc


@pytest.fixture
def door(tmp_path, unsure):
    """A pipeline with such a component, and the address of a server that shows it."""
    unsure.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    door = Door()
    Language.component("door", func=door)
    nlp.add_pipe("door", first=True)
    with served(panes_of("door", nlp)) as url:
        yield door, url
        door.open.set()


def test_the_page_and_its_files(url):
    with httpx.Client(base_url=url) as client:
        html = client.get("/")
        names = [part.split('"')[0] for part in html.text.split('="/')[1:]]
        assert len(names) == 4
        for response in [html, *(client.get(f"/{name}") for name in names)]:
            assert response.status_code == 200 and len(response.text) > 300
            assert "http:" not in response.text and "https:" not in response.text
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert response.headers["cross-origin-resource-policy"] == "same-origin"


def test_what_it_finds(url, unsure, evil):
    with httpx.Client(base_url=url) as client:
        facts = client.get("/panes").json()
        assert [pane["pipeline"] for pane in facts["panes"]] == ["unsure", "evil"]
        assert "IL-2" in facts["example"]
        for number, nlp in enumerate((unsure, evil)):
            answer = client.post("/annotate", json={"pane": number, "text": TEXT}).json()
            own = [
                {name: value for name, value in span.items() if name != "overlap"}
                for span in answer["spans"]
                if span["score"] >= 0.5
            ]
            assert own == entities_of(nlp(TEXT)) and own
            assert answer["seconds"] > 0


def test_a_page_of_another_run_is_told_to_reload(url):
    """Its panes may be those of other pipelines."""
    run = httpx.get(f"{url}panes").json()["run"]
    assert httpx.post(f"{url}annotate", json={**ASK, "run": run}).status_code == 200
    response = httpx.post(f"{url}annotate", json={**ASK, "run": "other"})
    assert response.status_code == 409 and "Reload the page" in response.json()["error"]


@pytest.mark.parametrize(
    "host, right",
    [
        ("127.0.0.1", True),
        ("localhost:8000", True),
        ("[::1]:8000", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_only_a_loopback_name_is_answered(url, host, right):
    """A page whose name is made to point to this machine sends its own name."""
    for response in (
        httpx.get(url, headers={"Host": host}),
        httpx.post(f"{url}annotate", json=ASK, headers={"Host": host}),
    ):
        assert response.status_code == (200 if right else 400)
        assert right or response.text == "Invalid host header"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_a_form_of_another_site_can_send_is_refused(url, kind):
    content = httpx.Request("POST", url, json=ASK).content
    response = httpx.post(f"{url}annotate", content=content, headers={"Content-Type": kind})
    assert response.status_code == 415 and "application/json" in response.json()["error"]


def test_another_site_is_not_allowed_to_send_json(url):
    asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    response = httpx.options(f"{url}annotate", headers=asks)
    assert "access-control-allow-origin" not in response.headers
    assert response.status_code == 405


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b"3",
        b"[]",
        b'{"text": "x"}',
        b'{"pane": 0}',
        b'{"pane": 2, "text": "x"}',
        b'{"pane": -1, "text": "x"}',
        b'{"pane": "0", "text": "x"}',
        b'{"pane": [0], "text": "x"}',
        b'{"pane": 0, "text": 3}',
        b'{"pane": 0, "text": null}',
        b'{"pane": 0, "text": "x", "batch_words": 1}',
        b'{"pane": 0, "text": "x", "threshold": 7}',
        b'{"pane": 0, "text": "x", "threshold": "0.5"}',
        b'{"pane": 0, "text": "x", "threshold": NaN}',
        b'{"pane": 0, "text": "x", "threshold": true}',
        b'{"pane": 0, "text": "x", "overlap": "some"}',
        b'{"pane": 0, "text": "x", "overlap": ["flat"]}',
    ],
)
def test_what_is_no_request(url, content):
    json = {"Content-Type": "application/json"}
    response = httpx.post(f"{url}annotate", content=content, headers=json)
    assert response.status_code == 400
    assert response.json()["error"].startswith(("This is not JSON", "Send an object with pane"))
    assert "default-src 'none'" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "text, says", [("x" * 1_000_001, "takes 1,000,000 at"), ("\ud83d", "half")]
)
def test_texts_that_no_pipeline_takes(url, text, says):
    response = httpx.post(
        f"{url}annotate",
        content=b'{"pane": 0, "text": "%s"}' % text.encode("ascii", "backslashreplace"),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 422 and says in response.json()["error"]


def test_a_request_that_is_too_large_is_not_read(url):
    response = httpx.post(f"{url}annotate", json={"pane": 0, "text": "x" * 17_000_000})
    assert response.status_code == 413


def test_what_is_not_there(url):
    for response in (httpx.get(f"{url}secret"), httpx.get(f"{url}../setup.py")):
        assert response.status_code == 404 and response.json() == {"error": "Not Found"}
    assert httpx.get(f"{url}annotate").status_code == 405


def test_an_error_of_a_pipeline_is_told_without_a_traceback(door, caplog):
    component, url = door
    component.open.set()
    response = httpx.post(f"{url}annotate", json={"pane": 0, "text": "fail here"})
    assert response.status_code == 500
    assert response.json() == {"error": "RuntimeError: the door is <b>stuck</b>"}
    assert "Traceback" in caplog.text  # in the terminal
    assert httpx.post(f"{url}annotate", json=ASK).status_code == 200


def test_the_server_answers_while_a_pipeline_reads(door):
    component, url = door
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(httpx.post, f"{url}annotate", json=ASK, timeout=60)
        assert component.reached.wait(30)
        assert httpx.get(url).status_code == 200 and not slow.done()
        component.open.set()
        assert slow.result().json()["spans"]


def test_what_nobody_waits_for_is_not_read(door):
    """Texts wait for one another, and whoever has gone is left out."""
    component, url = door
    with ThreadPoolExecutor() as pool:
        first = pool.submit(httpx.post, f"{url}annotate", json={"pane": 0, "text": "1"}, timeout=60)
        assert component.reached.wait(30)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}annotate", json={"pane": 0, "text": "2"}, timeout=0.3)
        last = pool.submit(httpx.post, f"{url}annotate", json={"pane": 0, "text": "3"}, timeout=60)
        time.sleep(0.3)
        assert component.seen == ["1"]
        component.open.set()
        assert (first.result().status_code, last.result().status_code) == (200, 200)
    assert component.seen == ["1", "3"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "localhost.evil"])
def test_no_loopback(host):
    assert not is_loopback(host)


def test_addresses():
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert port and address(listening) == f"http://127.0.0.1:{port}/"
        with pytest.raises(OSError, match=r"port \d+: .* Give another --port"):
            listen("127.0.0.1", port)
    with listen("0.0.0.0", 0) as listening:
        assert address(listening).startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match=r"Cannot listen on nowhere.invalid"):
        listen("nowhere.invalid", 0)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_an_address_of_ipv6():
    with listen("::1", 0) as listening:
        assert address(listening).startswith("http://[::1]:")
