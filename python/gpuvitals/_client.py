"""Asking a running gpuvitals: the REST API of `gpuvitals up` and `gpuvitals serve`."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ._errors import ApiError

if TYPE_CHECKING:
    import pandas

#: What is asked without a URL; the command line has the same variables.
URL = "http://127.0.0.1:8081"
#: Entries of a list that are asked for at once: the most that the API gives.
PAGE = 10_000

#: An instant: with its time zone; seconds since 1970; or RFC 3339.
Instant = Union[datetime, float, str]
#: A time: `"1h"`, `"30m"`, seconds, or a timedelta.
Span = Union[timedelta, float, str]
Parameter = Union[str, float, bool, datetime, timedelta, Iterable[str], None]

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Answer(dict[str, Any]):
    """Values by step of time, as `/api/v1/query` gives them: `times` (ms since 1970), `step_ms`, `series`."""

    @property
    def partial(self) -> list[str]:
        """What could not be read, in words. Empty: the answer is whole."""
        return list(self.get("partial") or [])

    def pandas(self) -> pandas.DataFrame:
        """A column a series, a row a step in UTC; a value that was not read is NaN.

        A series is named by its GPU or group; before it stand the metric and the aggregate, where there are several.
        """
        import pandas

        index = pandas.to_datetime(self["times"], unit="ms", utc=True)
        several = [key for key in ("metric", "aggregate") if len({series[key] for series in self["series"]}) > 1]
        columns = {
            " ".join([*(str(series[key]) for key in several), str(series.get("group") or series.get("gpu") or "all")]): series["values"]
            for series in self["series"]
        }
        return pandas.DataFrame(columns, index=index, dtype="float64")


class Entries(list[dict[str, Any]]):
    """Entries of a list of the API, all of them."""

    def __init__(self, entries: Iterable[dict[str, Any]], partial: str | None) -> None:
        super().__init__(entries)
        #: What could not be read, in words; None: they are whole.
        self.partial = partial


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The API sends nobody elsewhere; whoever does so does not get our token."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """A running gpuvitals. `connect` makes one. Nothing is sent before a question."""

    def __init__(self, url: str, token: str | None, ca: str | None, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        context = ssl.create_default_context(cafile=ca) if self.url.startswith("https:") else None
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)] if context else []
        if context is None or _is_this_machine(self.url):
            # A proxy would read the token, or ask its own machine.
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(_NoRedirect, *handlers)

    def query(
        self,
        metrics: str | Iterable[str],
        *,
        last: Span | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
        step: Span | None = None,
        aggregate: str | Iterable[str] | None = None,
        group_by: str | Iterable[str] | None = None,
        where: str | Iterable[str] | None = None,
        gpus: str | Iterable[str] | None = None,
        host: str | Iterable[str] | None = None,
        top: int | None = None,
        bottom: int | None = None,
        table: str | None = None,
    ) -> Answer:
        """Values of metrics by step of time, of each GPU, or of groups: `client.query("power_w", last="1h", group_by="node")`.

        The parameters are those of `/api/v1/query`; `last` is a time that ends at `end`, or now.
        """
        if last is not None:
            if start is not None:
                raise ValueError("`last` and `start` exclude each other")
            until = _seconds_of(end) if end is not None else datetime.now(timezone.utc).timestamp()
            start, end = until - _span_of(last), until
        if isinstance(where, (list, tuple)):
            where = ";".join(where)
        answer, _ = self._get(
            "/api/v1/query",
            metrics=metrics,
            start=start,
            end=end,
            step=step,
            aggregate=aggregate,
            group_by=group_by,
            where=where,
            gpus=gpus,
            host=host,
            top=top,
            bottom=bottom,
            table=table,
        )
        return Answer(answer)

    def findings(self, **parameters: Parameter) -> Entries:
        """What is wrong now, the worst first. `severity`, `kind`, `host`, `namespace`, `gpus` and `at` are those of the API."""
        return self._list("/api/v1/analysis/findings", "findings", parameters)

    def jobs(self, **parameters: Parameter) -> Entries:
        """What each job and pod used of its GPUs. `start`, `end`, `by`, `sort`, `running`, `gpus` and `host` are those of the API."""
        return self._list("/api/v1/jobs", "jobs", parameters)

    def gpus(self, **parameters: Parameter) -> Entries:
        """All GPUs with their latest values."""
        return self._list("/api/v1/gpus", "gpus", parameters)

    def get(self, path: str, **parameters: Parameter) -> Any:
        """The answer of any path of the API, which api/openapi.yaml lists."""
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is no path of the API; it begins with /, as /api/v1/gpus")
        return self._get(path, **parameters)[0]

    def _list(self, path: str, key: str, parameters: dict[str, Parameter]) -> Entries:
        """All pages, or those that `limit` and `offset` name."""
        is_named = "limit" in parameters or "offset" in parameters
        found: list[dict[str, Any]] = []
        while True:
            page = {} if is_named else {"limit": PAGE, "offset": len(found)}
            answer, partial = self._get(path, **{**page, **parameters})
            found += answer[key]
            if is_named or not answer[key] or len(found) >= answer["total"]:
                return Entries(found, partial)

    def _get(self, path: str, **parameters: Parameter) -> tuple[Any, str | None]:
        """The answer, and what could not be read."""
        asked = {name: _text_of(value) for name, value in parameters.items() if value is not None}
        request = urllib.request.Request(f"{self.url}{path}?{urllib.parse.urlencode(asked)}", headers={"Accept": "application/json"})
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return json.load(response), response.headers.get("x-partial")
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            text = f"{self.url} gives no answer ({reason}); `gpuvitals up` starts a server, GPUVITALS_URL names another"
            raise ApiError(0, "unreachable", text) from error


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
) -> Client:
    """A running gpuvitals to be asked: `gpuvitals.connect("http://127.0.0.1:8081").findings()`.

    What is not given is that of the command line: GPUVITALS_URL, GPUVITALS_TOKEN_FILE, GPUVITALS_CA.
    """
    url = url or os.environ.get("GPUVITALS_URL") or URL
    if not re.match(r"https?://", url):
        raise ValueError(f"{url!r} is no address of a server; it begins with http:// or https://")
    file = token_file or os.environ.get("GPUVITALS_TOKEN_FILE")
    if token is None and file:
        token = Path(file).read_text().strip()
    ca = ca or os.environ.get("GPUVITALS_CA")
    return Client(url, token, os.fspath(ca) if ca else None, timeout)


def _is_this_machine(url: str) -> bool:
    """Whether an address is of this machine itself."""
    host = urllib.parse.urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    """What the server says of its refusal."""
    try:
        body = json.load(error)
        return ApiError(error.code, body["code"], body["message"])
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return ApiError(error.code, "", f"the server answers {error.code} {error.reason}")


def _text_of(value: Parameter) -> str:
    """As a query writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return repr(_seconds_of(value))
    if isinstance(value, timedelta):
        return f"{value.total_seconds()}s"
    if isinstance(value, (int, float)):
        return repr(value)
    return ",".join(value or ())


def _seconds_of(instant: Instant) -> float:
    """Since 1970."""
    if isinstance(instant, (int, float)):
        return float(instant)
    if isinstance(instant, str):
        instant = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", instant))
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone; `datetime.now(timezone.utc)` has one")
    return instant.timestamp()


def _span_of(span: Span) -> float:
    """In seconds."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if isinstance(span, (int, float)):
        return float(span)
    parts = re.fullmatch(r" *([0-9]+(?:\.[0-9]+)?) *(ms|s|m|min|h|d)? *", span)
    if parts is None:
        raise ValueError(f'{span!r} is no time; "90s", "10m", "6h" and "7d" are some')
    return float(parts[1]) * UNITS[parts[2] or "s"]
