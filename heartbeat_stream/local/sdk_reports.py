"""What an SDK sends to a collector: one event or a list of them, in every form that SDKs have."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from urllib.parse import urlencode

import aiohttp

__all__ = ["FORMS", "Form", "encoded", "form_body", "send_report"]

Form = str
FORMS: Sequence[Form] = ("form", "gzip", "json", "get", "gif")
"""Posted as a form, the same with gzip, as a JSON body, in a query, and that with gzip for an
image of one pixel."""

_POSTED = {"Content-Type": "application/x-www-form-urlencoded"}


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


async def send_report(
    session: aiohttp.ClientSession, url: str, form: Form, document: object, **query: str
) -> int:
    """Send an event, or a list of them, to the collector at ``url``; the status of its answer.

    ``query``: what else belongs there, ``project`` and ``remark``. Raises aiohttp.ClientError.
    """
    if form in ("get", "gif"):
        query[_name(document)] = encoded(document, zipped=form == "gif")
        request = session.get(url + ("/sa.gif" if form == "gif" else "/sa"), params=query)
    elif form == "json":
        request = session.post(f"{url}/sa", json=document, params=query)
    else:
        body = form_body(document, zipped=form == "gzip")
        request = session.post(f"{url}/sa", data=body, params=query, headers=_POSTED)
    async with request as response:
        await response.read()
        return response.status
