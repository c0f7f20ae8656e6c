"use strict";

// The packed columns of the embedded report, unpacked and checked: a file may hold anything.
const timelineData = (() => {
  const MOST_ROWS = 2_000_000;
  const MOST_BYTES = 6;
  const COLUMNS = {
    ops: ["start", "duration", "stream", "class", "name", "launch", "thread", "bytes", "shared"],
    parts: ["duration", "class"],
    host: ["start", "duration", "thread", "kind", "name"],
  };

  const bytesOf = (base64) => {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  };

  // Exactly `size` bytes; whatever would be more is not unpacked.
  const inflate = async (bytes, size) => {
    const found = new Uint8Array(size);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const reader = stream.getReader();
    let at = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > size) {
        reader.cancel().catch(() => {});
        throw new Error("a table is larger than it says");
      }
      found.set(value, at);
      at += value.length;
    }
    if (at !== size) throw new Error("a table is smaller than it says");
    return found;
  };

  const columnsOf = async (table, names) => {
    const { rows, widths } = table;
    const order = [...names].sort(); // as they are packed
    const fits = Object.keys(widths).sort().join() === order.join() && Number.isInteger(rows) && rows >= 0;
    const sane = names.every((n) => Number.isInteger(widths[n]) && widths[n] >= 1);
    if (!fits || !sane || rows > MOST_ROWS || names.some((n) => widths[n] > MOST_BYTES)) {
      throw new Error("a table has impossible sizes");
    }
    const size = rows * names.reduce((sum, n) => sum + widths[n], 0);
    const bytes = await inflate(bytesOf(table.data), size);
    const columns = { rows };
    let at = 0;
    for (const name of order) {
      const column = new Float64Array(rows); // exact up to 2 ** 53, six bytes are 2 ** 48
      for (let plane = 0, unit = 1; plane < widths[name]; plane++, unit *= 256) {
        for (let i = 0; i < rows; i++) column[i] += bytes[at + i] * unit;
        at += rows;
      }
      columns[name] = column;
    }
    return columns;
  };

  const below = (column, limit) => {
    for (const value of column) if (value >= limit) throw new Error("an index is out of its list");
  };

  // Adds `end`; starts count from the window's start afterwards.
  const placed = (columns, duration) => {
    const start = columns.start ?? new Float64Array(columns.rows);
    const end = new Float64Array(columns.rows);
    let at = 0;
    for (let i = 0; i < columns.rows; i++) {
      if (columns.start) start[i] = at += start[i];
      else start[i] = i ? end[i - 1] : 0;
      end[i] = start[i] + columns.duration[i];
      if (end[i] > duration) throw new Error("a row leaves its window");
    }
    return { ...columns, start, end };
  };

  // {ops, parts, host} of a window, times in ns after its start.
  const read = async (picture, window) => {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser is too old to unpack it");
    }
    const duration = window.duration_ns;
    const [ops, parts, host] = await Promise.all(
      ["ops", "parts", "host"].map((name) => columnsOf(window[name], COLUMNS[name])),
    );
    const limits = [
      [ops.stream, picture.streams.length],
      [ops.class, picture.classes.length],
      [ops.name, picture.names.length],
      [ops.thread, picture.threads.length + 1],
      [parts.class, picture.classes.length],
      [host.thread, picture.threads.length],
      [host.kind, picture.kinds.length],
      [host.name, picture.names.length],
    ];
    for (const [column, limit] of limits) below(column, limit);
    const found = {
      ops: placed(ops, duration),
      parts: placed(parts, duration),
      host: placed(host, duration),
    };
    if ((found.parts.end[parts.rows - 1] ?? 0) !== duration) {
      throw new Error("the partition does not tile its window");
    }
    return found;
  };

  // The first index whose value is above `limit`; `values` never fall.
  const after = (values, limit) => {
    let low = 0;
    let high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  return { read, after };
})();
