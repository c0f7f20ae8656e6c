// Draws a chart when it comes into view. The libraries for it are packed in the page and take time
// to read, so nothing of them is touched before.
(() => {
  const root = document.documentElement;
  const charts = new Map(JSON.parse(embedded("charts")).map((chart) => [chart.id, chart]));
  let drawn = 0;
  root.dataset.charts = String(charts.size);
  root.dataset.chartsReady = "0";

  const unpack = async () => {
    const bytes = Uint8Array.from(atob(embedded("library")), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };
  let library;

  // Parallel arrays to the rows that Vega reads.
  const rows = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((n) => [n, columns[n][i]])));
  };

  const widthOf = (host) => Math.max(240, Math.floor(host.clientWidth - 2));

  const views = new Map();
  const draw = async ({ id, description, spec, data }) => {
    const host = document.getElementById(id);
    await (library ??= unpack());
    const datasets = Object.fromEntries(Object.entries(data).map(([k, v]) => [k, rows(v)]));
    const { view } = await vegaEmbed(host, { ...spec, description, datasets, width: widthOf(host) }, {
      actions: false,
      ast: true, // expressions are interpreted: the page's policy forbids eval
      renderer: "svg",
      tooltip: { disableDefaultStyle: true },
    });
    views.set(host, view);
  };

  const drawOne = async (chart) => {
    try {
      await draw(chart);
      drawn += 1;
    } catch (error) {
      console.error(`chart ${chart.id}: ${error.message}`);
      document.getElementById(chart.id).textContent =
        "This picture could not be drawn; the table below holds its numbers.";
    }
    document.getElementById(chart.id).removeAttribute("aria-busy");
    root.dataset.drawnAfter = performance.now().toFixed(0);
    root.dataset.chartsReady = String(drawn);
  };

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      drawOne(charts.get(target.id));
    }
  }, { rootMargin: "200px" });
  for (const [id, { spec }] of charts) {
    const host = document.getElementById(id);
    // Room for it, its axis and a title beforehand: what moves under the pointer is not clicked.
    host.style.minHeight = `${(spec.height ?? 200) + 64}px`;
    seen.observe(host);
  }

  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      for (const [host, view] of views) if (host.clientWidth) view.width(widthOf(host)).runAsync();
    }, 150);
  });

  root.dataset.drawnAfter = performance.now().toFixed(0);
  followLink();
})();
