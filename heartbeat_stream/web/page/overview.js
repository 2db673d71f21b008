// All workers together: the verdict, the charts and the tables.

import { draw } from "./charts.js";
import { byId, fillRows, make, setText } from "./dom.js";
import { clock, count, duration, percent, ranges, rate } from "./format.js";

let announced = "";

export function showVerdict({ level, text, points }, updated) {
  byId("verdict").dataset.level = level;
  setText(byId("verdict-text"), text);
  const list = byId("points");
  // A single point is the text itself.
  list.hidden = points.length < 2;
  const lines = points.map((point) => point.text);
  if (list.innerText !== lines.join("\n")) {
    list.replaceChildren(...lines.map((line) => make("li", {}, line)));
  }
  setText(byId("updated"), updated);
  document.title = `${{ well: "✓", watch: "!", trouble: "✕" }[level]} heartbeat-stream`;
  // Read out when it has become another one, not each time a figure in it changes.
  const kind = [level, ...lines.map((line) => line.replace(/\d+/g, ""))].join("|");
  if (kind !== announced) {
    announced = kind;
    setText(byId("announced"), text);
  }
}

/** What the samples say, as [at_ms, value] by chart. */
function series({ history, columns, interval_ms }) {
  const of = Object.fromEntries(columns.map((name, position) => [name, position]));
  const end = (sample) => sample[of.at_ms] + interval_ms;
  const perSecond = (name) =>
    history.map((sample) => [end(sample), (sample[of[name]] * 1000) / interval_ms]);
  return {
    records: perSecond("records"),
    rows: perSecond("rows"),
    saved: saving(history, of).map((share, number) => [end(history[number]), share]),
    pending: history.map((sample) => [end(sample), sample[of.pending]]),
  };
}

/** Of each sample, the share of records that led to no row, over the minute up to it. */
function saving(history, of) {
  return history.map((_, number) => {
    const minute = history.slice(Math.max(0, number - 11), number + 1);
    const records = minute.reduce((sum, sample) => sum + sample[of.records], 0);
    const rows = minute.reduce((sum, sample) => sum + sample[of.rows], 0);
    return records ? Math.max(0, 1 - rows / records) : null;
  });
}

function minutes({ records, rows, saved, pending }, interval_ms) {
  const step = Math.round(60_000 / interval_ms);
  const lines = [];
  for (let last = records.length - 1; last >= 0; last -= step) {
    const first = Math.max(0, last - step + 1);
    const mean = (points) => {
      const part = points.slice(first, last + 1).map(([, value]) => value);
      return part.reduce((sum, value) => sum + value, 0) / part.length;
    };
    const share = saved[last][1];
    lines.push([
      [clock(records[last][0]), "time"],
      [rate(mean(records)), "number"],
      [rate(mean(rows)), "number"],
      [share === null ? "–" : percent(share), "number"],
      [count(pending[last][1]), "number"],
    ]);
  }
  return lines;
}

function showCharts(data) {
  const of = series(data);
  draw(byId("chart-records"), of.records, { format: rate });
  draw(byId("chart-rows"), of.rows, { format: rate });
  draw(byId("chart-saved"), of.saved, { format: percent, most: 1 });
  draw(byId("chart-pending"), of.pending, { format: count });
  fillRows(byId("minutes-rows"), minutes(of, data.interval_ms));
  for (const node of byId("rooms").querySelectorAll("dd")) {
    setText(node, count(data.rooms[node.dataset.of]));
  }
}

function showWorkers({ workers, partitions_total: total }) {
  const owned = workers.reduce((sum, one) => sum + one.partitions.length, 0);
  setText(byId("workers-caption"), total === null ? "" : `${owned} of ${total} partitions are owned.`);
  fillRows(
    byId("workers-rows"),
    workers.map((one) => [
      [one.url + (one.asked ? " (this one)" : ""), "address"],
      one.error ? ["does not answer", "bad"] : one.ready ? ["ready", "good"] : ["not ready", "bad"],
      one.partitions.length ? ranges(one.partitions) : "none",
      [one.error ? "–" : count(one.pending), "number"],
    ]),
  );
}

function showLag({ lag }) {
  const worst = lag.reduce((most, one) => (one.seconds > most.seconds ? one : most), { seconds: 0 });
  const records = lag.reduce((sum, one) => sum + one.records, 0);
  setText(
    byId("lag-caption"),
    !lag.length
      ? "Nothing is known yet."
      : `${count(records)} records in ${lag.length} partitions are to be worked on` +
          (worst.topic ? `, the oldest for ${duration(worst.seconds * 1000)}.` : "."),
  );
  const rows = [...lag].sort(
    (one, other) => one.topic.localeCompare(other.topic) || one.partition - other.partition,
  );
  fillRows(
    byId("lag-rows"),
    rows.map((one) => [
      one.topic,
      [`${one.partition}`, "number"],
      [count(one.records), "number"],
      [duration(one.seconds * 1000), "number"],
    ]),
  );
  const box = byId("lag-rows").closest(".scroll");
  const more = box.scrollHeight > box.clientHeight;
  setText(byId("lag-more"), more ? `Scroll the list to see all ${lag.length} partitions.` : "");
}

function showDeadLetters({ dead_letters: reasons }) {
  const rows = Object.entries(reasons);
  setText(
    byId("dead-letters-caption"),
    rows.length ? "Records that are no heartbeats, and rows that the database refuses." : "None.",
  );
  byId("dead-letters-rows").parentElement.tHead.hidden = !rows.length;
  fillRows(
    byId("dead-letters-rows"),
    rows.map(([reason, number]) => [reason, [count(number), "number"]]),
  );
}

function showErrors({ errors, workers }) {
  byId("errors-none").hidden = errors.length > 0;
  const lines = errors.map((one) => {
    const repeated = one.times > 1 ? ` · ${count(one.times)} times` : "";
    const whose = workers.length > 1 ? ` · ${one.worker}` : "";
    return [one.level, ` · ${clock(one.at_ms)} · ${one.source}${repeated}${whose}`, one.text];
  });
  const key = JSON.stringify(lines);
  const list = byId("errors-list");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(
    ...lines.map(([level, rest, text]) =>
      make(
        "li",
        {},
        make("div", { className: "head" }, make("span", { className: `level ${level}` }, level), rest),
        make("div", {}, text),
      ),
    ),
  );
}

export function showOverview(data) {
  showVerdict(data.verdict, `As of ${clock(data.now_ms)}.`);
  setText(byId("about"), `${data.app_id} · version ${data.version}`);
  byId("sign-out").hidden = !data.guarded;
  showCharts(data);
  showWorkers(data);
  showLag(data);
  showDeadLetters(data);
  showErrors(data);
}
