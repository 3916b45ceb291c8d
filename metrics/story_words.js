// A moment in figures, and what the planner says.
const NEWS_S = 8; // an event so long ago is still news

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
