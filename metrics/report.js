// Draws every figure of a report in its place.
const figures = JSON.parse(document.getElementById("data").textContent);

function draw() {
  figures.forEach((figure, index) => {
    const place = document.getElementById("plot" + index);
    const options = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]] };
    Plotly.react(place, figure.data, themed(figure, place.clientWidth), options);
  });
}

draw();
dark.addEventListener("change", draw);
