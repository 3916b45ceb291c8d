// Shows a story: the cluster at a moment, and how it came there; with a slider, by playing, or live.
const { story, charts, bars, fields, live } = JSON.parse(document.getElementById("data").textContent);
const MAX_POINTS = 1000; // of a curve, however long the run
const FLOW_S = 2; // KV that came in so long ago still shows
const NEWS_S = 8; // an event so long ago is still news
const el = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const frames = [], events = [];
const columns = new Set();
let tallest = 1, mostTokens = 1, mostQueued = 1;
let now = 0, shown = -1, playing = false, following = live;

// What there is to show.

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

// The cluster now.

function text(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, String(Math.trunc(value)).length) });
}

const cards = story.instance_names.map((name) => {
  const card = document.createElement("div");
  card.className = "instance";
  card.innerHTML = '<span class="name"></span><span class="role"></span><span class="load"></span><span class="meter"><i></i></span>';
  card.querySelector(".name").textContent = name;
  el("cluster").append(card);
  return card;
});

function layout(frame) {
  const width = el("cluster").clientWidth, small = cards.length > 12;
  el("cluster").classList.toggle("small", small);
  const order = ["prefill", "mixed", "decode", ""].filter((role) => columns.has(role));
  const gap = Math.min(150, Math.max(40, width * 0.14));
  const columnWidth = (width - gap * (order.length - 1)) / order.length;
  const narrow = !small && columnWidth < 240;
  el("cluster").classList.toggle("narrow", narrow);
  const cardWidth = small ? 90 : columnWidth, cardHeight = small ? 26 : narrow ? 94 : 58;
  const step = cardHeight + (small ? 4 : 12);
  const perRow = small ? Math.max(1, Math.floor((columnWidth + 4) / (cardWidth + 4))) : 1;
  const counts = {};
  el("cluster").style.height = `${24 + step * Math.ceil(tallest / perRow)}px`;
  const places = frame.instances.map(({ role }) => {
    const place = (counts[role] = (counts[role] || 0) + 1) - 1, column = order.indexOf(role);
    const left = column * (columnWidth + gap) + (place % perRow) * (cardWidth + 4);
    return { column, left, right: left + cardWidth, top: 24 + step * Math.floor(place / perRow), height: cardHeight };
  });
  return { order, counts, columnWidth, gap, cardWidth, places };
}

function drawCluster(index) {
  const frame = frames[index], { order, counts, columnWidth, gap, cardWidth, places } = layout(frame);
  frame.instances.forEach((one, at) => {
    const card = cards[at], place = places[at];
    card.dataset.role = one.role;
    card.dataset.phase = one.phase;
    card.style.transform = `translate(${place.left}px, ${place.top}px)`;
    card.style.width = `${cardWidth}px`;
    card.style.height = `${place.height}px`;
    const state = one.phase === "serving" ? "" : one.target ? ` → ${one.target}, ${one.phase}` : `, ${one.phase}`;
    const queue = one.queued_tokens || one.role === "prefill" ? [`${text(one.queued_tokens)} tokens queued`] : [];
    const decoding = one.num_decoding || one.role !== "prefill" ? [`${text(one.num_decoding)} decoding`, `KV ${text(100 * one.kv_use, 2)} %`] : [];
    card.querySelector(".role").textContent = one.role + state;
    card.querySelector(".load").textContent = [...queue, ...decoding].join(" · ");
    card.title = `${story.instance_names[at]}: ${card.querySelector(".role").textContent}; ${[...queue, ...decoding].join(", ")}`;
    const share = one.role === "prefill" ? one.queued_tokens / mostQueued : one.kv_use;
    card.querySelector(".meter i").style.width = `${100 * Math.min(1, share)}%`;
  });
  document.querySelectorAll(".column").forEach((title) => title.remove());
  order.forEach((role, column) => {
    const title = document.createElement("span");
    title.className = "column";
    title.textContent = `${counts[role] || 0} ${role}`;
    title.style.left = `${column * (columnWidth + gap)}px`;
    el("cluster").append(title);
  });
  drawFlows(index, places);
  el("rate").textContent = frame.values.kv_gb_s ? `${text(frame.values.kv_gb_s, 2)} GB/s of KV handed over` : "";
}

function drawFlows(index, places) {
  const flows = new Map();
  for (let since = index; since >= 0 && frames[since].time_s > frames[index].time_s - FLOW_S; since--) {
    for (const { source, destination, tokens } of frames[since].flows) {
      const key = `${source} ${destination}`;
      flows.set(key, { source, destination, tokens: tokens + (flows.get(key)?.tokens || 0) });
    }
  }
  el("flows").innerHTML = [...flows.values()].map(({ source, destination, tokens }) => {
    const from = places[source], to = places[destination];
    const forward = from.column < to.column;
    const x0 = forward ? from.right : from.left, x1 = forward || from.column === to.column ? to.left : to.right;
    const y0 = from.top + from.height / 2, y1 = to.top + to.height / 2;
    const bend = forward ? (x1 - x0) / 2 : -40;
    const width = 3 + 7 * Math.min(1, tokens / mostTokens / 2);
    const path = `d="M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - Math.abs(bend)} ${y1} ${x1} ${y1}"`;
    return `<path class="link" ${path} stroke-width="1.5"/><path class="kv" ${path} stroke-width="${width.toFixed(1)}"/>`;
  }).join("");
}

function drawTiles(frame) {
  const { slo } = story, late = (value, target) => (target && value > target ? "bad" : "");
  const target = (ms) => (ms ? `, target ${text(ms)}\u00a0ms` : "");
  const unit = (value, name) => (value === null ? text(value) : `${text(value)}\u00a0${name}`);
  const { good_rate, sent_rate, good_share, ttft_p90, tpot_p90 } = frame.values;
  const ended = frame.num_ended ? `, ${text((100 * frame.num_good) / frame.num_ended)}\u00a0% good` : "";
  const tiles = [
    [text(good_rate), `good req/s, of ${text(sent_rate)} sent`, ""],
    [unit(good_share, "%"), `good, ${text(100 * slo.attainment)}\u00a0% asked for`, good_share < 100 * slo.attainment && good_share !== null ? "bad" : ""],
    [unit(ttft_p90, "ms"), `TTFT p90${target(slo.ttft_ms)}`, late(ttft_p90, slo.ttft_ms)],
    [unit(tpot_p90, "ms"), `TPOT p90${target(slo.tpot_ms)}`, late(tpot_p90, slo.tpot_ms)],
    [text(frame.num_sent - frame.num_ended), "requests in flight", ""],
    [text(frame.num_ended), `of ${text(story.num_requests)} ended${ended}`, ""],
  ];
  el("tiles").innerHTML = tiles.map(([value, label, css]) => `<div class="card tile"><b class="${css}">${value}</b><span class="quiet">${label}</span></div>`).join("");
}

function drawPlanner(frame) {
  el("says").textContent = frame.planner || (story.policy === "static" ? "A static planner changes no roles." : "");
  const list = el("events");
  for (let index = list.children.length; index < events.length; index++) {
    const item = document.createElement("li"), button = document.createElement("button");
    button.textContent = events[index].text;
    button.onclick = () => { leave(); show(events[index].at); };
    item.append(button);
    list.append(item);
  }
  let latest = null;
  events.forEach(({ at }, index) => {
    const item = list.children[index];
    item.className = at > now + 1e-3 ? "ahead" : now - at < NEWS_S ? "now" : "";
    if (at <= now + 1e-3) latest = item;
  });
  if (latest) list.scrollTop = latest.offsetTop - list.clientHeight / 2;
}

// How it came there.

const cursor = () => ({ type: "line", xref: "x", yref: "paper", x0: now, x1: now, y0: 0, y1: 1, line: { color: getComputedStyle(document.body).color, width: 1.5 } });

function roleBars() {
  const found = {};
  const key = ({ role, phase }) => `${role}/${phase}`;
  story.instance_names.forEach((name, index) => {
    let start = 0;
    frames.forEach((frame, at) => {
      const here = key(frame.instances[index]), next = frames[at + 1];
      if (next && key(next.instances[index]) === here) return;
      const stop = next ? next.time_s : endOf();
      const bar = (found[here] ??= { ...(bars[here] || {}), x: [], base: [], y: [] });
      bar.x.push(stop - start), bar.base.push(start), bar.y.push(name);
      start = stop;
    });
  });
  return Object.values(found);
}

function drawCharts() {
  const every = Math.ceil(frames.length / MAX_POINTS);
  const drawn = frames.filter((_, index) => (frames.length - 1 - index) % every === 0);
  const times = drawn.map((frame) => frame.time_s);
  charts.forEach((chart, index) => {
    const place = el("plot" + index);
    const data = chart.data.length
      ? chart.data.map((trace) => ({ ...trace, x: times, y: drawn.map((frame) => frame.values[trace.meta]) })).filter((trace) => trace.y.some((y) => y !== null))
      : roleBars();
    const figure = { data, layout: { ...chart.layout, uirevision: "kept" } };
    figure.layout.xaxis = { ...chart.layout.xaxis, range: [0, Math.max(endOf(), 1)] };
    figure.layout.shapes = [cursor(), ...(chart.layout.shapes || [])];
    Plotly.react(place, data, themed(figure, place.clientWidth), { responsive: true, displayModeBar: false });
    if (!place.dataset.clicks) {
      place.dataset.clicks = "yes";
      place.on("plotly_click", ({ points }) => { leave(); show(points[0].base ?? points[0].x); });
    }
  });
}

function moveCursors() {
  charts.forEach((_, index) => Plotly.relayout(el("plot" + index), { "shapes[0].x0": now, "shapes[0].x1": now }));
}

// Where the reader is.

function show(time) {
  now = Math.min(Math.max(0, time), endOf());
  el("slider").max = endOf();
  el("slider").value = now;
  el("clock").textContent = `${now.toFixed(1)} s`;
  if (!frames.length) return;
  const index = indexAt(now);
  if (index === shown) return;
  shown = index;
  drawTiles(frames[index]);
  drawCluster(index);
  drawPlanner(frames[index]);
  moveCursors();
}

function leave() {
  following = playing = false;
  state();
}

function state() {
  el("play").textContent = playing ? "❚❚ pause" : "▶ play";
  el("live").hidden = !live;
  el("live").setAttribute("aria-pressed", following);
}

function play() {
  if (now >= endOf()) show(0);
  playing = true;
  following = false;
  state();
  let before = performance.now();
  requestAnimationFrame(function advance(at) {
    if (!playing) return;
    show(now + ((at - before) / 1000) * el("speed").value);
    before = at;
    if (now >= endOf()) leave(); else requestAnimationFrame(advance);
  });
}

el("play").onclick = () => (playing ? leave() : play());
el("slider").oninput = (event) => { leave(); show(Number(event.target.value)); };
el("live").onclick = () => { playing = false; following = true; state(); show(endOf()); };
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); el("play").click(); }
});
addEventListener("resize", () => { if (frames.length) drawCluster(shown); });
dark.addEventListener("change", drawCharts);

function listen() {
  let dirty = false;
  const source = new EventSource(`events?after=${frames.length}`);
  source.onopen = () => (el("status").textContent = "");
  source.onmessage = ({ data }) => {
    take(JSON.parse(data));
    dirty = true;
    if (following) show(endOf());
  };
  source.addEventListener("end", () => { source.close(); el("status").textContent = "The run has ended; this page keeps what it has seen."; });
  source.onerror = () => (el("status").textContent = "The connection is lost; this page keeps what it has seen.");
  setInterval(() => { if (dirty) drawCharts(); dirty = false; }, 1000);
}

story.frames.forEach(take);
el("speed").value = [...el("speed").options].map((one) => one.value).find((speed) => endOf() / speed <= 30) || "100";
state();
drawCharts();
const asked = new URLSearchParams(location.hash.slice(1)).get("t");
show(asked !== null ? Number(asked) : live ? endOf() : 0);
if (live) listen();
else if (asked === null && !still) play();
