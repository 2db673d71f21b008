"""Both layers over time: each timeline of the acceptance cases, and more of their kind."""

from pathlib import Path

import pytest

from tests.support.timeline import Run, Timeline, fits, read_timelines

CASES = Path(__file__).parent.parent / "cases"
TIMELINES = [
    timeline
    for file in ("timelines.json", "timelines-more.json")
    for timeline in read_timelines(CASES / file)
]


def test_every_timeline_has_a_name_of_its_own() -> None:
    assert len({timeline.name for timeline in TIMELINES}) == len(TIMELINES)


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline.name)
def test_what_is_written_and_when(timeline: Timeline) -> None:
    run = Run(timeline)
    run.run()

    written = sorted(run.writes, key=lambda write: (write[0], write[1].room_id))
    expected = sorted(timeline.writes, key=lambda write: (write.at, write.room))
    told = [(at, row.room_id, row.ts_ms) for at, row in written]
    assert len(written) == len(expected), told
    for write, (at, row) in zip(expected, written, strict=True):
        assert fits(write, at, row), (write, told)

    newest: dict[str, int] = {}
    for event in timeline.events:
        newest[event.room] = max(newest.get(event.room, 0), event.ts)
    state = timeline.state
    known = state if isinstance(state, list) else [state] if state else []
    overtaken = {one.room for one in known if one.ts >= newest.get(one.room, 0)}
    assert {room: row.ts_ms for room, row in run.database.rows.items()} == {
        room: ts for room, ts in newest.items() if room not in overtaken
    }
