"""How an event travels in Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.core.tracking_record import Envelope, Verdict, envelope_of, headers_of

envelopes = st.builds(
    Envelope,
    project=st.none() | st.text(min_size=1),
    remark=st.none() | st.text(),
    received_at_ms=st.none() | st.integers(0, 10**15 - 1),
    verdict=st.none() | st.sampled_from(Verdict),
)


@given(envelopes)
def test_what_is_written_is_read(envelope: Envelope) -> None:
    assert envelope_of(headers_of(envelope)) == envelope


@pytest.mark.parametrize("odd", [b"", b"-1", b"1.5", b"\xff", "٣".encode(), b"9" * 40, None])
def test_what_makes_no_sense_counts_as_missing(odd: bytes | None) -> None:
    headers = [("received-at", odd), ("verdict", odd), ("something", odd)]
    assert envelope_of(headers) == Envelope()
