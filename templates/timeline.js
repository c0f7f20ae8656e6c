"use strict";

// The timelines: canvases that draw the lanes of the embedded report, and zoom.
(() => {
  const every = document.querySelectorAll("canvas.timeline");
  const embedded = (id) => JSON.parse(document.getElementById(id).textContent);
  const report = every.length ? embedded("traceprobe-report") : null;
  const words = embedded("traceprobe-labels");
  const LANE = 26;
  const GAP = 5;
  const AXIS = 24;
  const LABELS = 150;
  const STEP = 0.2;
  const canvases = [];
  const clean = (text) => text.replace(/[\p{Cc}\p{Cf}]+/gu, " "); // names come from anybody

  const nice = (span, count) => {
    const rough = span / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((f) => f * power).find((f) => f >= rough);
  };
  const time = (ns) =>
    Math.abs(ns) >= 1e6 || ns === 0
      ? `${+(ns / 1e6).toPrecision(4)} ms`
      : `${+(ns / 1e3).toPrecision(4)} µs`;

  const lanesOf = (rank, picture) => {
    const lanes = picture.lanes.map((lane) => ({
      name: clean(lane.name),
      segments: lane.start_ns.map((start, i) => ({
        start,
        end: start + lane.duration_ns[i],
        label: lane.label[i],
        detail: lane.detail[i],
      })),
    }));
    const end = picture.start_ns + picture.duration_ns;
    const idle = rank.gaps
      .filter((gap) => gap.end_ns > picture.start_ns && gap.start_ns < end)
      .map((gap) => ({
        start: Math.max(gap.start_ns, picture.start_ns) - picture.start_ns,
        end: Math.min(gap.end_ns, end) - picture.start_ns,
        label: gap.cause,
        detail: `${gap.evidence}; before: ${gap.before ?? "?"}; after: ${gap.after ?? "?"}`,
      }));
    return idle.length ? [...lanes, { name: "idle: longest gaps", segments: idle }] : lanes;
  };

  const start = (canvas) => {
    const rank = report.ranks[Number(canvas.dataset.rank)];
    const picture = rank[canvas.dataset.picture];
    const lanes = lanesOf(rank, picture);
    const tip = canvas.parentElement.querySelector(".tip");
    const whole = { from: 0, to: picture.duration_ns };
    let view = { ...whole };
    let width = 0;

    const labels = () => Math.min(LABELS, width * 0.3);
    const toX = (ns) => labels() + ((ns - view.from) / (view.to - view.from)) * (width - labels());
    const toNs = (x) => view.from + ((x - labels()) / (width - labels())) * (view.to - view.from);

    const draw = () => {
      const ratio = window.devicePixelRatio || 1;
      width = canvas.parentElement.clientWidth;
      if (!width) return; // folded: drawn when it opens
      const height = lanes.length * (LANE + GAP) + AXIS;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const ink = getComputedStyle(canvas).color;
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      lanes.forEach((lane, row) => {
        const y = row * (LANE + GAP);
        pen.fillStyle = ink;
        pen.globalAlpha = 1;
        pen.fillText(lane.name, 0, y + LANE / 2, labels() - 8);
        pen.globalAlpha = 0.08;
        pen.fillRect(labels(), y, width - labels(), LANE);
        pen.globalAlpha = 1;
        pen.save();
        pen.beginPath();
        pen.rect(labels(), y, width - labels(), LANE);
        pen.clip();
        for (const s of lane.segments) {
          if (s.end < view.from || s.start > view.to) continue;
          const x = toX(s.start);
          pen.fillStyle = (words[s.label] ?? words.other)[1];
          pen.fillRect(x, y, Math.max(toX(s.end) - x, 0.7), LANE);
        }
        pen.restore();
      });
      const y = lanes.length * (LANE + GAP);
      const step = nice(view.to - view.from, Math.max(2, (width - labels()) / 110));
      pen.fillStyle = ink;
      pen.textBaseline = "top";
      for (let ns = Math.ceil(view.from / step) * step; ns <= view.to; ns += step) {
        const x = toX(ns);
        pen.fillRect(x, y - GAP, 1, GAP);
        const text = time(ns);
        pen.fillText(text, Math.min(x, width - pen.measureText(text).width), y + 4);
      }
      canvas.dataset.from = String(Math.round(view.from));
      canvas.dataset.to = String(Math.round(view.to));
    };

    const show = (from, to) => {
      const span = Math.min(Math.max(to - from, 200), whole.to); // not below 200 ns
      const begin = Math.min(Math.max(from, 0), whole.to - span);
      view = { from: begin, to: begin + span };
      tip.hidden = true;
      draw();
    };
    const zoom = (factor, at) =>
      show(at - (at - view.from) * factor, at + (view.to - at) * factor);
    const pan = (share) => {
      const by = share * (view.to - view.from);
      show(view.from + by, view.to + by);
    };
    const middle = () => (view.from + view.to) / 2;

    const keys = {
      ArrowLeft: () => pan(-STEP),
      ArrowRight: () => pan(STEP),
      ArrowUp: () => zoom(1 - STEP, middle()),
      ArrowDown: () => zoom(1 / (1 - STEP), middle()),
      "+": () => zoom(1 - STEP, middle()),
      "=": () => zoom(1 - STEP, middle()),
      "-": () => zoom(1 / (1 - STEP), middle()),
      Home: () => show(0, whole.to),
      0: () => show(0, whole.to),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.shiftKey && !event.ctrlKey) return; // the bare wheel scrolls the page
        event.preventDefault();
        const turn = event.deltaY || event.deltaX;
        zoom(turn > 0 ? 1 / (1 - STEP) : 1 - STEP, toNs(event.offsetX));
      },
      { passive: false },
    );
    canvas.addEventListener("dblclick", () => show(0, whole.to));

    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.offsetX, ...view };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => {
      held = null;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const by = ((event.offsetX - held.x) / (width - labels())) * (held.to - held.from);
        show(held.from - by, held.to - by);
        return;
      }
      const lane = lanes[Math.floor(event.offsetY / (LANE + GAP))];
      const at = toNs(event.offsetX);
      const slack = (1.5 * (view.to - view.from)) / (width - labels());
      const hit =
        event.offsetX >= labels() &&
        lane?.segments.find((s) => s.start - slack <= at && at <= s.end + slack);
      tip.hidden = !hit;
      if (!hit) return;
      const word = (words[hit.label] ?? [hit.label])[0];
      tip.textContent = `${clean(`${word}: ${hit.detail}`)} · ${time(hit.end - hit.start)} from ${time(hit.start)}`;
      tip.style.left = `${Math.min(event.offsetX + 12, Math.max(0, width - 320))}px`;
      tip.style.top = `${event.offsetY + 18}px`;
    });
    canvas.addEventListener("pointerleave", () => {
      tip.hidden = true;
    });

    canvas.closest("figure").querySelector(".hint").hidden = false;
    canvas.closest("figure").querySelector(".fallback")?.remove();
    canvas.hidden = false;
    draw();
    canvases.push(draw);
    for (let e = canvas; e; e = e.parentElement) {
      if (e.tagName === "DETAILS") e.addEventListener("toggle", draw);
    }
  };

  for (const canvas of every) start(canvas);
  const redraw = () => canvases.forEach((draw) => draw());
  window.addEventListener("resize", redraw);
  window.addEventListener("beforeprint", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.timelinesReady = String(canvases.length);
})();
