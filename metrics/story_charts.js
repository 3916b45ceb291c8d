// How it came there: charts over the time of the run, with a cursor at the moment shown.
const MAX_POINTS = 1000; // of a curve, however long the run

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
