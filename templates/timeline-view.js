// The picture of a model: where its lanes lie, the exact pixels, and what is written over them.
const timelineView = (() => {
  const { density, paint, palette, pixel, mixed } = timelineDraw;
  const { inkOn } = shared;
  const { time, clean } = timelineFacts;
  const RULER = 22;
  const GAP = 3;
  const TITLE = 15; // a lane's label above it, where there is no room beside it
  const HEAD = 26; // of a rank
  const NARROW = 640;
  const LABELS = 176;
  const NAMED = 44; // pixels from which a segment shows its name
  const SAMPLE = "ncclDevKernel_AllReduce_Sum_f32, aten::linear";
  const MOST_NAMES = 240;
  const MOST_LINKS = 150;
  const PAPER = [
    [27, 31, 36],
    [255, 255, 255],
  ];

  const numbers = (css) => css.match(/[\d.]+/g).slice(0, 3).map(Number);
  const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;

  // Rows of the lanes that are shown, from top to bottom, in CSS pixels.
  const layout = (model, width) => {
    const narrow = width < NARROW;
    const left = narrow ? 0 : LABELS;
    const rows = [];
    const heads = [];
    let y = RULER;
    for (const rank of model.ranks) {
      const isBeside = rank.folded && !narrow; // its name stands beside its first lane
      if (model.ranks.length > 1) {
        heads.push({ rank, top: y + (isBeside ? 2 : 0) });
        if (!isBeside) y += HEAD;
      }
      for (const lane of rank.lanes) {
        const isPath = lane.kind === "path";
        const isMain = lane.kind === "parts" || isPath || lane.what === "communication";
        if (isPath && !model.path) continue;
        if (rank.folded && !isMain) continue;
        if (narrow && lane.label) y += TITLE;
        const label = isBeside && lane.kind === "parts" ? "" : lane.label;
        const name = y - (narrow ? TITLE : 0);
        rows.push({ rank, lane, top: y, height: lane.height, label, name });
        y += lane.height + (lane.kind === "host" || lane.kind === "calls" ? 1 : GAP);
      }
      y += 2 * GAP;
    }
    return { narrow, left, width: Math.max(50, width - left), rows, heads, height: y };
  };

  const nice = (span, count) => {
    const rough = span / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((f) => f * power).find((f) => f >= rough);
  };

  const make = (base, over) => {
    const pen = base.getContext("2d", { willReadFrequently: true });
    const top = over.getContext("2d");
    let image = null;
    let pixels = null;
    let sums = new Float64Array(0);
    let edges = new Uint8Array(0);
    let ink = PAPER;
    let wide = [];
    let place = null; // {layout, from, step, ratio}: what is drawn

    const theme = (isPrinted) => {
      const style = getComputedStyle(base);
      ink = isPrinted ? PAPER : [numbers(style.color), numbers(style.backgroundColor)];
    };

    const order = (model, lane) => {
      const keys = Object.keys(model.words);
      return [...lane.keys.keys()].sort(
        (a, b) => keys.indexOf(lane.keys[a]) - keys.indexOf(lane.keys[b]),
      );
    };

    const resize = (columns, lines) => {
      if (image && image.width === columns && image.height === lines) return;
      base.width = over.width = columns;
      base.height = over.height = lines;
      image = pen.createImageData(columns, lines);
      pixels = new Uint32Array(image.data.buffer);
      edges = new Uint8Array(columns);
    };

    // One lane into pixels that are `columns` wide.
    const drawLane = (model, lane, at, from, step, columns, origin, least) => {
      const codes = lane.keys.length * (lane.lit ? 2 : 1); // each lit, and each dimmed
      if (sums.length < columns * codes) sums = new Float64Array(columns * codes);
      const back = mixed(ink[1], ink[0], 0.07);
      const colour = (key) => (model.words[key] ?? model.words.other)[1];
      const found = density(lane, from, step, columns, codes, sums, edges, least);
      const colours = palette(lane.keys, colour, back, true);
      lane.order ??= order(model, lane);
      let stack = lane.order;
      if (lane.lit) {
        colours.push(...palette(lane.keys, colour, back, false));
        stack = stack.flatMap((c) => [c, c + lane.keys.length]);
      }
      paint(at.pixels, at, lane, sums, edges, colours, stack, columns, origin, pixel(back));
      return found;
    };

    const draw = (model, plan, view, ratio) => {
      const columns = Math.max(1, Math.round(plan.width * ratio));
      resize(columns, Math.round(plan.height * ratio));
      pixels.fill(0);
      const step = (view.to - view.from) / columns;
      const origin = Math.round(view.from / step);
      const from = origin * step;
      wide = [];
      for (const row of plan.rows) {
        const [y, end] = [row.top, row.top + row.height].map((v) => Math.round(v * ratio));
        const at = { pixels, width: columns, top: y, height: end - y };
        const found = drawLane(model, row.lane, at, from, step, columns, origin, NAMED * ratio);
        for (const n of found) wide.push([row, n]);
      }
      pen.putImageData(image, 0, 0);
      place = { plan, from, step, ratio, columns };
      const main = plan.rows.filter((row) => row.lane.kind === "parts");
      base.dataset.partitions = main
        .map((row) => `${row.rank.rank}:${Math.round(row.top * ratio)}`)
        .join(" ");
    };

    const x = (ns) => (ns - place.from) / (place.step * place.ratio);
    const ns = (px) => place.from + px * place.step * place.ratio;

    const ruler = (plan) => {
      const span = place.step * place.columns;
      const step = nice(span, Math.max(2, plan.width / 110));
      const digits = Math.min(6, Math.max(0, 6 - Math.floor(Math.log10(step))));
      top.textBaseline = "middle";
      for (let k = Math.ceil(place.from / step); k * step <= place.from + span; k++) {
        const left = Math.round(x(k * step)) + 0.5;
        top.fillStyle = css(ink[0], 0.16);
        top.fillRect(left, RULER - 6, 1, plan.height);
        const text = `${(k * step / 1e6).toFixed(digits)} ms`;
        const room = plan.width - top.measureText(text).width - 4;
        if (left > room + 40) continue;
        top.fillStyle = css(ink[0], 0.8);
        top.fillText(text, Math.min(left + 3, room), RULER / 2);
      }
    };

    const names = (model) => {
      top.textBaseline = "middle";
      const letter = (1.08 * top.measureText(SAMPLE).width) / SAMPLE.length;
      for (const [row, n] of wide.slice(0, MOST_NAMES)) {
        const { lane, rank } = row;
        const left = Math.max(0, x(lane.start[n]));
        const room = Math.floor((Math.min(row.right, x(lane.end[n])) - left - 6) / letter);
        if (room < 4) continue;
        const key = lane.keys[lane.code[n]];
        const word = model.words[key] ?? model.words.other;
        const isLit = !lane.lit || lane.lit[n];
        const i = lane.rows[n];
        const text =
          lane.kind === "parts" || lane.kind === "path"
            ? word[0]
            : clean(rank.picture.names[rank.data[lane.kind === "ops" ? "ops" : "host"].name[i]]);
        top.fillStyle = isLit ? inkOn(word[1]) : css(ink[0], 0.6);
        top.fillText(
          text.length > room ? `${text.slice(0, room - 1)}…` : text,
          left + 4,
          row.top + row.height / 2 + 0.5,
          room * letter,
        );
      }
    };

    // What the lanes of the rank hold during a stretch of the critical path.
    const beneath = (row, left, width) => {
      const from = row.top + row.height;
      const last = place.plan.rows.filter((r) => r.rank === row.rank).at(-1);
      top.fillStyle = css(ink[0], 0.14);
      top.fillRect(left, from, width, last.top + last.height - from);
    };

    // A frame around a segment, never thinner than can be seen.
    const frame = (target, isPinned) => {
      const row = place.plan.rows.find((r) => r.lane === target.lane);
      if (!row) return null;
      const left = x(row.lane.start[target.n]);
      const width = Math.max(3, x(row.lane.end[target.n]) - left);
      top.lineWidth = isPinned ? 2.5 : 1.5;
      top.strokeStyle = css(ink[0]);
      top.strokeRect(left - 1, row.top - 1, width + 2, row.height + 2);
      if (row.lane.kind === "path") beneath(row, left, width);
      return { row, left, right: left + width };
    };

    const line = (x1, y1, x2, y2, alpha) => {
      top.strokeStyle = css(ink[0], alpha);
      top.lineWidth = 1.5;
      top.beginPath();
      top.moveTo(x1, y1);
      top.lineTo(x2, y2);
      top.stroke();
    };

    // From the call that launched an operation to it, and from a collective to the other ranks'.
    const links = (model, target) => {
      if (target.lane.kind !== "ops") return;
      const { rank, lane, n } = target;
      const row = place.plan.rows.find((r) => r.lane === lane);
      const i = lane.rows[n];
      const launch = timelineFacts.launchOf(rank, i);
      const thread = rank.data.ops.thread[i] - 1;
      const calls = place.plan.rows.find(
        (r) => r.rank === rank && r.lane.kind === "calls" && r.lane.thread === thread,
      );
      if (row && calls && launch !== null) {
        const [x1, y1] = [x(launch + rank.shift), calls.top];
        line(x1, y1, x(lane.start[n]), row.top + row.height, 0.9);
        top.fillStyle = css(ink[0]);
        top.fillRect(x1 - 2, y1, 4, calls.height);
      }
      linked(timelineFacts.together(model, rank.data.ops.shared[i]), 0.9);
    };

    const rowOf = (member) => {
      const { stream } = member.rank.data.ops;
      return place.plan.rows.find(
        (r) =>
          r.rank === member.rank &&
          r.lane.kind === "ops" &&
          r.lane.rows.length &&
          stream[r.lane.rows[0]] === stream[member.i],
      );
    };

    const linked = (members, alpha) => {
      const places = members.map((m) => [m, rowOf(m)]).filter(([, row]) => row);
      places.sort((a, b) => a[1].top - b[1].top);
      for (let k = 1; k < places.length; k++) {
        const [[m1, r1], [m2, r2]] = [places[k - 1], places[k]];
        line(x(m1.start), r1.top + r1.height, x(m2.start), r2.top, alpha);
      }
      if (alpha > 0.5 && places.length > 1) {
        for (const [m, row] of places) {
          top.strokeRect(x(m.start), row.top, Math.max(2, x(m.end) - x(m.start)), row.height);
        }
      }
    };

    const everyLink = (model) => {
      if (model.ranks.length < 2) return;
      timelineFacts.together(model, 0);
      const inView = [...model.shared.values()].filter(
        (members) =>
          members.length > 1 &&
          members.some((m) => x(m.end) > 0 && x(m.start) < place.plan.width),
      );
      if (inView.length <= MOST_LINKS) for (const members of inView) linked(members, 0.35);
    };

    // The critical path from rank to rank.
    const jumps = (model) => {
      const rows = new Map(place.plan.rows.map((row) => [row.lane, row]));
      const inView = model.jumps.filter(
        ([a, b]) => rows.has(a.lane) && x(b.lane.start[b.n]) > 0 && x(a.lane.end[a.n]) < place.plan.width,
      );
      if (inView.length > MOST_LINKS) return;
      for (const [a, b] of inView) {
        const [r1, r2] = [rows.get(a.lane), rows.get(b.lane)];
        const [from, to] = r1.top < r2.top ? [r1.top + r1.height, r2.top] : [r1.top, r2.top + r2.height];
        line(x(a.lane.end[a.n]), from, x(b.lane.start[b.n]), to, 0.9);
      }
    };

    // Marks above what is lit, so that even the shortest is found.
    const marks = (model, plan) => {
      for (const row of plan.rows) {
        const { lane } = row;
        if (lane.kind !== "parts") continue;
        top.fillStyle = css(ink[0]);
        let drawn = -1;
        const first = timelineData.after(lane.until, place.from);
        for (let n = first; n < lane.start.length; n++) {
          const left = x(lane.start[n]);
          if (left > plan.width) break;
          const right = Math.max(left + 2, x(lane.end[n]));
          if (right <= drawn || !lane.lit[n]) continue;
          top.fillRect(Math.max(left, drawn), row.top - 3, right - Math.max(left, drawn), 3);
          drawn = right;
        }
      }
    };

    // Everything but the lanes: cheap enough for every move of the pointer.
    const write = (model, { hover, pinned, chosen }) => {
      if (!place) return;
      const { plan, ratio } = place;
      top.setTransform(ratio, 0, 0, ratio, 0, 0);
      top.clearRect(0, 0, plan.width, plan.height);
      top.font = "11px system-ui, sans-serif";
      for (const row of plan.rows) row.right = plan.width;
      ruler(plan);
      everyLink(model);
      jumps(model);
      names(model);
      if (model.lit) marks(model, plan);
      for (const target of [pinned, hover]) {
        if (!target) continue;
        frame(target, target === pinned);
        links(model, target);
      }
      if (chosen) {
        const [left, right] = [x(chosen.from), x(chosen.to)];
        top.fillStyle = css(ink[0], 0.14);
        top.fillRect(left, 0, right - left, plan.height);
        line(left, 0, left, plan.height, 0.9);
        line(right, 0, right, plan.height, 0.9);
      }
    };

    // The segment at a point, the longest of those in its pixel; null where there is none.
    const hit = (px, py) => {
      const row = place?.plan.rows.find((r) => py >= r.top && py < r.top + r.height);
      if (!row || px < 0 || px > place.plan.width) return null;
      const { lane, rank } = row;
      const find = (slack) => {
        const [from, to] = [ns(px - slack), ns(px + slack)];
        let n = -1;
        let count = 0;
        for (let k = timelineData.after(lane.until, from); lane.start[k] < to; k++) {
          if (lane.end[k] < from) continue;
          count++;
          const length = lane.end[k] - lane.start[k];
          if (n < 0 || length > lane.end[n] - lane.start[n]) n = k;
        }
        return { rank, lane, n, count };
      };
      const exact = find(0.5);
      const found = exact.n >= 0 ? exact : find(2);
      return found.n >= 0 ? found : null;
    };

    // The whole window in a strip, one line of lanes a rank.
    const overview = (canvas, model, width, height, ratio) => {
      const columns = Math.max(1, Math.round(width * ratio));
      const lines = Math.max(model.ranks.length, Math.round(height * ratio));
      canvas.width = columns;
      canvas.height = lines;
      const strip = canvas.getContext("2d", { willReadFrequently: true });
      const small = strip.createImageData(columns, lines);
      const target = new Uint32Array(small.data.buffer);
      if (edges.length < columns) edges = new Uint8Array(columns);
      model.ranks.forEach((rank, k) => {
        const y = Math.round((k * lines) / model.ranks.length);
        const end = Math.round(((k + 1) * lines) / model.ranks.length);
        const at = { pixels: target, width: columns, top: y, height: end - y };
        const step = model.whole / columns;
        drawLane(model, rank.lanes[0], at, 0, step, columns, 0, Infinity);
      });
      strip.putImageData(small, 0, 0);
    };

    return { theme, draw, write, hit, overview, x, ns };
  };

  return { layout, make, RULER };
})();
