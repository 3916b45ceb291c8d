// Where the reader is in time: a slider, playing, or live.
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

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
