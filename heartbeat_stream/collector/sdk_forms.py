"""Reports as SDKs write them down: what :mod:`heartbeat_stream.collector.report` reads, written."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

__all__ = ["FORMS", "Form", "SdkRequest", "encoded", "form_body", "sdk_request"]

Form = str
FORMS: Sequence[Form] = ("form", "gzip", "json", "get", "gif")
"""Posted as a form, the same with gzip, as a JSON body, in a query, and that with gzip for an
image of one pixel."""

_POSTED = {"Content-Type": "application/x-www-form-urlencoded"}


class SdkRequest(NamedTuple):
    """A request to a collector: with GET where there is no body, else with POST."""

    path: str
    query: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


def sdk_request(form: Form, document: object, **query: str) -> SdkRequest:
    """An event, or a list of them, in a form. ``query``: what else belongs there."""
    if form in ("get", "gif"):
        data = {_name(document): encoded(document, zipped=form == "gif")}
        return SdkRequest("/sa.gif" if form == "gif" else "/sa", {**query, **data}, b"", {})
    if form == "json":
        headers = {"Content-Type": "application/json"}
        return SdkRequest("/sa", query, json.dumps(document).encode(), headers)
    return SdkRequest("/sa", query, form_body(document, zipped=form == "gzip"), _POSTED)


def encoded(document: object, *, zipped: bool = False) -> str:
    """base64 of JSON, as an SDK has it in ``data`` and ``data_list``."""
    data = json.dumps(document).encode()
    return base64.b64encode(gzip.compress(data) if zipped else data).decode()


def form_body(document: object, *, zipped: bool = False) -> bytes:
    """The form that SDKs post."""
    fields = {_name(document): encoded(document, zipped=zipped), "gzip": int(zipped)}
    return urlencode(fields).encode()


def _name(document: object) -> str:
    return "data_list" if isinstance(document, list) else "data"
