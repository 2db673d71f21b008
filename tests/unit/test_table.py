"""Table names, and which column types hold the values."""

import pytest

from heartbeat_stream.sinks.table import Table
from heartbeat_stream.sinks.table_inspection import holds


@pytest.mark.parametrize(
    ("text", "table", "quoted"),
    [
        ("room_status", Table(None, "room_status"), '"room_status"'),
        ("hotel.room_status", Table("hotel", "room_status"), '"hotel"."room_status"'),
        ("Hotel.Room", Table("hotel", "room"), '"hotel"."room"'),
        ('"Hotel"."Room"', Table("Hotel", "Room"), '"Hotel"."Room"'),
        ('hotel."a.b""c"', Table("hotel", 'a.b"c'), '"hotel"."a.b""c"'),
        ("房间-2024", Table(None, "房间-2024"), '"房间-2024"'),
        ("x; drop table y", Table(None, "x; drop table y"), '"x; drop table y"'),
    ],
)
def test_names(text: str, table: Table, quoted: str) -> None:
    assert Table.parse(text) == table
    assert table.quoted == quoted
    assert Table.parse(str(table)) == table


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".b", "a.b.c", 'a"b', '"a', '""', '"a"b', "a" * 64, "房" * 22, "a\0b"]
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|NUL"):
        Table.parse(text)


@pytest.mark.parametrize(
    ("actual", "wanted", "fits"),
    [
        ("smallint", "smallint", True),
        ("integer", "smallint", True),
        ("bigint", "smallint", True),
        ("integer", "bigint", False),
        ("numeric", "bigint", False),
        ("text", "smallint", False),
        ("text", "text", True),
        ("text", "character varying(255)", True),
        ("character varying", "character varying(255)", True),
        ("character varying(1000)", "text", True),
        ("character varying(255)", "text", True),
        ("character varying(254)", "character varying(255)", False),
        ("character(255)", "character varying(255)", False),  # it pads with spaces
        ("uuid", "text", False),
    ],
)
def test_types(actual: str, wanted: str, fits: bool) -> None:
    assert holds(actual, wanted) is fits
