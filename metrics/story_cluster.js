// The cluster at a moment: a card per instance in the column of its role, and KV on its way between them.
const FLOW_S = 2; // KV that came in so long ago still shows

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
