// The timeline of a report: reads a window, draws it, and moves the view.
const timeline = (() => {
  const LEAST = 100; // ns that a view shows at least
  const PAPER = 690; // CSS pixels between the margins of a sheet
  const TITLES = {
    typical: "Typical",
    fastest: "Fastest",
    slowest: "Slowest",
    only: "The only one",
    long: "Long",
    capture: "Capture",
  };
  const box = document.querySelector(".timeline-box");
  const root = document.documentElement;
  if (!box) return null;

  const embedded = (id) => JSON.parse(document.getElementById(id).textContent);
  const part = (name) => box.querySelector(`.timeline-${name}`);
  const { element } = timelineSegments;
  const { time, clean } = timelineFacts;
  const figure = box.closest("figure");
  const canvas = box.querySelector("canvas.timeline");
  const picture = timelineView.make(canvas, part("over"));
  const words = embedded("traceprobe-labels");
  const report = embedded("traceprobe-report");
  const sources = box.dataset.ranks.split(" ").map((index) => report.ranks[Number(index)]);
  const keys = [...new Set(sources.flatMap(timelineModel.keysOf))];

  // hover and pinned are {rank, lane, n}, chosen and view {from, to} in ns of the axis.
  const state = { model: null, plan: null, view: { from: 0, to: 1 } };
  const changed = []; // called after every change of the view
  let waiting = 0;
  let printed = null; // width on paper, while it is printed
  const ratio = () => (printed ? 2 : window.devicePixelRatio || 1);

  const labels = () => {
    const { plan, model } = state;
    const holder = part("labels");
    holder.replaceChildren();
    for (const { rank, top } of plan.heads) {
      const { iteration } = rank.window;
      const which = iteration === null ? "" : `, iteration ${iteration}`;
      const button = element("button", `${rank.folded ? "▸" : "▾"} Rank ${rank.rank}${which}`);
      button.type = "button";
      button.setAttribute("aria-expanded", String(!rank.folded));
      button.style.top = `${top}px`;
      button.addEventListener("click", () => {
        rank.folded = !rank.folded;
        arrange();
        holder.querySelectorAll("button")[model.ranks.indexOf(rank)].focus();
      });
      holder.append(button);
    }
    for (const { label: text, name, height } of plan.rows) {
      if (!text) continue;
      const label = element("span", clean(text));
      label.title = label.textContent;
      label.style.top = `${name}px`;
      if (!plan.narrow) label.style.height = label.style.lineHeight = `${height}px`;
      holder.append(label);
    }
  };

  // Where the lanes lie, after the width, the folds, the theme or the window changed.
  const arrange = () => {
    const { model } = state;
    const lanes = part("lanes");
    const width = printed ?? lanes.clientWidth;
    if (!width || !model) return; // folded: arranged when it opens
    const plan = timelineView.layout(model, width);
    state.plan = plan;
    box.classList.toggle("narrow", plan.narrow);
    lanes.style.height = `${plan.height}px`;
    lanes.style.setProperty("--left", `${plan.left}px`);
    for (const layer of [canvas, part("over")]) layer.style.height = `${plan.height}px`;
    labels();
    picture.theme(printed !== null);
    const strip = part("map").querySelector("canvas");
    const height = Math.min(48, Math.max(16, 8 * model.ranks.length));
    strip.style.height = `${height}px`;
    picture.overview(strip, model, printed ?? part("map").clientWidth, height, ratio());
    draw();
  };

  const write = () => picture.write(state.model, state);
  const draw = () => {
    cancelAnimationFrame(waiting);
    waiting = 0;
    if (!state.plan) return;
    picture.draw(state.model, state.plan, state.view, ratio());
    write();
  };

  // Whether the view changed; it stays inside of the window.
  const show = (from, to) => {
    const { model, view } = state;
    if (!model) return false;
    const span = Math.min(Math.max(to - from, LEAST), model.whole);
    const low = Math.min(Math.max((from + to - span) / 2, 0), model.whole - span);
    state.view = { from: low, to: low + span };
    segments.hover(null);
    canvas.dataset.from = String(Math.round(low));
    canvas.dataset.to = String(Math.round(low + span));
    // As many decimals as tell its ends apart to a thousandth of what is shown.
    const digits = Math.min(6, Math.max(0, 9 - Math.floor(Math.log10(span))));
    const [first, last] = [low, low + span].map((ns) => (ns / 1e6).toFixed(digits));
    part("range").textContent = `${first} to ${last} ms (${time(span)})`;
    part("brush").style.left = `${(100 * low) / model.whole}%`;
    part("brush").style.width = `${(100 * span) / model.whole}%`;
    waiting ||= requestAnimationFrame(draw);
    for (const call of changed) call();
    return view.from !== state.view.from || view.to !== state.view.to;
  };
  const zoom = (factor, where = (state.view.from + state.view.to) / 2) => {
    const { from, to } = state.view;
    const span = Math.min(Math.max((to - from) * factor, LEAST), state.model.whole);
    const low = where - ((where - from) / (to - from)) * span;
    return show(low, low + span);
  };
  const pan = (share) => {
    const { from, to } = state.view;
    const by = share * (to - from);
    return show(from + by, to + by);
  };
  const fit = () => show(0, state.model.whole);
  const togglePath = () => {
    const { model } = state;
    if (!box.classList.contains("pathed")) return;
    model.path = !model.path;
    part("path").setAttribute("aria-pressed", String(model.path));
    segments.hover(null);
    arrange();
  };

  const stage = { state, box, part, canvas, picture, words, show, draw, write, arrange };
  const segments = timelineSegments.make(stage);

  // What is to be known before believing the picture.
  const notes = (model) => {
    const left = model.ranks.reduce((sum, rank) => sum + rank.window.left_out, 0);
    const found = [];
    if (model.ranks.length > 1) {
      found.push(
        model.oneClock
          ? "All ranks are on one clock."
          : "The ranks share no clock here: each begins at its own start.",
        timelineFacts.stragglers(model),
      );
    }
    if (left) {
      const count = left.toLocaleString("en");
      found.push(
        `The ${count} shortest operators and calls of the threads are left out; ` +
          "the operations of the GPU are all here.",
      );
    }
    return found.filter(Boolean).join(" ");
  };

  const load = async (key) => {
    const wanted = keys.includes(key) ? key : keys[0];
    if (state.model?.key === wanted) return;
    const model = await timelineModel.read(sources, wanted, report.critical_path?.stretches ?? []);
    Object.assign(state, { hover: null, pinned: null, chosen: null });
    state.model = { ...model, words, lit: state.model?.lit ?? null, path: state.model?.path ?? true };
    timelineLight.shade(state.model);
    part("details").hidden = true;
    canvas.dataset.window = wanted;
    for (const radio of part("windows").querySelectorAll("input")) {
      radio.checked = radio.value === wanted;
    }
    const hasPath = model.ranks.some((rank) => rank.lanes.some((lane) => lane.kind === "path"));
    box.classList.toggle("pathed", hasPath);
    part("clock").textContent = notes(state.model);
    state.view = { from: 0, to: model.whole };
    arrange();
    fit();
  };

  const line = {
    ...segments, show, draw, zoom, pan, fit, togglePath, load, keys, sources,
    keysOf: timelineModel.keysOf,
    view: () => state.view,
    whole: () => state.model.whole,
    model: () => state.model,
    nsAt: (px) => picture.ns(px),
    select: (a, b) => {
      const from = Math.max(0, Math.min(a, b));
      state.chosen = { from, to: Math.min(state.model.whole, Math.max(a, b)) };
      write();
    },
    unfold: (number) => {
      const found = state.model.ranks.find((rank) => rank.rank === number);
      if (!found?.folded) return;
      found.folded = false;
      arrange();
    },
    onChange: (call) => changed.push(call),
    scroll: () => {
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      box.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    },
  };

  const fail = (error) => {
    part("shell").remove(); // and with it what other buttons could lead to
    for (const button of document.querySelectorAll("button.show")) button.hidden = true;
    const said = box.querySelector(".fallback") ?? box.appendChild(element("p", "", "fallback"));
    said.textContent =
      `The picture cannot be drawn: ${error.message}. ` +
      "The table below holds the longest segments.";
    root.dataset.timelinesReady = "failed";
  };

  const choices = () => {
    const holder = part("windows");
    holder.hidden = keys.length < 2;
    for (const key of keys) {
      const window = timelineModel.windowOf(
        sources.find((rank) => timelineModel.windowOf(rank, key)),
        key,
      );
      const which = window.iteration === null ? "" : ` · iteration ${window.iteration}`;
      const radio = element("input");
      Object.assign(radio, { type: "radio", name: "timeline-window", value: key });
      radio.addEventListener("change", () =>
        load(key).catch((error) => {
          segments.say(`This window cannot be drawn: ${error.message}.`);
          for (const each of holder.querySelectorAll("input")) {
            each.checked = each.value === state.model.key;
          }
        }),
      );
      const label = element("label");
      const title = TITLES[window.why] ?? window.why;
      label.append(radio, ` ${title}${which} · ${time(window.duration_ns)}`);
      holder.append(label);
    }
  };

  // The words of the legend become buttons that light up their class.
  const legend = () => {
    const byWord = new Map(Object.entries(words).map(([key, [word]]) => [word, key]));
    for (const item of figure.querySelectorAll(".legend li")) {
      const key = byWord.get(item.textContent.trim());
      if (!key) continue;
      const button = element("button");
      button.type = "button";
      button.dataset.show = key;
      button.setAttribute("aria-pressed", "false");
      button.append(...item.childNodes);
      item.append(button);
    }
  };

  const listen = () => {
    const buttons = {
      in: () => zoom(0.5),
      out: () => zoom(2),
      fit,
      path: togglePath,
      list: segments.list,
      clear: segments.release,
    };
    figure.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-do]");
      if (button) buttons[button.dataset.do]();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") segments.release();
    });
    timelineInput.listen(canvas, part("map"), line);
    timelineLinks.listen(line);
    new ResizeObserver(arrange).observe(part("lanes"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", arrange);
    const paper = (width) => () => {
      printed = width;
      arrange();
    };
    window.addEventListener("beforeprint", paper(PAPER));
    window.addEventListener("afterprint", paper(null));
  };

  const start = async () => {
    if (!keys.length) throw new Error("it has no window");
    choices();
    await load(timelineLinks.wanted().window);
    box.querySelector(".fallback")?.remove();
    part("shell").hidden = false;
    for (const button of figure.querySelectorAll("button[hidden]")) button.hidden = false;
    legend();
    arrange();
    listen();
    root.dataset.timelineAfter = performance.now().toFixed(0);
    root.dataset.timelinesReady = "1";
  };
  start().catch(fail);
  return line;
})();
