// Draws the charts, after page.js.
(() => {
  const root = document.documentElement;
  const embedded = (id) => document.getElementById(id).textContent;

  // Parallel arrays to the rows that Vega reads.
  const rows = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((n) => [n, columns[n][i]])));
  };

  // A folded chart has no width of its own yet; the figures all share that of the column.
  const column = document.querySelector("main");
  const chartWidth = () => Math.max(240, Math.floor(column.clientWidth - 2));

  const views = [];
  const draw = async ({ id, description, spec, data }) => {
    const host = document.getElementById(id);
    const datasets = Object.fromEntries(Object.entries(data).map(([k, v]) => [k, rows(v)]));
    const { view } = await vegaEmbed(host, { ...spec, description, datasets, width: chartWidth() }, {
      actions: false,
      ast: true, // expressions are interpreted: the page's policy forbids eval
      renderer: "svg",
      tooltip: { disableDefaultStyle: true },
    });
    views.push(view);
  };

  const drawAll = async () => {
    let drawn = 0;
    for (const chart of JSON.parse(embedded("traceprobe-charts"))) {
      try {
        await draw(chart);
        drawn += 1;
      } catch (error) {
        console.error(`chart ${chart.id}: ${error.message}`);
        document.getElementById(chart.id).textContent =
          "This picture could not be drawn; the table below holds its numbers.";
      }
    }
    root.dataset.drawnAfter = performance.now().toFixed(0);
    root.dataset.chartsReady = String(drawn);
  };

  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => views.forEach((view) => view.width(chartWidth()).runAsync()), 150);
  });

  followLink();
  drawAll().then(followLink); // the charts moved what lies below them
})();
