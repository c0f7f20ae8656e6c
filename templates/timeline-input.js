// Mouse, touch and keyboard, as what they ask of a timeline.
const timelineInput = (() => {
  const STEP = 0.2;
  const SLOP = 4; // pixels that a click may move

  const wheel = (canvas, line) => {
    canvas.addEventListener(
      "wheel",
      (event) => {
        const asked = event.ctrlKey || event.metaKey || event.shiftKey;
        if (!asked && document.activeElement !== canvas) return; // the bare wheel scrolls the page
        if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) {
          if (line.pan(event.deltaX / canvas.clientWidth)) event.preventDefault();
          return;
        }
        const turn = event.deltaY || event.deltaX;
        const size = Math.min(1, Math.abs(turn) / 100) * STEP;
        const moved = line.zoom(turn > 0 ? 1 / (1 - size) : 1 - size, line.nsAt(event.offsetX));
        if (moved || asked) event.preventDefault();
      },
      { passive: false },
    );
  };

  const pointer = (canvas, line) => {
    const held = new Map(); // pointer → where it is now, px
    let grip = null; // {from, to, x, mode} when the first one came down
    let moved = false;
    const distance = () => {
      const [a, b] = [...held.values()];
      return { x: (a.x + b.x) / 2, size: Math.max(8, Math.hypot(a.x - b.x, a.y - b.y)) };
    };
    const take = (event) => {
      const point = [...held.values()][0];
      const { from, to } = line.view();
      const mode = event.shiftKey || (held.size === 1 && point.y < timelineView.RULER) ? "select" : "drag";
      grip = { from, to, x: point.x, at: line.nsAt(point.x), mode: held.size > 1 ? "pinch" : mode };
      if (held.size > 1) grip.pinch = { ...distance(), at: line.nsAt(distance().x) };
    };

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      canvas.setPointerCapture(event.pointerId);
      if (held.size === 1) moved = false;
      take(event);
    });
    const release = (event) => {
      if (!held.delete(event.pointerId)) return;
      if (held.size) take(event);
      else {
        if (!moved && event.type === "pointerup") line.clickAt(event.offsetX, event.offsetY);
        if (moved && grip.mode === "select") line.measure();
        grip = null;
        moved = false;
      }
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) {
        line.hoverAt(event.offsetX, event.offsetY);
        return;
      }
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      const span = grip.to - grip.from;
      if (grip.mode === "pinch") {
        moved = true;
        const { x, size } = distance();
        const next = (span * grip.pinch.size) / size;
        const from = grip.pinch.at - (x / canvas.clientWidth) * next;
        line.show(from, from + next);
        return;
      }
      const by = event.offsetX - grip.x;
      if (!moved && Math.abs(by) < SLOP) return;
      moved = true;
      if (grip.mode === "select") line.select(grip.at, line.nsAt(event.offsetX));
      else {
        const shift = (by / canvas.clientWidth) * span;
        line.show(grip.from - shift, grip.to - shift);
      }
    });
    canvas.addEventListener("pointerleave", () => line.hover(null));
    canvas.addEventListener("blur", () => line.hover(null));
    canvas.addEventListener("dblclick", () => line.fit());
  };

  const keyboard = (canvas, line) => {
    const near = () => line.zoom(1 - STEP);
    const far = () => line.zoom(1 / (1 - STEP));
    const keys = {
      ArrowLeft: () => line.pan(-STEP),
      ArrowRight: () => line.pan(STEP),
      a: () => line.pan(-STEP),
      d: () => line.pan(STEP),
      w: near,
      s: far,
      "+": near,
      "=": near,
      "-": far,
      Home: () => line.fit(),
      0: () => line.fit(),
      c: () => line.togglePath(),
      ArrowUp: () => line.otherLane(-1),
      ArrowDown: () => line.otherLane(1),
      n: () => line.step(1),
      p: () => line.step(-1),
      Enter: () => line.pinCurrent(),
      f: () => line.zoomToCurrent(),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Tab") {
        // Once a segment is chosen Tab goes on to the next, until the last or Escape.
        if (line.current() && line.step(event.shiftKey ? -1 : 1)) event.preventDefault();
        return;
      }
      const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  };

  const map = (strip, line) => {
    let from = null;
    const at = (event) => {
      const box = strip.getBoundingClientRect();
      return ((event.clientX - box.left) / box.width) * line.whole();
    };
    strip.addEventListener("pointerdown", (event) => {
      strip.setPointerCapture(event.pointerId);
      const { from: low, to: high } = line.view();
      from = at(event);
      if (from < low || from > high || high - low >= line.whole()) {
        const half = (high - low) / 2;
        if (high - low < line.whole()) line.show(from - half, from + half);
      }
      const view = line.view();
      from = { at: from, low: view.from, high: view.to, all: view.to - view.from >= line.whole() };
    });
    strip.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = at(event);
      if (from.all) {
        if (Math.abs(to - from.at) > line.whole() / 200) {
          line.show(Math.min(from.at, to), Math.max(from.at, to));
        }
      } else line.show(from.low + to - from.at, from.high + to - from.at);
    });
    const release = () => {
      from = null;
    };
    strip.addEventListener("pointerup", release);
    strip.addEventListener("pointercancel", release);
  };

  const listen = (canvas, strip, line) => {
    wheel(canvas, line);
    pointer(canvas, line);
    keyboard(canvas, line);
    map(strip, line);
  };

  return { listen };
})();
