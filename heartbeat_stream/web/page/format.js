// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

export const count = (number) => whole.format(number);
export const rate = (number) => (number < 10 ? tenths : whole).format(number);
export const percent = (share) => `${tenths.format(100 * share)}\u00a0%`;

const two = (many, unit, rest, smaller) =>
  many < 10 && rest ? `${many} ${unit} ${rest} ${smaller}` : `${many} ${unit}`;

/** A duration in ms, in its largest unit, or the two largest where the first is small. */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return two(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return two(hours, "h", minutes % 60, "min");
  return `${count(Math.floor(hours / 24))} days`;
}

/** A time of day, with the date before it unless it is today. */
export function clock(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`; // further away than a calendar goes
  const date = day.format(at);
  return date === day.format(new Date()) ? time.format(at) : `${date} ${time.format(at)}`;
}

/** "0–3, 7": the numbers of a sorted list, what follows on each other joined. */
export function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}
