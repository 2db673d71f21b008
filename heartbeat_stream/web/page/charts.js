// A small chart: a line over the last minutes, the present value as text, and all of it in words.

import { make, setText } from "./dom.js";
import { clock, duration } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;
const LEAST_MS = 120_000;

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The least round number that a value does not exceed. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => value <= step);
}

function parts(figure) {
  if (figure.parts) return figure.parts;
  const now = make("p", { className: "now" });
  const top = make("p", { className: "top" });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  for (const y of [0.5, HEIGHT / 2]) {
    picture.append(svg("path", { class: "grid", d: `M0 ${y}H${WIDTH}` }));
  }
  const area = svg("path", { class: "area" });
  const curve = svg("path", { class: "curve" });
  picture.append(area, curve);
  const start = make("span");
  const axis = make("p", { className: "axis" }, start, make("span", {}, "now"));
  axis.setAttribute("aria-hidden", "true");
  top.setAttribute("aria-hidden", "true");
  figure.append(now, top, picture, axis);
  figure.parts = { now, top, picture, area, curve, start };
  return figure.parts;
}

/**
 * Draw points [at_ms, value] into a figure. Where a value is null there was nothing to tell.
 * `most`: the end of the scale, if it is always the same.
 */
export function draw(figure, points, { format, most }) {
  const { now, top, picture, area, curve, start } = parts(figure);
  const name = figure.querySelector("figcaption").textContent;
  const known = points.filter(([, value]) => value !== null);
  if (!known.length) {
    setText(now, "–");
    setText(start, "");
    setText(top, "");
    picture.setAttribute("aria-label", `${name}: nothing yet`);
    return;
  }
  const end = points.at(-1)[0];
  const span = Math.max(LEAST_MS, end - points[0][0]);
  const values = known.map(([, value]) => value);
  const highest = Math.max(...values);
  const scale = most ?? ceiling(highest);
  const x = (at) => (WIDTH * (1 - (end - at) / span)).toFixed(1);
  const y = (value) => (HEIGHT - (HEIGHT - 2) * (value / scale)).toFixed(1);
  let line = "";
  let filled = "";
  let run = [];
  for (const [at, value] of [...points, [end, null]]) {
    if (value !== null) {
      run.push(`${x(at)} ${y(value)}`);
      continue;
    }
    if (run.length) {
      const [first] = run[0].split(" ");
      const [last] = run.at(-1).split(" ");
      line += `M${run.join("L")}`;
      filled += `M${first} ${HEIGHT}L${run.join("L")}L${last} ${HEIGHT}Z`;
      run = [];
    }
  }
  curve.setAttribute("d", line);
  area.setAttribute("d", filled);
  const [at, latest] = known.at(-1);
  setText(now, format(latest));
  setText(top, format(scale));
  setText(start, `${duration(span)} ago`);
  picture.setAttribute(
    "aria-label",
    `${name}, over the last ${duration(end - points[0][0])}: ${format(latest)} at ${clock(at)}, ` +
      `at least ${format(Math.min(...values))}, at most ${format(highest)}`,
  );
}
