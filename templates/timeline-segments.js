// Single segments and stretches of a timeline: what is told, pinned, measured, lit up and listed.
const timelineSegments = (() => {
  const LISTED = 40;
  const { time, at, percent, clean } = timelineFacts;

  const element = (tag, text = "", className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const action = (text, act) => {
    const button = element("button", text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  };
  const listed = (rows) => {
    const list = element("dl", "", "facts");
    for (const [name, value] of rows) list.append(element("dt", name), element("dd", value));
    return list;
  };

  // `stage` has the state {model, plan, view, hover, pinned, chosen} and what redraws it.
  const make = (stage) => {
    const { state, box, part, canvas, picture, words } = stage;
    const tip = box.querySelector(".tip");
    const word = (key) => (words[key] ?? words.other)[0];
    const facts = (target) =>
      timelineFacts.describe(state.model, target.rank, target.lane, target.n);
    const say = (text) => {
      part("status").textContent = text;
    };

    const tell = (target, px, py) => {
      const found = facts(target);
      tip.replaceChildren(element("strong", found.name));
      if (target.count > 1) {
        const many = target.count.toLocaleString("en");
        tip.append(element("em", `The longest of ${many} in this pixel`));
      }
      tip.append(listed(found.rows));
      tip.hidden = false;
      const room = part("lanes").clientWidth;
      const left = state.plan.left + px + 14;
      const isFar = left + tip.offsetWidth > room;
      tip.style.left = `${Math.max(0, isFar ? left - tip.offsetWidth - 28 : left)}px`;
      tip.style.top = `${py + 18}px`;
    };

    const hover = (target) => {
      tip.hidden = true;
      if (!state.hover && !target) return;
      state.hover = target;
      stage.write();
    };
    const hoverAt = (px, py) => {
      const found = state.model && picture.hit(px, py);
      if (!found) {
        hover(null);
        return;
      }
      const isSame = state.hover?.lane === found.lane && state.hover.n === found.n;
      state.hover = found;
      if (!isSame) stage.write();
      tell(found, px, py);
    };

    const zoomTo = (target) => {
      const { start, end } = facts(target);
      const span = (end - start) * 3;
      stage.show((start + end - span) / 2, (start + end + span) / 2);
    };

    const panel = (title, rows, buttons) => {
      const tools = element("p", "", "timeline-tools");
      tools.append(...buttons);
      part("details").replaceChildren(element("h3", title), listed(rows), tools);
      part("details").hidden = false;
    };
    const close = () => {
      state.pinned = state.chosen = null;
      part("details").hidden = true;
      stage.write();
      canvas.focus({ preventScroll: true });
    };

    const pin = (target) => {
      state.pinned = target;
      if (!target) {
        part("details").hidden = true;
      } else {
        const found = facts(target);
        const buttons = [action("Zoom to it", () => zoomTo(target)), action("Close", close)];
        panel(found.name, found.rows, buttons);
      }
      stage.write();
    };

    // What its time went to.
    const measure = () => {
      if (!state.chosen) return;
      say("");
      const { from, to } = state.chosen;
      const { ranks } = state.model;
      const rows = ranks.flatMap((rank) => {
        const found = timelineFacts.shares(rank.lanes[0], from, to);
        const sum = found.reduce((total, [, ns]) => total + ns, 0);
        const parts = found.map(([key, ns]) => `${word(key)} ${percent(ns / sum)} (${time(ns)})`);
        return parts.length ? [[ranks.length > 1 ? `rank ${rank.rank}` : "of it", parts.join(", ")]] : [];
      });
      const zoom = () => {
        close();
        stage.show(from, to);
      };
      state.pinned = null;
      const buttons = [action("Zoom to it", zoom), action("Close", close)];
      panel(`${time(to - from)} selected, from ${at(from)}`, rows, buttons);
      stage.write();
    };

    // The keyboard's segment: hovered as by a pointer, told in words.
    const choose = (target) => {
      const found = facts(target);
      const { from, to } = state.view;
      if (found.end < from || found.start > to) {
        const half = (to - from) / 2;
        stage.show(found.start - half, found.start + half);
        stage.draw();
      }
      state.hover = target;
      stage.write();
      const row = state.plan.rows.find((r) => r.lane === target.lane);
      const px = Math.min(Math.max(0, picture.x(found.start)), state.plan.width);
      if (row) tell(target, px, row.top + row.height - 14);
      const rows = found.rows.map(([name, value]) => `${name}: ${value}`);
      say(`${found.name}; ${rows.join("; ")}`);
    };
    const step = (by) => {
      const now = state.hover ?? state.pinned;
      if (!now) {
        const row = state.plan.rows[0];
        const n = timelineData.after(row.lane.until, state.view.from);
        if (n < row.lane.start.length) choose({ ...row, n, count: 1 });
        return true;
      }
      const n = now.n + by;
      if (n < 0 || n >= now.lane.start.length) return false;
      choose({ ...now, n, count: 1 });
      return true;
    };
    const otherLane = (by) => {
      const { rows } = state.plan;
      const now = state.hover ?? state.pinned;
      const place = now ? rows.findIndex((row) => row.lane === now.lane) : by > 0 ? -1 : 0;
      const where = now ? Math.max(state.view.from, now.lane.start[now.n]) : state.view.from;
      for (let k = place + by; rows[k]; k += by) {
        const { lane, rank } = rows[k];
        const n = Math.min(timelineData.after(lane.until, where), lane.start.length - 1);
        if (n < 0) continue;
        choose({ rank, lane, n, count: 1 });
        return;
      }
    };

    // Lights up what is wanted, as `timelineLight` makes it, and dims the rest; null shows
    // everything again.
    const light = (wanted) => {
      const { model } = state;
      if (!wanted && !model.lit) return;
      model.lit = wanted;
      timelineLight.shade(model);
      box.classList.toggle("lit", Boolean(wanted));
      say(wanted ? timelineLight.told(model) : "Everything is shown again.");
      for (const button of document.querySelectorAll("button[data-show]")) {
        button.setAttribute("aria-pressed", String(wanted?.id === button.dataset.show));
      }
      stage.arrange();
    };

    const release = () => {
      tip.hidden = true;
      state.hover = state.pinned = state.chosen = null;
      part("details").hidden = true;
      light(null);
      stage.write();
    };

    const tableRow = (target) => {
      const told = facts(target);
      const row = element("tr");
      const head = element("th", at(told.start), "r");
      head.scope = "row";
      const name = element("td", "", "n");
      const button = action(told.name, () => {
        pin(target);
        zoomTo(target);
        box.scrollIntoView({ block: "start" });
        canvas.focus({ preventScroll: true });
      });
      button.className = "link";
      name.append(button);
      row.append(
        head,
        element("td", time(told.end - told.start), "r"),
        element("td", String(target.rank.rank), "r"),
        element("td", clean(target.lane.label || target.lane.title)),
        element("td", told.word),
        name,
      );
      return row;
    };

    // Fills the table with the longest segments in view.
    const list = () => {
      const { from, to } = state.view;
      const found = [];
      for (const rank of state.model.ranks) {
        for (const lane of rank.lanes) {
          if (lane.kind === "path") continue; // what it is made of is listed
          for (let n = timelineData.after(lane.until, from); lane.start[n] < to; n++) {
            found.push({ rank, lane, n, length: lane.end[n] - lane.start[n] });
          }
        }
      }
      found.sort((a, b) => b.length - a.length);
      const shown = found.slice(0, LISTED).sort((a, b) => a.lane.start[a.n] - b.lane.start[b.n]);
      const table = box.closest("figure").querySelector("details table");
      const total = found.length.toLocaleString("en");
      table.caption.textContent = `${shown.length} longest of ${total} segments in view`;
      table.tBodies[0].replaceChildren(...shown.map(tableRow));
      say(`The table lists the ${shown.length} longest segments in view.`);
    };

    const current = () => state.hover ?? state.pinned;
    return {
      hover, hoverAt, pin, measure, step, otherLane, light, release, list, say, current,
      clickAt: (px, py) => pin(picture.hit(px, py)),
      pinCurrent: () => state.hover && pin(state.hover),
      zoomToCurrent: () => current() && zoomTo(current()),
    };
  };

  return { make, element };
})();
