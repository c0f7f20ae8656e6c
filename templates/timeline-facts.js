// What is known of a segment, in words; the tooltip, the pinned panel and the table say the same.
const timelineFacts = (() => {
  const { after } = timelineData;
  const { clean } = shared;

  const time = (ns) => {
    const size = Math.abs(ns);
    if (size === 0) return "0";
    if (size >= 1e10) return `${+(ns / 1e9).toPrecision(4)} s`;
    if (size >= 1e6) return `${+(ns / 1e6).toPrecision(4)} ms`;
    return size >= 1e3 ? `${+(ns / 1e3).toPrecision(4)} µs` : `${Math.round(ns)} ns`;
  };
  const at = (ns) => `${(ns / 1e6).toFixed(4)} ms`;
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const size = (bytes) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    const n = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
    return `${+(bytes / 1000 ** n).toPrecision(3)} ${units[n]}`;
  };
  const isIdle = (key) => key.startsWith("idle_");

  const opName = (rank, i) => clean(rank.picture.names[rank.data.ops.name[i]]);
  const launchOf = (rank, i) => {
    const back = rank.data.ops.launch[i];
    return back ? rank.data.ops.start[i] - (back - 1) : null; // in ns after the window's start
  };
  const threadOf = (rank, i) => {
    const thread = rank.data.ops.thread[i];
    if (!thread) return "";
    const { role, name } = rank.picture.threads[thread - 1];
    return role === "other" ? `thread ${clean(name)}` : `the ${role} thread`;
  };

  // The operations around an idle stretch: the last to end before it, the first to start after it.
  const neighbours = (rank, from, to) => {
    const { ops } = rank.data;
    if (!rank.byEnd) {
      rank.byEnd = Uint32Array.from(ops.end.keys()).sort((a, b) => ops.end[a] - ops.end[b]);
      rank.ends = Float64Array.from(rank.byEnd, (i) => ops.end[i]);
    }
    const next = after(ops.start, to - 1);
    const last = after(rank.ends, from) - 1;
    return {
      before: last >= 0 ? rank.byEnd[last] : null,
      next: next < ops.rows ? next : null,
    };
  };

  const idleFacts = (rank, i, word) => {
    const { parts } = rank.data;
    let first = i;
    let last = i;
    const idle = (n) => isIdle(rank.picture.classes[parts.class[n]]);
    while (first > 0 && idle(first - 1)) first--;
    while (last < parts.rows - 1 && idle(last + 1)) last++;
    const [from, to] = [parts.start[first], parts.end[last]];
    const { before, next } = neighbours(rank, from, to);
    const rows = [["why", word[2]]];
    if (last > first) rows.push(["part of", `an idle stretch of ${time(to - from)}`]);
    rows.push(["operation before", before === null ? "none in this window" : opName(rank, before)]);
    rows.push(["ended by", next === null ? "none in this window" : opName(rank, next)]);
    if (next !== null) {
      const launch = launchOf(rank, next);
      const where = threadOf(rank, next);
      rows.push([
        "which was launched",
        launch === null
          ? "by a call that the trace does not have"
          : `${time(rank.data.ops.start[next] - launch)} before it began` +
            (where ? `, by ${where}` : "") +
            (launch >= from
              ? `, ${time(launch - from)} after the GPU ran out of work`
              : ", before the GPU ran out of work"),
      ]);
    }
    return rows;
  };

  const partFacts = (rank, i, word, key) => {
    if (isIdle(key)) return idleFacts(rank, i, word);
    const { parts, ops } = rank.data;
    const rows = [["meaning", word[2]]];
    const first = after(ops.start, parts.end[i] - 1) - 1;
    for (let n = first; n >= Math.max(0, first - 50); n--) {
      if (ops.end[n] > parts.start[i] && rank.picture.classes[ops.class[n]] === key) {
        rows.push(["last operation in it", opName(rank, n)]);
        break;
      }
    }
    return rows;
  };

  const opFacts = (rank, i) => {
    const { ops } = rank.data;
    const rows = [[rank.queue, String(rank.picture.streams[ops.stream[i]])]];
    const launch = launchOf(rank, i);
    const where = threadOf(rank, i);
    rows.push([
      "launched",
      launch === null
        ? "by a call that the trace does not have"
        : `${time(ops.launch[i] - 1)} before it began${where ? `, by ${where}` : ""}`,
    ]);
    if (ops.bytes[i]) {
      const rate = ops.duration[i] ? `, ${+(ops.bytes[i] / ops.duration[i]).toPrecision(3)} GB/s` : "";
      rows.push(["size", size(ops.bytes[i]) + rate]);
    }
    return rows;
  };

  // {name, key, word, start, end, rows}: of segment n of a lane; times on the axis of the view.
  const describe = (model, rank, lane, n) => {
    const i = lane.rows[n];
    const key = lane.keys[lane.code[n]];
    const word = model.words[key] ?? model.words.other;
    const { kind } = lane;
    const found = { key, word: word[0], start: lane.start[n], end: lane.end[n], rows: [] };
    if (kind === "path") {
      found.name = `Critical path: ${word[0]}`;
      found.rows = [["meaning", word[2]]];
    } else if (kind === "parts") {
      found.name = word[0];
      found.rows = partFacts(rank, i, word, key);
    } else if (kind === "ops") {
      found.name = opName(rank, i);
      found.rows = [...opFacts(rank, i), ...sharedFacts(model, rank, i)];
    } else {
      found.name = clean(rank.picture.names[rank.data.host.name[i]]);
      found.rows = [["on", lane.title]];
      if (key === "wait") found.rows.push(["meaning", word[2]]);
    }
    const length = found.end - found.start;
    found.rows = [
      ["what", found.word],
      ["duration", `${time(length)} (${percent(length / model.whole)} of the picture)`],
      ["starts at", at(found.start)],
      ...(model.ranks.length > 1 ? [["rank", String(rank.rank)]] : []),
      ...found.rows,
    ];
    return found;
  };

  // All ranks' parts of one collective, the first to arrive first.
  const together = (model, shared) => {
    if (!model.shared) {
      model.shared = new Map();
      for (const rank of model.ranks) {
        const { ops } = rank.data;
        for (let i = 0; i < ops.rows; i++) {
          if (!ops.shared[i]) continue;
          const members = model.shared.get(ops.shared[i]) ?? [];
          const [start, end] = [ops.start[i] + rank.shift, ops.end[i] + rank.shift];
          members.push({ rank, i, start, end });
          model.shared.set(ops.shared[i], members);
        }
      }
      // All end at once, so that without a common clock the shortest part is the last to arrive.
      const order = model.oneClock ? (m) => m.start : (m) => m.start - m.end;
      for (const members of model.shared.values()) members.sort((a, b) => order(a) - order(b));
    }
    return model.shared.get(shared) ?? [];
  };

  const lateness = (model, members) => {
    const [first, last] = [members[0], members[members.length - 1]];
    const late = model.oneClock
      ? last.start - first.start
      : first.end - first.start - (last.end - last.start);
    return { last: last.rank, late: Math.max(0, late) };
  };

  const sharedFacts = (model, rank, i) => {
    const shared = rank.data.ops.shared[i];
    const members = shared ? together(model, shared) : [];
    if (members.length < 2) return [];
    const { last, late } = lateness(model, members);
    const ranks = members.map((m) => m.rank.rank).sort((a, b) => a - b);
    return [
      ["collective of ranks", ranks.join(", ")],
      ["last to arrive", `rank ${last.rank}, ${time(late)} after the first`],
    ];
  };

  // Who is late how often, over all collectives that ranks share here; "" where there are none.
  const stragglers = (model) => {
    together(model, 0);
    const lates = new Map();
    let count = 0;
    for (const members of model.shared.values()) {
      if (members.length < 2) continue;
      count++;
      const { last, late } = lateness(model, members);
      lates.set(last.rank, [...(lates.get(last.rank) ?? []), late]);
    }
    if (!count) return "";
    const [[rank, late]] = [...lates].sort((a, b) => b[1].length - a[1].length);
    late.sort((a, b) => a - b);
    return (
      `Rank ${rank} arrives last at ${late.length} of ${count} collectives that the ranks share, ` +
      `by ${time(late[late.length >> 1])} in the median.`
    );
  };

  // Share of each class in a stretch of the partition of a rank, largest first.
  const shares = (lane, from, to) => {
    const spent = new Map();
    for (let n = after(lane.until, from); n < lane.start.length && lane.start[n] < to; n++) {
      const part = Math.min(lane.end[n], to) - Math.max(lane.start[n], from);
      const key = lane.keys[lane.code[n]];
      spent.set(key, (spent.get(key) ?? 0) + part);
    }
    return [...spent].filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  };

  return { clean, time, at, percent, describe, launchOf, together, stragglers, shares, isIdle };
})();
