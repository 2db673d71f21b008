"""The jobs as data: each module is what the worker asks of it, and its topics have names."""

from __future__ import annotations

import dataclasses

import pytest

from heartbeat_stream.jobs.catalogue import job_module, jobs_topics
from heartbeat_stream.settings import BY_FIELD, BY_VARIABLE, KNOWN_JOBS, Settings
from heartbeat_stream.streaming.topics import all_topics

MOST_CHARACTERS = 249
ALL = Settings(jobs=KNOWN_JOBS, app_id="app")


@pytest.mark.parametrize("job", KNOWN_JOBS)
def test_a_job_is_a_module_of_its_name(job: str) -> None:
    module = job_module(job)
    assert callable(module.build)
    topics = module.topics(ALL)
    assert topics.job == job
    assert topics.tables
    for variable in topics.named().values():
        assert variable in BY_VARIABLE


def test_no_topic_of_a_worker_belongs_to_two_jobs() -> None:
    names = [spec.name for spec in all_topics(ALL, {}, jobs_topics(ALL))]
    assert len(set(names)) == len(names)


def test_the_longest_app_id_leaves_room_for_every_topic() -> None:
    longest = next(
        "x" * length
        for length in range(MOST_CHARACTERS, 0, -1)
        if _is_right(BY_FIELD["app_id"].kind.parse, "x" * length)
    )
    settings = dataclasses.replace(ALL, app_id=longest)
    for spec in all_topics(settings, {}, jobs_topics(settings)):
        assert len(spec.name) <= MOST_CHARACTERS, spec.name
    assert max(len(spec.name) for spec in all_topics(settings, {}, jobs_topics(settings))) == 249


def _is_right(parse: object, text: str) -> bool:
    try:
        parse(text)  # type: ignore[operator]
    except ValueError:
        return False
    return True


def test_changelogs_are_partitioned_as_what_feeds_them() -> None:
    for topics in jobs_topics(dataclasses.replace(ALL, market_keyed=True)):
        internal = topics.internal(5, repartition_partitions=3)
        assert {spec.partitions for spec in internal} == {5 if topics.keyed else 3}
