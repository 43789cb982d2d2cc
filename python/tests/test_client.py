"""Asking a server: questions as Python writes them, answers whole, refusals with their reason."""

import json
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import gpuvitals


@pytest.fixture
def listener():
    """A server that keeps what it is asked, and gives answers in order: status, headers, body."""
    asked, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            status, headers, body = answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked, answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_query_has_the_values_of_each_gpu(server):
    client = gpuvitals.connect(server)
    answer = client.query(["power_w", "utilization_pct"], last="10m", step="1s")
    assert {series["metric"] for series in answer["series"]} == {"power_w", "utilization_pct"}
    assert answer["step_ms"] == 1000 and answer.partial == []
    frame = answer.pandas()
    assert frame.shape == (len(answer["times"]), 16)
    assert str(frame.index.tz) == "UTC" and set(map(str, frame.dtypes)) == {"float64"}
    nodes = client.query("power_w", last=timedelta(minutes=10), group_by="node", aggregate="max").pandas()
    assert nodes.shape[1] == 2
    now = datetime.now(timezone.utc)
    same = client.query("power_w", start=now - timedelta(minutes=10), end=now, where=["model!="], top=1)
    assert len(same["series"]) == 1


def test_lists_are_whole(server):
    client = gpuvitals.connect(server + "/")
    gpus = client.gpus()
    assert len(gpus) == 8 and gpus.partial is None
    assert len(client.gpus(limit=3)) == 3
    assert isinstance(client.findings(severity="critical"), list)
    assert isinstance(client.jobs(by="namespace"), list)
    assert client.get("/api/v1/metrics")


def test_the_pages_of_a_long_list_are_put_together(listener):
    url, asked, answers = listener
    for page in ([{"id": 1}, {"id": 2}], [{"id": 3}]):
        answers.append((200, {"x-partial": "node n7"}, json.dumps({"findings": page, "total": 3}).encode()))
    found = gpuvitals.connect(url).findings(kind=["xid", "straggler"])
    assert [finding["id"] for finding in found] == [1, 2, 3]
    assert found.partial == "node n7", "what could not be read is said"
    assert [path.partition("?")[2] for path, _ in asked] == [
        "limit=10000&offset=0&kind=xid%2Cstraggler",
        "limit=10000&offset=2&kind=xid%2Cstraggler",
    ]


def test_a_refusal_has_status_code_and_reason(server):
    client = gpuvitals.connect(server)
    with pytest.raises(gpuvitals.ApiError, match="no_such_metric") as caught:
        client.query("no_such_metric", last="1m")
    assert (caught.value.status, caught.value.code) == (400, "bad_parameter")
    with pytest.raises(gpuvitals.ApiError) as caught:
        client.get("/api/v1/gpus/none")
    assert (caught.value.status, caught.value.code) == (404, "unknown_gpu")


def test_a_path_that_would_be_part_of_the_hosts_name_is_refused():
    with pytest.raises(ValueError, match="begins with /"):
        gpuvitals.connect("http://127.0.0.1").get("@example.com/api")


def test_no_proxy_hears_a_question_to_this_machine(listener, monkeypatch):
    url, asked, answers = listener
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answers.append((200, {}, b"[]"))
    assert gpuvitals.connect(url).get("/api/v1/metrics") == []
    assert len(asked) == 1


def test_a_server_that_is_not_there_is_named_with_the_remedy():
    with pytest.raises(gpuvitals.ApiError, match=r"127.0.0.1:9 .*gpuvitals up") as caught:
        gpuvitals.connect("http://127.0.0.1:9").findings()
    assert caught.value.status == 0


def test_the_token_goes_to_the_server_alone(listener, monkeypatch, tmp_path):
    url, asked, answers = listener
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("GPUVITALS_URL", url)
    monkeypatch.setenv("GPUVITALS_TOKEN_FILE", str(tmp_path / "token"))
    answers.append((302, {"Location": f"{url}/elsewhere"}, b""))
    with pytest.raises(gpuvitals.ApiError, match="302"):
        gpuvitals.connect().findings()
    assert len(asked) == 1 and asked[0][1]["Authorization"] == "Bearer secret"
    answers.append((502, {}, b"<html>"))
    with pytest.raises(gpuvitals.ApiError, match="502"):
        gpuvitals.connect(token="own").findings()
    assert asked[1][1]["Authorization"] == "Bearer own"


def test_times_that_say_too_little_are_refused():
    client = gpuvitals.connect()
    with pytest.raises(ValueError, match="time zone"):
        client.query("power_w", start=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="no time"):
        client.query("power_w", last="soon")
    with pytest.raises(ValueError, match="exclude"):
        client.query("power_w", last="1h", start=0)
    with pytest.raises(ValueError, match="http"):
        gpuvitals.connect("localhost:8081")
