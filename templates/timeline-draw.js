// Lanes as pixels. In each column of pixels the height of a class is the share of that column's
// time that it has, so that what is below a pixel keeps its true share.
const timelineDraw = (() => {
  const GOLDEN = 0.6180339887498949;
  const EDGE = 4; // pixels from which a segment shows where it begins
  const TINY = 1e-6; // what adding up shares may lose

  const { rgb } = shared;
  const pixel = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
  const mixed = (a, b, share) => a.map((v, i) => Math.round(v * (1 - share) + b[i] * share));

  // Pixel values of each key of a lane: plain and at the edge of a segment.
  const palette = (keys, colours, back, isLit) =>
    keys.map((key) => {
      const full = rgb(colours(key));
      const seen = isLit ? full : mixed(full, back, 0.82);
      return [pixel(seen), pixel(mixed(seen, [0, 0, 0], 0.35))];
    });

  // Share of each column's time by code, in sums[column * codes + code]; columns are `step` ns from
  // `from` on. Returns the segments that are at least `wide` columns wide.
  const density = (lane, from, step, columns, codes, sums, edges, wide) => {
    sums.fill(0, 0, columns * codes);
    edges.fill(0, 0, columns);
    const found = [];
    const { start, end, until } = lane;
    const code = lane.shades ?? lane.code;
    const to = from + step * columns;
    const scale = 1 / step;
    for (let i = timelineData.after(until, from); i < start.length && start[i] < to; i++) {
      let left = (start[i] - from) * scale;
      let right = (end[i] - from) * scale;
      if (left < 0) left = 0;
      if (right > columns) right = columns;
      if (right <= left) continue;
      const c = code[i];
      const first = left | 0;
      const last = right | 0;
      if (first === last) {
        sums[first * codes + c] += right - left;
        continue;
      }
      sums[first * codes + c] += first + 1 - left;
      for (let x = first + 1; x < last; x++) sums[x * codes + c] += 1;
      if (last < columns) sums[last * codes + c] += right - last;
      if (right - left >= EDGE && left > 0) edges[Math.min(columns - 1, Math.round(left))] = 1;
      if (right - left >= wide) found.push(i);
    }
    return found;
  };

  // Stacks the shares, the first of `order` at the bottom. Rounding to whole pixels goes by the
  // number of the column on the axis: over many columns it cancels out, and nothing flickers.
  const paint = (image, at, lane, sums, edges, colours, order, columns, origin, back) => {
    const { width, top, height } = at;
    const codes = colours.length;
    for (let x = 0; x < columns; x++) {
      let total = 0;
      const base = x * codes;
      for (let c = 0; c < codes; c++) total += sums[base + c];
      const scale = height / Math.max(1, total);
      const turn = (origin + x) * GOLDEN;
      const offset = turn - Math.floor(turn) + TINY;
      let sum = 0;
      let y = 0;
      let p = (top + height - 1) * width + x;
      for (const c of order) {
        const share = sums[base + c];
        if (!share) continue;
        sum += share;
        const upto = Math.min(height, Math.floor(sum * scale + offset));
        const value = colours[c][lane.kind === "parts" ? 0 : edges[x]];
        for (; y < upto; y++, p -= width) image[p] = value;
      }
      for (; y < height; y++, p -= width) image[p] = back;
    }
  };

  return { density, paint, palette, pixel, mixed };
})();
