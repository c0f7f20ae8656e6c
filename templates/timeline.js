// The timeline of a report: reads a window, draws it, and answers what the reader does with it.
const timeline = (() => {
  const LEAST = 100; // ns that a view shows at least
  const LISTED = 40;
  const box = document.querySelector(".timeline-box");
  const root = document.documentElement;
  root.dataset.timelinesReady = "0";
  if (!box) return null;

  const embedded = (id) => JSON.parse(document.getElementById(id).textContent);
  const part = (name) => box.querySelector(`.timeline-${name}`);
  const element = (tag, text = "", className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const { time, at, percent, clean } = timelineFacts;
  const canvas = box.querySelector("canvas.timeline");
  const tip = box.querySelector(".tip");
  const picture = timelineView.make(canvas, part("over"));
  const words = embedded("traceprobe-labels");
  const report = embedded("traceprobe-report");
  const sources = box.dataset.ranks.split(" ").map((index) => report.ranks[Number(index)]);

  let model = null; // {ranks, words, whole, oneClock, lit, key}
  let plan = null;
  let view = { from: 0, to: 1 };
  let hover = null; // {rank, lane, n}
  let pinned = null;
  let chosen = null; // {from, to} on the axis
  let waiting = 0;
  const changed = []; // called after every change of the view

  // Windows by what they stand for; a word that a rank has twice gets a number.
  const keysOf = (rank) => {
    const seen = {};
    return rank.picture.windows.map((window) => {
      seen[window.why] = (seen[window.why] ?? 0) + 1;
      return seen[window.why] > 1 ? `${window.why}-${seen[window.why]}` : window.why;
    });
  };
  const windowOf = (rank, key) => rank.picture.windows[keysOf(rank).indexOf(key)];
  const keys = [...new Set(sources.flatMap(keysOf))];

  const read = async (key) => {
    const present = sources.filter((rank) => windowOf(rank, key));
    const windows = present.map((rank) => windowOf(rank, key));
    const oneClock =
      present.every((rank) => Number.isSafeInteger(rank.picture.clock_ns)) &&
      windows.every((window) => window.iteration === windows[0].iteration);
    const starts = windows.map((w, k) => w.start_ns + (oneClock ? present[k].picture.clock_ns : 0));
    const zero = Math.min(...starts);
    const data = await Promise.all(present.map((r, k) => timelineData.read(r.picture, windows[k])));
    const ranks = present.map((source, k) => {
      const shift = oneClock ? starts[k] - zero : 0;
      const lanes = timelineLanes.ofRank(source.picture, data[k], shift);
      const { rank, picture: from } = source;
      return { rank, picture: from, window: windows[k], data: data[k], shift, lanes, folded: k > 0 };
    });
    const whole = Math.max(...ranks.map((r) => r.shift + r.window.duration_ns));
    return { ranks, words, whole, oneClock, lit: model?.lit ?? null, key };
  };

  // ---- drawing

  const labels = () => {
    const holder = part("labels");
    holder.replaceChildren();
    for (const { rank, top } of plan.heads) {
      const iteration = rank.window.iteration === null ? "" : `, iteration ${rank.window.iteration}`;
      const button = element("button", `${rank.folded ? "▸" : "▾"} Rank ${rank.rank}${iteration}`);
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
    for (const { lane, name, height } of plan.rows) {
      if (!lane.label) continue;
      const label = element("span", clean(lane.label));
      label.title = label.textContent;
      label.style.top = `${name}px`;
      if (!plan.narrow) label.style.height = label.style.lineHeight = `${height}px`;
      holder.append(label);
    }
  };

  let printed = null; // width on paper
  const ratio = () => (printed ? 2 : window.devicePixelRatio || 1);

  const arrange = () => {
    const width = printed ?? part("lanes").clientWidth;
    if (!width || !model) return; // folded: arranged when it opens
    plan = timelineView.layout(model, width);
    box.classList.toggle("narrow", plan.narrow);
    const lanes = part("lanes");
    lanes.style.height = `${plan.height}px`;
    lanes.style.setProperty("--left", `${plan.left}px`);
    for (const c of [canvas, part("over")]) c.style.height = `${plan.height}px`;
    labels();
    picture.theme(printed !== null);
    const strip = part("map").querySelector("canvas");
    const height = Math.min(48, Math.max(16, 8 * model.ranks.length));
    strip.style.height = `${height}px`;
    picture.overview(strip, model, printed ?? part("map").clientWidth, height, ratio());
    draw();
  };

  const write = () => picture.write(model, { hover, pinned, selected: chosen });
  const draw = () => {
    cancelAnimationFrame(waiting);
    waiting = 0;
    if (!plan) return;
    picture.draw(model, plan, view, ratio());
    write();
  };
  const later = () => {
    waiting ||= requestAnimationFrame(draw);
  };

  // ---- the view

  const show = (from, to) => {
    if (!model) return false;
    const span = Math.min(Math.max(to - from, LEAST), model.whole);
    const low = Math.min(Math.max(from, 0), model.whole - span);
    const before = view;
    view = { from: low, to: low + span };
    hover = null;
    tip.hidden = true;
    canvas.dataset.from = String(Math.round(view.from));
    canvas.dataset.to = String(Math.round(view.to));
    part("range").textContent = `${at(view.from)} to ${at(view.to)} (${time(span)})`;
    const brush = part("brush");
    brush.style.left = `${(100 * view.from) / model.whole}%`;
    brush.style.width = `${(100 * span) / model.whole}%`;
    later();
    for (const call of changed) call();
    return before.from !== view.from || before.to !== view.to;
  };
  const zoom = (factor, where = (view.from + view.to) / 2) =>
    show(where - (where - view.from) * factor, where + (view.to - where) * factor);
  const pan = (share) => {
    const by = share * (view.to - view.from);
    return show(view.from + by, view.to + by);
  };
  const fit = () => show(0, model.whole);

  const load = async (key) => {
    const wanted = keys.includes(key) ? key : keys[0];
    if (model?.key === wanted) return;
    const next = await read(wanted);
    model = next;
    hover = pinned = chosen = null;
    part("details").hidden = true;
    canvas.dataset.window = wanted;
    for (const radio of part("windows").querySelectorAll("input")) {
      radio.checked = radio.value === wanted;
    }
    part("clock").textContent = [
      model.ranks.length > 1 &&
        (model.oneClock
          ? "All ranks are on one clock."
          : "The ranks share no clock here: each begins at its own start."),
      model.ranks.length > 1 && timelineFacts.stragglers(model),
      model.ranks.some((rank) => rank.window.left_out) &&
        `The ${model.ranks.reduce((sum, r) => sum + r.window.left_out, 0).toLocaleString("en")} ` +
          "shortest operators and calls of the threads are left out; the GPU's operations are all here.",
    ]
      .filter(Boolean)
      .join(" ");
    arrange();
    fit();
  };

  // ---- one segment

  const facts = (target) => timelineFacts.describe(model, target.rank, target.lane, target.n);
  const say = (text) => {
    part("status").textContent = text;
  };

  const listed = (rows) => {
    const list = element("dl", "", "facts");
    for (const [name, value] of rows) list.append(element("dt", name), element("dd", value));
    return list;
  };

  const tell = (target, px, py) => {
    const found = facts(target);
    const many = target.count > 1 ? `The longest of ${target.count.toLocaleString("en")} in this pixel` : "";
    tip.replaceChildren(element("strong", found.name), ...(many ? [element("em", many)] : []));
    tip.append(listed(found.rows));
    tip.hidden = false;
    const room = part("lanes").clientWidth;
    const left = plan.left + px + 14;
    tip.style.left = `${Math.max(0, left + tip.offsetWidth > room ? left - tip.offsetWidth - 28 : left)}px`;
    tip.style.top = `${py + 18}px`;
  };

  const hoverAt = (px, py) => {
    const found = model && picture.hit(px, py);
    if (!found) {
      if (hover) line.hover(null);
      return;
    }
    const isSame = hover && hover.lane === found.lane && hover.n === found.n;
    hover = found;
    if (!isSame) write();
    tell(found, px, py);
  };

  const pin = (target) => {
    pinned = target;
    const panel = part("details");
    panel.hidden = !target;
    if (target) {
      const found = facts(target);
      const near = element("button", "Zoom to it");
      const close = element("button", "Close");
      near.type = close.type = "button";
      near.addEventListener("click", () => zoomTo(target));
      close.addEventListener("click", () => {
        pin(null);
        canvas.focus();
      });
      const buttons = element("p", "", "timeline-tools");
      buttons.append(near, close);
      panel.replaceChildren(element("h3", found.name), listed(found.rows), buttons);
    }
    write();
  };

  const zoomTo = (target) => {
    const { start, end } = facts(target);
    const span = Math.max(LEAST, (end - start) * 3);
    const middle = (start + end) / 2;
    show(middle - span / 2, middle + span / 2);
  };

  // The keyboard's segment: hovered as by a pointer, told in words.
  const choose = (target) => {
    const { start, end } = facts(target);
    if (end < view.from || start > view.to) {
      const half = (view.to - view.from) / 2;
      show(start - half, start + half);
      draw();
    }
    hover = target;
    write();
    const row = plan.rows.find((r) => r.lane === target.lane);
    const px = Math.max(0, picture.x(start));
    if (row) tell(target, Math.min(px, plan.width), row.top + row.height - 14);
    const found = facts(target);
    const rows = found.rows.map(([name, value]) => `${name}: ${value}`).join("; ");
    say(`${found.name}; ${rows}`);
  };
  const step = (by) => {
    const now = hover ?? pinned;
    if (!now) {
      const row = plan.rows[0];
      const n = timelineData.after(row.lane.until, view.from);
      if (n < row.lane.start.length) choose({ ...row, n, count: 1 });
      return true;
    }
    const n = now.n + by;
    if (n < 0 || n >= now.lane.start.length) return false;
    choose({ ...now, n, count: 1 });
    return true;
  };
  const otherLane = (by) => {
    const now = hover ?? pinned;
    const place = now ? plan.rows.findIndex((row) => row.lane === now.lane) : by > 0 ? -1 : 0;
    const where = now ? Math.max(view.from, now.lane.start[now.n]) : view.from;
    for (let k = place + by; plan.rows[k]; k += by) {
      const { lane, rank } = plan.rows[k];
      const n = Math.min(timelineData.after(lane.until, where), lane.start.length - 1);
      if (n >= 0) {
        choose({ rank, lane, n, count: 1 });
        return;
      }
    }
  };

  // ---- a stretch of time

  const selected = () => {
    if (!chosen) return;
    const panel = part("details");
    const rows = model.ranks.flatMap((rank) => {
      const found = timelineFacts.shares(rank.lanes[0], chosen.from, chosen.to);
      const sum = found.reduce((total, [, ns]) => total + ns, 0);
      const text = found
        .map(([key, ns]) => `${(words[key] ?? words.other)[0]} ${percent(ns / sum)} (${time(ns)})`)
        .join(", ");
      return found.length ? [[model.ranks.length > 1 ? `rank ${rank.rank}` : "of it", text]] : [];
    });
    const near = element("button", "Zoom to it");
    near.type = "button";
    const { from, to } = chosen;
    near.addEventListener("click", () => {
      chosen = null;
      show(from, to);
    });
    pinned = null;
    const title = `${time(to - from)} selected, from ${at(from)}`;
    panel.replaceChildren(element("h3", title), listed(rows), near);
    panel.hidden = false;
    write();
  };

  const release = () => {
    chosen = null;
    hover = null;
    tip.hidden = true;
    if (pinned) pin(null);
    part("details").hidden = true;
    light(null);
  };

  // ---- classes that are lit

  const light = (classes) => {
    if (!model || (!classes && !model.lit)) {
      write();
      return;
    }
    model.lit = classes && new Set(classes);
    box.classList.toggle("lit", Boolean(classes));
    if (classes) {
      const told = model.ranks.map((rank) => {
        const lane = rank.lanes[0];
        let count = 0;
        let spent = 0;
        for (let n = 0; n < lane.start.length; n++) {
          if (!model.lit.has(lane.keys[lane.code[n]])) continue;
          count++;
          spent += lane.end[n] - lane.start[n];
        }
        const share = percent(spent / rank.window.duration_ns);
        const where = model.ranks.length > 1 ? ` on rank ${rank.rank}` : "";
        return `${count.toLocaleString("en")} ${count === 1 ? "stretch" : "stretches"}, ${time(spent)} (${share})${where}`;
      });
      const names = classes.map((key) => (words[key] ?? words.other)[0]).join(", ");
      say(`Lit up: ${names}. ${told.join("; ")}. Escape shows everything again.`);
    } else say("Everything is shown again.");
    for (const button of document.querySelectorAll(".timeline-figure .legend [data-show]")) {
      const isOn = classes?.length === 1 && classes[0] === button.dataset.show;
      button.setAttribute("aria-pressed", String(Boolean(isOn)));
    }
    arrange();
  };

  // ---- the table: the longest segments in view, as the picture has them

  const list = () => {
    const found = [];
    for (const rank of model.ranks) {
      for (const lane of rank.lanes) {
        for (let n = timelineData.after(lane.until, view.from); lane.start[n] < view.to; n++) {
          found.push({ rank, lane, n, length: lane.end[n] - lane.start[n] });
        }
      }
    }
    found.sort((a, b) => b.length - a.length);
    const shown = found.slice(0, LISTED).sort((a, b) => a.lane.start[a.n] - b.lane.start[b.n]);
    const table = box.closest("figure").querySelector("details table");
    table.caption.textContent = `${shown.length} longest of ${found.length.toLocaleString("en")} segments in view`;
    const rows = shown.map((target) => {
      const told = facts(target);
      const lane = clean(target.lane.label || target.lane.title);
      const cells = [at(told.start), time(told.end - told.start), `rank ${target.rank.rank}`, lane, told.word];
      const row = element("tr");
      const head = element("th", cells[0], "r");
      head.scope = "row";
      const name = element("td", "", "n");
      const button = element("button", told.name, "link");
      button.type = "button";
      button.addEventListener("click", () => {
        pin(target);
        zoomTo(target);
        box.scrollIntoView({ block: "start" });
        canvas.focus({ preventScroll: true });
      });
      name.append(button);
      row.append(head, element("td", cells[1], "r"), ...cells.slice(2).map((c) => element("td", c)), name);
      return row;
    });
    table.tBodies[0].replaceChildren(...rows);
    say(`The table lists the ${shown.length} longest segments in view.`);
  };

  const line = {
    show, draw, zoom, pan, fit, step, otherLane, hoverAt, selected, release, light, load, say, pin, list,
    view: () => view,
    whole: () => model?.whole ?? 1,
    nsAt: (px) => picture.ns(px),
    model: () => model,
    keys,
    sources,
    keysOf,
    current: () => hover ?? pinned,
    hover: (target) => {
      hover = target;
      tip.hidden = true;
      write();
    },
    click: (px, py) => pin(picture.hit(px, py)),
    pinCurrent: () => hover && pin(hover),
    zoomToCurrent: () => (hover ?? pinned) && zoomTo(hover ?? pinned),
    select: (from, to) => {
      const [low, high] = from < to ? [from, to] : [to, from];
      chosen = { from: Math.max(0, low), to: Math.min(model.whole, high) };
      write();
    },
    unfold: (rank) => {
      const found = model.ranks.find((r) => r.rank === rank);
      if (found?.folded) {
        found.folded = false;
        arrange();
      }
    },
    onChange: (call) => changed.push(call),
    scroll: () => {
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      box.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    },
  };

  // ---- starting

  const choices = () => {
    const holder = part("windows");
    const titles = { typical: "Typical", slowest: "Slowest", long: "Long", capture: "Capture" };
    for (const key of keys) {
      const [why] = key.split("-");
      const window = windowOf(sources.find((rank) => windowOf(rank, key)), key);
      const which = window.iteration === null ? "" : ` · iteration ${window.iteration}`;
      const label = element("label");
      const radio = element("input");
      Object.assign(radio, { type: "radio", name: "timeline-window", value: key });
      radio.addEventListener("change", () => load(key).catch(fail));
      label.append(radio, ` ${titles[why] ?? why}${which} · ${time(window.duration_ns)}`);
      holder.append(label);
    }
    holder.hidden = keys.length < 2;
  };

  const fail = (error) => {
    part("shell").hidden = true;
    const text = `The picture cannot be drawn: ${error.message}. The table below holds the longest segments.`;
    const said = box.querySelector(".fallback") ?? box.appendChild(element("p", "", "fallback"));
    said.textContent = text;
    root.dataset.timelinesReady = "failed";
  };

  const buttons = { in: () => zoom(0.5), out: () => zoom(2), fit, list, clear: release };
  box.closest("figure").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button && model) buttons[button.dataset.do]();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && model) release();
  });

  const start = async () => {
    if (!keys.length) throw new Error("it has no window");
    choices();
    await load(timelineLinks.wanted().window);
    box.querySelector(".fallback")?.remove();
    part("shell").hidden = false;
    for (const button of box.closest("figure").querySelectorAll("button[hidden]")) button.hidden = false;
    timelineInput.listen(canvas, part("map"), line);
    timelineLinks.listen(line);
    new ResizeObserver(arrange).observe(part("lanes"));
    arrange();
    draw();
    root.dataset.timelineAfter = performance.now().toFixed(0);
    root.dataset.timelinesReady = "1";
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", arrange);
    const paper = (width) => () => {
      printed = width;
      arrange();
    };
    window.addEventListener("beforeprint", paper(690));
    window.addEventListener("afterprint", paper(null));
  };
  start().catch(fail);
  return line;
})();
