"""A bounded slice of what ``make fuzz`` does without end: the same checks, other inputs."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz import canonical, decoder, routes
from tests.support.brokers import on_embedded
from tests.support.worker import Worker
from tests.support.world import World


def mutations(seeds: list[bytes], dictionary: list[str]) -> st.SearchStrategy[bytes]:
    """Seeds, cut and pasted, with words of a dictionary and noise between."""
    noise = st.binary(max_size=4) | st.sampled_from([word.encode() for word in dictionary])

    def mutate(seed: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        for at, cut, put in edits:
            at %= len(seed) + 1
            seed = seed[:at] + put + seed[at + cut :]
        return seed

    edit = st.tuples(st.integers(0, 10_000), st.integers(0, 3), noise)
    return st.builds(mutate, st.sampled_from(seeds), st.lists(edit, max_size=4))


@settings(max_examples=5_000)
@given(mutations(decoder.seeds(), decoder.DICTIONARY) | st.binary(max_size=200))
def test_decoder(value: bytes) -> None:
    decoder.check(value)


def test_seeds_of_the_decoder() -> None:
    for seed in decoder.seeds():
        decoder.check(seed)


@settings(max_examples=1_000, deadline=None)
@given(mutations(canonical.seeds(), canonical.DICTIONARY))
def test_canonical_form(value: bytes) -> None:
    canonical.check(value)


def test_seeds_of_the_canonical_form() -> None:
    for seed in canonical.seeds():
        canonical.check(seed)


@on_embedded
async def test_routes(world: World) -> None:
    await world.prepare()
    worker = await world.start_worker().ready()
    for request in routes.seeds():
        answer = await routes.exchange(worker.port, request, patience_s=5)
        assert answer, request
        routes.check(request, answer)
    await asyncio.to_thread(hurt, worker)
    assert "Traceback" not in worker.log_text()
    assert await worker.is_ready()
    await worker.stopped()


def hurt(worker: Worker) -> None:
    targets = st.one_of(
        st.sampled_from(routes.DICTIONARY).map(str.encode),
        st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=30),
    )
    paths = st.lists(targets, max_size=4).map(lambda parts: b"/" + b"/".join(parts))
    known = st.sampled_from([path.encode() for path in routes.PATHS])
    methods = st.sampled_from([b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"\xff", b""])
    spaceless = (known | paths).map(lambda path: path.translate(None, b"\r\n "))
    requests = st.builds(routes.framed, methods, spaceless)

    @settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(requests | mutations(routes.seeds(), routes.DICTIONARY))
    @example(routes.framed(b"GET", b"/" + b"a" * 100_000))
    @example(routes.framed(b"GET", b"/table/latest/" + b"%2F" * 2_000 + b"/"))
    @example(b"GET / HTTP/9.9\r\n\r\n")
    def search(request: bytes) -> None:
        routes.check(request, asyncio.run(routes.exchange(worker.port, request)))

    search()
