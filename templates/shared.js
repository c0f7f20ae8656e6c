"use strict";

// What several pictures of a page share: packed columns, harmless names, ink that can be read.
const shared = (() => {
  const MOST_ROWS = 2_000_000;
  const MOST_BYTES = 6;

  const clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}]+/gu, " "); // names come from anybody

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

  const columns = async (table, names) => {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser is too old to unpack it");
    }
    const { rows, widths } = table;
    const order = [...names].sort(); // as they are packed
    const fits = Object.keys(widths).sort().join() === order.join() && Number.isInteger(rows) && rows >= 0;
    const sane = names.every((n) => Number.isInteger(widths[n]) && widths[n] >= 1);
    if (!fits || !sane || rows > MOST_ROWS || names.some((n) => widths[n] > MOST_BYTES)) {
      throw new Error("a table has impossible sizes");
    }
    const size = rows * names.reduce((sum, n) => sum + widths[n], 0);
    const bytes = await inflate(bytesOf(table.data), size);
    const found = { rows };
    let at = 0;
    for (const name of order) {
      const column = new Float64Array(rows); // exact up to 2 ** 53, six bytes are 2 ** 48
      for (let plane = 0, unit = 1; plane < widths[name]; plane++, unit *= 256) {
        for (let i = 0; i < rows; i++) column[i] += bytes[at + i] * unit;
        at += rows;
      }
      found[name] = column;
    }
    return found;
  };

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const luminance = (hex) => {
    const [r, g, b] = rgb(hex).map((v) => (v / 255 <= 0.04 ? v / 3295 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const inkOn = (hex) => (luminance(hex) > 0.18 ? "#000000" : "#ffffff");

  return { columns, clean, rgb, inkOn };
})();
