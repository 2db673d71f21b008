"""What an SDK sends to a collector: one event or a list of them, in every form that SDKs have."""

from __future__ import annotations

import aiohttp

from heartbeat_stream.collector.sdk_forms import FORMS, Form, encoded, form_body, sdk_request

__all__ = ["FORMS", "Form", "encoded", "form_body", "send_report"]


async def send_report(
    session: aiohttp.ClientSession, url: str, form: Form, document: object, **query: str
) -> int:
    """Send an event, or a list of them, to the collector at ``url``; the status of its answer.

    ``query``: what else belongs there, ``project`` and ``remark``. Raises aiohttp.ClientError.
    """
    request = sdk_request(form, document, **query)
    async with session.request(
        request.method,
        url + request.path,
        params=request.query,
        data=request.body or None,
        headers=request.headers,
    ) as response:
        await response.read()
        return response.status
