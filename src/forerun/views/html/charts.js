// Draws the charts of the page, in the colours that the page has now, light or dark.
(function () {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }
  function dressed(layout) {
    const axis = { zeroline: false, automargin: true, color: colour("--text"), gridcolor: colour("--grid"), linecolor: colour("--line") };
    return Object.assign({}, layout, {
      hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: colour("--text") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--text") } },
      xaxis: Object.assign({}, layout.xaxis, axis),
      yaxis: Object.assign({}, layout.yaxis, axis),
    });
  }
  function draw() {
    for (const chart of charts) {
      Plotly.react(chart.id, chart.data, dressed(chart.layout), { responsive: true, displaylogo: false, displayModeBar: false });
    }
  }
  async function unpacked() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }
  unpacked().then((code) => {
    const library = document.createElement("script");
    library.textContent = code;
    document.head.append(library);
    draw();
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  });
})();
