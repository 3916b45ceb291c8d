// A story: what there is to show, frame by frame; more comes while a run goes on.
const { story, charts, bars, fields, live } = JSON.parse(document.getElementById("data").textContent);
const el = (id) => document.getElementById(id);
const frames = [], events = [];
let now = 0, shown = -1, playing = false, following = live;
const columns = new Set();
let tallest = 1, mostTokens = 1, mostQueued = 1;

function take(frame) {
  const named = (names, rows) => rows.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]])));
  frame.instances = named(fields.instance, frame.instances);
  frame.flows = named(fields.flow, frame.flows);
  frame.events.forEach((text) => events.push({ at: parseFloat(text), text }));
  frames.push(frame);
  const sizes = {};
  frame.instances.forEach(({ role, queued_tokens }) => {
    columns.add(role);
    sizes[role] = (sizes[role] || 0) + 1;
    mostQueued = Math.max(mostQueued, queued_tokens);
  });
  tallest = Math.max(tallest, ...Object.values(sizes));
  mostTokens = Math.max(mostTokens, ...frame.flows.map((flow) => flow.tokens));
}

const endOf = () => story.end_s ?? (frames.length ? frames.at(-1).time_s : 0);

function indexAt(time) {
  let low = 0, high = frames.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (frames[middle].time_s <= time + 1e-3) low = middle; else high = middle;
  }
  return low;
}

function text(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, String(Math.trunc(value)).length) });
}
