"""Room ids that are hard on keys, paths and partitions, and the pages of a worker about them."""

from urllib.parse import quote

from heartbeat_stream.core.heartbeat import Heartbeat, room_key

__all__ = ["ODD_ROOMS", "UNKNOWN_PATHS", "columns", "table_path"]

ODD_ROOMS = (
    "101",
    "大会议室",
    "西楼:茶室",
    "1:2",
    ":",
    "50%",
    "%2F",
    "%",
    "what?",
    "#1",
    "a/b",
    "a//b/",
    "/",
    "..",
    "a/../b",
    "with a space",
    " ",
    "a+b",
    "a&b=c;d",
    'quote"d',
    "it's",
    "<b>",
    "back\\slash",
    "tab\tand\nline",
    "Salle de réunion",
    "e\N{COMBINING ACUTE ACCENT}",  # not the same room as the next one
    "é",
    "\N{HOTEL}\N{ZERO WIDTH JOINER}",
    "x" * 255,
    "室" * 255,
)

#: Of no room, and some of no key at all. The percent signs are meant as they stand here.
UNKNOWN_PATHS = (
    "7:nobody",
    "7:%E5%A4%A7",
    "8:101",
    "07:101",
    "101",
    "7",
    "7:",
    ":101",
    "x:101",
    "99999:101",
    "%00",
    "%FF%FE",
    "7:%FF",
    "7:%zz",
    "7:%%",
    "7:%3F%23",
    "7:a%2Fc",
    "7:" + "x" * 2000,
)


def table_path(table: str, room_id: str, hotel_id: int = 7) -> str:
    """The page about a room, its key escaped."""
    key = room_key(hotel_id, room_id).decode()
    return f"/table/{table}/{quote(key, safe='')}/"


def columns(heartbeat: Heartbeat) -> dict[str, object]:
    """What the page about a room in ``latest`` must say: the five columns."""
    return {
        "hotel_id": heartbeat.hotel_id,
        "room_id": heartbeat.room_id,
        "device_id": heartbeat.device_id,
        "ts_ms": heartbeat.ts_ms,
        "status": heartbeat.status,
    }
