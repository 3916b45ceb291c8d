// How plots look: colours of the page they are on, legends below, heights.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");

function legendHeight(figure, width) {
  const names = figure.data.filter((one) => one.showlegend !== false).map((one) => (one.name || "").length);
  const perRow = Math.max(1, Math.floor((width - 60) / (48 + 7 * Math.max(...names))));
  return figure.layout.showlegend ? 8 + 19 * Math.ceil(names.length / perRow) : 0;
}

function themed(figure, width) {
  const layout = figure.layout, below = legendHeight(figure, width);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = (own) => ({
    ...own, gridcolor: color("--rule"), linecolor: color("--rule"), zerolinecolor: color("--rule"), automargin: true,
  });
  return {
    ...layout, height: (layout.height || 270) + below, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 48, r: 12, t: 24, b: 40 + below },
    font: { family: "system-ui, sans-serif", size: 12, color: color("--text") },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 }, hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--quiet"), activecolor: color("--text") },
    hoverlabel: { bgcolor: color("--card"), bordercolor: color("--rule"), font: { color: color("--text") } },
  };
}
