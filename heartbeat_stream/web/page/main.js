// The page's clockwork: asks for the overview again and again while somebody looks.

import { get } from "./api.js";
import { clock } from "./format.js";
import { showOverview, showVerdict } from "./overview.js";
import { startRooms } from "./rooms.js";

const EVERY_MS = 5000;

let timer;
let answeredAt = null;

async function refresh() {
  clearTimeout(timer);
  try {
    showOverview(await get("overview"));
    answeredAt = Date.now();
  } catch (error) {
    const since = answeredAt === null ? "" : `What is shown is of ${clock(answeredAt)}.`;
    showVerdict({ level: "trouble", text: error.message, points: [] }, since);
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
startRooms();
refresh();
