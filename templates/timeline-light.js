// What of a timeline is lit up while the rest is dimmed: classes, or what belongs to an owner.
const timelineLight = (() => {
  const { after } = timelineData;
  const { time, percent } = timelineFacts;
  const MOST = 599; // characters by which a name in the tree of owners is known for sure
  const MODULE = /^nn\.Module: /;

  // {id, keys, title, of(rank) → test(lane, n)} of classes.
  const classes = (keys) => {
    const wanted = new Set(keys);
    const title = (words) => keys.map((key) => (words[key] ?? words.other)[0]).join(", ");
    const test = (lane, n) => wanted.has(lane.keys[lane.code[n]]);
    return { id: keys.join(), keys, title, of: () => test };
  };

  const nameKey = (name) => (name.length > MOST ? name.slice(0, MOST) : name);

  // The innermost operator at instants of threads, "" for none; `at` is [{thread, ns, n}].
  const operatorsAt = (rank, names, at) => {
    const { host } = rank.data;
    const spans = new Map();
    for (let i = 0; i < host.rows; i++) {
      if (!names.has(nameKey(rank.picture.names[host.name[i]]))) continue;
      const found = spans.get(host.thread[i]) ?? spans.set(host.thread[i], []).get(host.thread[i]);
      found.push(i); // in the order of their start, outer ones first
    }
    const found = new Map();
    const next = new Map();
    const open = new Map();
    for (const { thread, ns, n } of at.sort((a, b) => a.ns - b.ns)) {
      const rows = spans.get(thread) ?? [];
      const stack = open.get(thread) ?? open.set(thread, []).get(thread);
      let k = next.get(thread) ?? 0;
      while (k < rows.length && host.start[rows[k]] <= ns) stack.push(rows[k++]);
      next.set(thread, k);
      while (stack.length && host.end[stack.at(-1)] < ns) stack.pop();
      found.set(n, stack.length ? nameKey(rank.picture.names[host.name[stack.at(-1)]]) : "");
    }
    return found;
  };

  // The same of an owner of the tree: {name, number (of its rank), names (that it has itself), pairs
  // (of the name of a kernel or call and of the operator around it), operators (all there are)}.
  const owner = ({ id, name, number, names, pairs, operators }) => {
    const own = new Set(names.map(nameKey));
    const wanted = new Map();
    for (const [leaf, operator] of pairs) {
      const key = nameKey(leaf);
      (wanted.get(key) ?? wanted.set(key, new Set()).get(key)).add(nameKey(operator));
    }
    const known = new Set(operators.map(nameKey));
    const of = (rank) => {
      if (rank.rank !== number) return () => false;
      const { ops, host } = rank.data;
      const textOf = (table, i) => nameKey(rank.picture.names[table.name[i]]);
      const isCall = (i) => ["call", "wait"].includes(rank.picture.kinds[host.kind[i]]);
      const asked = (table, thread, instant, isAsked) => {
        const at = [];
        for (let n = 0; n < table.rows; n++) {
          if (isAsked(n) && wanted.has(textOf(table, n))) at.push({ thread: thread(n), ns: instant(n), n });
        }
        const around = operatorsAt(rank, known, at);
        return new Set([...around].filter(([n, operator]) => {
          if (wanted.get(textOf(table, n)).has(operator)) return true;
          // What was launched before the picture begins is known by its name only.
          return !operator && (rank.window.left_out > 0 || instant(n) < 0);
        }).map(([n]) => n));
      };
      const launched = (n) => timelineFacts.launchOf(rank, n) ?? -1;
      const run = asked(ops, (n) => ops.thread[n] - 1, launched, () => true);
      const called = asked(host, (n) => host.thread[n], (n) => host.start[n], isCall);
      const [parts] = rank.lanes;
      const stretches = new Set();
      for (const i of run) {
        const key = rank.picture.classes[ops.class[i]];
        const [from, to] = [ops.start[i] + rank.shift, ops.end[i] + rank.shift];
        for (let n = after(parts.until, from); parts.start[n] < to; n++) {
          if (parts.keys[parts.code[n]] === key) stretches.add(n);
        }
      }
      return (lane, n) => {
        const i = lane.rows[n];
        if (lane.kind === "path") return false; // it is not known whose
        if (lane.kind === "parts") return stretches.has(n);
        if (lane.kind === "ops") return run.has(i);
        if (lane.kind === "calls") return called.has(i);
        return own.has(textOf(host, i).replace(MODULE, ""));
      };
    };
    return { id, number, title: () => name, of };
  };

  // Marks the segments of all lanes.
  const shade = (model) => {
    for (const rank of model.ranks) {
      const test = model.lit?.of(rank);
      for (const lane of rank.lanes) {
        lane.lit = test ? Uint8Array.from(lane.code, (_, n) => test(lane, n)) : null;
        lane.shades = test ? lane.code.map((c, n) => c + (lane.lit[n] ? 0 : lane.keys.length)) : null;
      }
    }
  };

  const counted = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

  const litIn = (lanes) => {
    let count = 0;
    let spent = 0;
    for (const lane of lanes) {
      for (let n = 0; n < lane.lit.length; n++) {
        if (!lane.lit[n]) continue;
        count++;
        spent += lane.end[n] - lane.start[n];
      }
    }
    return { count, spent };
  };

  const ofClasses = (rank, keys) => {
    const inParts = keys.some((key) => rank.lanes[0].keys.includes(key));
    const { count, spent } = litIn(inParts ? rank.lanes.slice(0, 1) : rank.lanes);
    if (!count) return "none in this iteration";
    const many = counted(count, "stretch", "stretches");
    // Rows of the host lie in each other: their sum is no share of anything.
    return inParts ? `${many}, ${time(spent)} (${percent(spent / rank.window.duration_ns)})` : many;
  };

  const ofOwner = (rank) => {
    const run = litIn(rank.lanes.filter((lane) => lane.kind === "ops"));
    const host = litIn(rank.lanes.filter((lane) => lane.kind === "host" || lane.kind === "calls"));
    const found = [];
    if (run.count) found.push(`${counted(run.count, "operation", "operations")}, ${time(run.spent)}`);
    if (host.count) found.push(counted(host.count, "row of the host", "rows of the host"));
    return found.join(" and ") || "none of it is in this iteration";
  };

  // What is lit up, in words.
  const told = (model) => {
    const { keys, number, title } = model.lit;
    const ranks = model.ranks.filter((rank) => keys || rank.rank === number);
    const words = ranks.map((rank) => {
      const where = model.ranks.length > 1 ? ` on rank ${rank.rank}` : "";
      return `${keys ? ofClasses(rank, keys) : ofOwner(rank)}${where}`;
    });
    return `Lit up: ${title(model.words)}. ${words.join("; ")}. Escape shows all again.`;
  };

  return { classes, owner, shade, told };
})();
