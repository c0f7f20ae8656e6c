// The windows of the embedded report, unpacked and checked: a file may hold anything.
const timelineData = (() => {
  const COLUMNS = {
    ops: ["start", "duration", "stream", "class", "name", "launch", "thread", "bytes", "shared"],
    parts: ["duration", "class"],
    host: ["start", "duration", "thread", "kind", "name"],
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
    const duration = window.duration_ns;
    const [ops, parts, host] = await Promise.all(
      ["ops", "parts", "host"].map((name) => shared.columns(window[name], COLUMNS[name])),
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
