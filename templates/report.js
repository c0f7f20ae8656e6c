// Draws the charts, opens what a link or a printer needs and offers the embedded report as a file.
// Nothing that the verdict needs happens here: the page reads the same with scripts turned off.
(() => {
  const root = document.documentElement;
  const embedded = (id) => document.getElementById(id).textContent;

  // Parallel arrays to the rows that Vega reads.
  const rows = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((n) => [n, columns[n][i]])));
  };

  // A folded chart has no width of its own yet; the figures all share that of the column.
  const column = document.querySelector("#ranks");
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

  // A link to something folded opens everything around it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const e of folded) e.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const e of folded) e.open = false;
  });

  const download = document.getElementById("download");
  download.hidden = false;
  download.addEventListener("click", () => {
    const link = document.createElement("a");
    const blob = new Blob([embedded("traceprobe-report")], { type: "application/json" });
    link.href = URL.createObjectURL(blob);
    link.download = "report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  const copy = document.getElementById("copy");
  const copied = document.getElementById("copied");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const text = JSON.parse(embedded("traceprobe-markdown"));
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without permission, or in an old browser: by way of a selection.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    copied.textContent = `Copied ${text.split("\n").length - 1} lines.`;
  });

  const report = JSON.parse(embedded("traceprobe-report"));
  root.dataset.timelinesReady = String(
    drawTimelines(report, JSON.parse(embedded("traceprobe-labels"))),
  );

  const followLink = () => {
    if (location.hash) reveal();
  };
  followLink();
  drawAll().then(followLink); // the charts moved what lies below them
})();
