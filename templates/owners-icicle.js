// An icicle of a tree of owners: each bar is as long as its time, what is below it is inside it.
const ownersIcicle = (() => {
  const HEIGHT = 22; // pixels of a level
  const LEAST = 1; // pixels of a bar that is drawn
  const DEEPEST = 14; // levels that are drawn below the first
  const NARROW = 3; // pixels of a bar that has no border
  const LETTER = 7; // pixels, about

  // The class that has most of a node's time in a mode, its colour is the bar's.
  const classOf = (node, mode) => {
    let best = null;
    for (const [key, ns] of node.classes) {
      if (ownersModel.isIdle(key) !== (mode === "idle")) continue;
      if (best === null || ns > node.classes.get(best)) best = key;
    }
    return best;
  };

  // {node, left, width, depth} of all bars below and with `top`, in pixels; largest first.
  const layout = (top, mode, width) => {
    const found = [];
    const place = (node, left, scale, depth) => {
      found.push({ node, left, width: node[mode] * scale, depth });
      if (depth === DEEPEST) return;
      let at = left;
      for (const child of [...node.children].sort((a, b) => b[mode] - a[mode])) {
        const size = child[mode] * scale;
        if (size < LEAST) break; // and so are the others
        place(child, at, scale, depth + 1);
        at += size;
      }
    };
    if (top[mode] > 0) place(top, 0, width / top[mode], 0);
    return found;
  };

  // Bars of a layout as elements; `words` are the page's labels, `tell` says what is known of a node.
  const draw = (host, top, mode, words, tell, chosen) => {
    const width = host.clientWidth;
    const bars = width ? layout(top, mode, width) : [];
    const made = bars.map(({ node, left, width: size, depth }) => {
      const key = classOf(node, mode);
      const colour = (words[key] ?? words.other)[1];
      const bar = document.createElement("div");
      const room = Math.floor((size - 8) / LETTER);
      const name = ownersModel.brief(node);
      if (room >= 3) bar.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
      bar.title = tell(node);
      bar.dataset.ns = String(node[mode]);
      if (node === chosen) bar.className = "chosen";
      Object.assign(bar.style, {
        left: `${left}px`,
        width: `${size}px`,
        top: `${depth * HEIGHT}px`,
        background: colour,
        color: shared.inkOn(colour),
        borderRightWidth: size < NARROW ? "0" : "",
      });
      return bar;
    });
    host.replaceChildren(...made);
    const levels = bars.reduce((deep, { depth }) => Math.max(deep, depth), -1) + 1;
    host.style.height = `${levels * HEIGHT}px`;
    return bars.map(({ node }) => node);
  };

  return { draw };
})();
