// Looking up a room, and the rooms of a hotel page by page.

import { get } from "./api.js";
import { byId, fillRows, make, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";

function facts(pairs) {
  const list = make("dl", { className: "facts" });
  for (const [name, value] of pairs) {
    if (value !== null) list.append(make("dt", {}, name), make("dd", { className: "id" }, value));
  }
  return list;
}

function what({ state, due_at, now_ms }) {
  if (due_at === null) return state;
  return due_at > now_ms ? `${state}, due in ${duration(due_at - now_ms)} (${clock(due_at)})` : state;
}

function whatWasWritten({ written, newest, now_ms }) {
  if (written === null) return "not yet";
  const which = written.ts_ms === newest.ts_ms ? "the newest heartbeat" : `the heartbeat of ${clock(written.ts_ms)}`;
  return `${clock(written.at)}, ${duration(now_ms - written.at)} ago: ${which}`;
}

function describe(room) {
  const { newest, now_ms, rests_until } = room;
  return facts([
    ["State", what(room)],
    ["Newest heartbeat", `${clock(newest.ts_ms)}, silent for ${duration(room.silent_ms)}`],
    ["Status", newest.status === null ? "none" : `${newest.status}`],
    ["Device", newest.device_id === null ? "none" : newest.device_id],
    ["Written", whatWasWritten(room)],
    ["Cooldown", rests_until === null ? "over" : `for another ${duration(rests_until - now_ms)}`],
    ["Owner", `${room.owner}, partition ${room.partition}`],
    ["Came from", `partition ${room.source_partition} of the source, offset ${room.source_offset}`],
  ]);
}

async function lookUp(hotel, room) {
  const result = byId("room-result");
  result.replaceChildren(make("p", { className: "muted" }, "Asking the worker that owns it …"));
  try {
    const found = await get("room", { hotel, room });
    const title = make("h3", { className: "id" }, `Room ${found.newest.room_id} of hotel ${found.newest.hotel_id}`);
    result.replaceChildren(title, describe(found));
  } catch (error) {
    const owner = error.status === 404 && error.body?.owner;
    const more = owner ? ` It would be in partition ${error.body.partition}, owned by ${owner}.` : "";
    result.replaceChildren(make("p", { className: "problem" }, `${error.message}.${more}`.replace("..", ".")));
  }
}

let listed = { hotel: "", next: null };

function titleOf({ rooms, next }, hotel, after) {
  const many = rooms.length === 1 ? "1 room" : `${count(rooms.length)} rooms`;
  if (after !== null) return `${many} of hotel ${hotel} on this page, after ${after}`;
  return next === null ? `${many} of hotel ${hotel}` : `The first ${many} of hotel ${hotel}`;
}

async function list(hotel, after) {
  const [title, missing] = [byId("hotel-title"), byId("hotel-missing")];
  byId("hotel-result").hidden = false;
  missing.hidden = true;
  byId("room-result").replaceChildren(); // what was looked up before, or why it was not found
  try {
    const page = await get("rooms", after === null ? { hotel } : { hotel, after });
    listed = { hotel, next: page.next };
    setText(title, titleOf(page, hotel, after));
    missing.hidden = !page.missing.length;
    setText(missing, page.missing.length ? `Not all could be looked at: ${page.missing.join("; ")}.` : "");
    fillRows(byId("hotel-rows"), page.rooms.map(row));
  } catch (error) {
    setText(title, `Rooms of hotel ${hotel}`);
    missing.hidden = false;
    setText(missing, error.message);
    fillRows(byId("hotel-rows"), []);
    listed = { hotel, next: null };
  }
  byId("next-page").disabled = listed.next === null;
  byId("first-page").disabled = after === null;
  title.focus();
}

function row(room) {
  const { newest, written } = room;
  return [
    [newest.room_id, "id", `?${new URLSearchParams({ hotel: newest.hotel_id, room: newest.room_id })}`],
    [duration(room.silent_ms), "number"],
    [newest.status === null ? "–" : `${newest.status}`, "number"],
    what(room),
    [written === null ? "not yet" : clock(written.at), "time"],
  ];
}

/** Keep in the address what was asked, so that it can be handed on. */
function remember(parameters) {
  history.replaceState(null, "", `?${new URLSearchParams(parameters)}`);
}

export function startRooms() {
  const form = byId("room-form");
  const [hotel, room] = [byId("hotel"), byId("room")];
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    room.setCustomValidity(room.value ? "" : "Which room?");
    if (!form.reportValidity()) return;
    remember({ hotel: hotel.value, room: room.value });
    lookUp(hotel.value, room.value);
  });
  room.addEventListener("input", () => room.setCustomValidity(""));
  byId("list-rooms").addEventListener("click", () => {
    room.setCustomValidity("");
    if (!form.reportValidity()) return;
    remember({ hotel: hotel.value });
    list(hotel.value, null);
  });
  byId("next-page").addEventListener("click", () => list(listed.hotel, listed.next));
  byId("first-page").addEventListener("click", () => list(listed.hotel, null));
  byId("hotel-rows").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const of = new URL(link.href).searchParams;
    [hotel.value, room.value] = [of.get("hotel"), of.get("room")];
    remember(of);
    lookUp(hotel.value, room.value);
    byId("look-up").scrollIntoView();
  });
  const asked = new URLSearchParams(location.search);
  if (asked.has("hotel")) {
    hotel.value = asked.get("hotel");
    if (asked.has("room")) {
      room.value = asked.get("room");
      lookUp(hotel.value, room.value);
    } else {
      list(hotel.value, null);
    }
  }
}
