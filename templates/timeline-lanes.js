// Lanes of a window: the rows of its tables by what they ran on, in the order of time.
const timelineLanes = (() => {
  const LEVELS = 6; // nested ranges and operators of a thread
  const FEW = 2; // of one that trains nothing
  const STREAMS = 10;
  const HEIGHTS = { parts: 28, path: 12, ops: 20, calls: 13, host: 13 };
  const COPIES = new Set(["h2d", "d2h", "memory"]);
  const TRAINING = { step: "step thread", autograd: "autograd thread" };
  const CALLS = new Set(["call", "wait"]);

  // `pick(i)` is the lane of row i, or -1; the result has the rows of each.
  const grouped = (rows, count, pick) => {
    const lanes = Array.from({ length: count }, () => []);
    for (let i = 0; i < rows; i++) {
      const lane = pick(i);
      if (lane >= 0) lanes[lane].push(i);
    }
    return lanes.map((found) => Uint32Array.from(found));
  };

  // `codes` are indices into `keys`, classes or kinds; `until` never falls.
  const lane = (table, kind, rows, codes, keys, shift, more) => {
    const count = rows.length;
    const start = new Float64Array(count);
    const end = new Float64Array(count);
    const until = new Float64Array(count);
    const code = new Uint16Array(count);
    let last = -Infinity;
    for (let n = 0; n < count; n++) {
      const i = rows[n];
      start[n] = table.start[i] + shift;
      end[n] = table.end[i] + shift;
      last = until[n] = Math.max(last, end[n]);
      code[n] = codes[i];
    }
    return { kind, rows, start, end, until, code, keys, height: HEIGHTS[kind], ...more };
  };

  const depths = (host, threads, isNested) => {
    const depth = new Int16Array(host.rows).fill(-1);
    const open = threads.map(() => []);
    const deepest = threads.map(() => 0);
    for (let i = 0; i < host.rows; i++) {
      if (!isNested(i)) continue;
      const thread = host.thread[i];
      const ends = open[thread];
      while (ends.length && ends[ends.length - 1] <= host.start[i]) ends.pop();
      depth[i] = Math.min(ends.length, 30_000);
      ends.push(host.end[i]);
      deepest[thread] = Math.max(deepest[thread], ends.length);
    }
    return { depth, deepest };
  };

  const streamTitle = (picture, ops, rows) => {
    const time = new Map();
    for (const i of rows) {
      const key = picture.classes[ops.class[i]];
      const what = COPIES.has(key) ? "copies" : key === "communication" ? key : "compute";
      time.set(what, (time.get(what) ?? 0) + ops.duration[i]);
    }
    const sorted = [...time].sort((a, b) => b[1] - a[1]);
    return sorted.length ? sorted[0][0] : "";
  };

  const streamLanes = (picture, ops, shift, queue) => {
    const every = grouped(ops.rows, picture.streams.length, (i) => ops.stream[i]);
    const busy = every.map((rows) => rows.reduce((sum, i) => sum + ops.duration[i], 0));
    const order = [...every.keys()].filter((s) => every[s].length);
    order.sort((a, b) => busy[b] - busy[a]);
    const make = (rows, label, what) =>
      lane(ops, "ops", rows, ops.class, picture.classes, shift, { label, what });
    const lanes = order.slice(0, STREAMS).map((s) => {
      const what = streamTitle(picture, ops, every[s]);
      return make(every[s], `${queue} ${picture.streams[s]} · ${what}`, what);
    });
    const rest = new Set(order.slice(STREAMS));
    if (rest.size) {
      const [rows] = grouped(ops.rows, 1, (i) => (rest.has(ops.stream[i]) ? 0 : -1));
      lanes.push(make(rows, `${rest.size} more ${queue}s`, "compute"));
    }
    const rank = { compute: 0, communication: 1, copies: 2 };
    return lanes.sort((a, b) => rank[a.what] - rank[b.what]);
  };

  const threadLanes = (picture, host, shift) => {
    const isCall = (i) => CALLS.has(picture.kinds[host.kind[i]]);
    const { depth, deepest } = depths(host, picture.threads, (i) => !isCall(i));
    const calls = grouped(host.rows, picture.threads.length, (i) => (isCall(i) ? host.thread[i] : -1));
    return picture.threads.flatMap((thread, t) => {
      const isLoader = thread.role === "loader";
      const title = TRAINING[thread.role] ?? `${isLoader ? "loader " : ""}${thread.name}`;
      const shown = Math.min(deepest[t], thread.role in TRAINING ? LEVELS : FEW);
      const rows = grouped(host.rows, shown, (i) =>
        host.thread[i] === t && depth[i] < shown ? depth[i] : -1,
      );
      const make = (found, kind, label) =>
        lane(host, kind, found, host.kind, picture.kinds, shift, { label, thread: t, title });
      const deeper = deepest[t] > shown ? ` (${shown} of ${deepest[t]})` : "";
      const lanes = rows.map((found, level) => make(found, "host", level ? "" : title + deeper));
      if (!calls[t].length) return lanes;
      return [...lanes, make(calls[t], "calls", lanes.length ? "its calls" : `${title}, calls`)];
    });
  };

  // Where the critical path runs on a rank, of stretches [{part, start_ns, end_ns}] on the clock of
  // its input; no lane where none of it is in the window.
  const pathLanes = (stretches, window, shift) => {
    const within = (ns) => Math.min(Math.max(ns - window.start_ns, 0), window.duration_ns);
    const found = stretches
      .map(({ part, start_ns, end_ns }) => ({ part, from: within(start_ns), to: within(end_ns) }))
      .filter(({ from, to }) => to > from)
      .sort((a, b) => a.from - b.from);
    if (!found.length) return [];
    const keys = [...new Set(found.map(({ part }) => part))];
    const table = { start: found.map(({ from }) => from), end: found.map(({ to }) => to) };
    const codes = found.map(({ part }) => keys.indexOf(part));
    const rows = Uint32Array.from(found.keys());
    return [lane(table, "path", rows, codes, keys, shift, { label: "critical path" })];
  };

  // All lanes of one rank; `shift` puts its window onto the axis of the view, ns.
  const ofRank = (picture, data, shift, window, stretches, queue) => {
    const all = Uint32Array.from({ length: data.parts.rows }, (_, i) => i);
    const parts = lane(data.parts, "parts", all, data.parts.class, picture.classes, shift, {
      label: "all of its time",
    });
    return [
      parts,
      ...pathLanes(stretches, window, shift),
      ...streamLanes(picture, data.ops, shift, queue),
      ...threadLanes(picture, data.host, shift),
    ];
  };

  return { ofRank };
})();
