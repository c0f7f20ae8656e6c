// The tree of owners as a table of which rows open: the WAI-ARIA pattern of a tree grid.
const ownersTable = (() => {
  const { element } = tables;
  const ROOM = 300; // rows that are made at once
  const DEEPEST = 12; // levels that move to the right
  const FEW = 12; // children of a lonely root that are shown at once

  const significant = (value) => {
    if (value === 0) return "0";
    const decimals = [99.95, 9.995, 0.9995, 0.09995].filter((floor) => Math.abs(value) < floor).length;
    const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return value.toLocaleString("en", options);
  };
  const time = (node) => node.busy + node.idle;

  // Columns with numbers: {title, of(node), text(node)}.
  const columnsFor = ({ steps, window_ns: window, unit, communicates }) => {
    const ms = (title, of) => ({ title, of, text: (node) => significant(of(node) / steps / 1e6) });
    const count = (title, of) => ({ title, of, text: (node) => significant(of(node) / steps) });
    return [
      ms(`busy, ${unit}`, (node) => node.busy),
      ...(communicates ? [ms("of it exposed communication", (node) => node.communication)] : []),
      ms(`idle, ${unit}`, (node) => node.idle),
      { title: "share", of: time, text: (node) => `${((100 * time(node)) / Math.max(window, 1)).toFixed(1)} %` },
      count("operations", (node) => node.operations),
      count("waits", (node) => node.calls),
    ];
  };

  // `about` has {caption, steps, window_ns, unit, communicates}, `chosen` is called with a node or null.
  const make = (host, about, chosen) => {
    const columns = columnsFor(about);
    const state = { root: null, open: new Set(), query: [], sort: columns.length - 3, down: true, room: ROOM, current: null };
    let shown = []; // nodes of the rows, in order

    const said = element("span", {});
    said.setAttribute("role", "status");
    const table = element("table", { className: "wide owners-table" });
    table.setAttribute("role", "treegrid");
    table.setAttribute("aria-label", about.caption);
    const head = table.createTHead().insertRow();
    const body = table.createTBody();
    const more = element("button", { type: "button", hidden: true }, "Show more rows");

    const matches = (node) => {
      const text = node.name.toLowerCase();
      return state.query.length > 0 && state.query.every((word) => text.includes(word));
    };

    // Nodes that match, and all that they are in.
    const found = () => {
      const hits = new Set();
      const around = new Set();
      const look = (node) => {
        for (const child of node.children) {
          if (matches(child)) {
            hits.add(child);
            for (let up = child.parent; up && !around.has(up); up = up.parent) around.add(up);
          }
          look(child);
        }
      };
      look(state.root);
      return { hits, around };
    };

    const ordered = (nodes) => {
      const { sort, down } = state;
      const by = sort < 0 ? (a, b) => a.name.localeCompare(b.name, "en") : (a, b) => columns[sort].of(a) - columns[sort].of(b);
      return [...nodes].sort((a, b) => (down ? -1 : 1) * by(a, b) || time(b) - time(a));
    };

    let search = { hits: new Set(), around: new Set() };
    const isOpen = (node) => state.open.has(node) || search.around.has(node);

    // The rows of the tree as it is open, of a search only those that lead to what it found.
    const visible = () => {
      const rows = [];
      const below = (node, inside) => {
        let children = ordered(node.children);
        if (state.query.length && !inside) {
          children = children.filter((child) => search.hits.has(child) || search.around.has(child));
        }
        children.forEach((child, n) => {
          rows.push({ node: child, n: n + 1, of: children.length });
          if (isOpen(child)) below(child, inside || search.hits.has(child));
        });
      };
      below(state.root, false);
      return rows;
    };

    const rowFor = ({ node, n, of }) => {
      const row = element("tr", {});
      const facts = { role: "row", "aria-level": node.depth, "aria-posinset": n, "aria-setsize": of };
      if (node.children.length) facts["aria-expanded"] = isOpen(node);
      facts["aria-selected"] = node === state.current;
      for (const [key, value] of Object.entries(facts)) row.setAttribute(key, String(value));
      row.tabIndex = -1;
      const name = element("th", { className: "n", scope: "row", title: node.name.slice(0, 600) });
      name.setAttribute("role", "rowheader");
      name.style.setProperty("--depth", String(Math.min(node.depth - 1, DEEPEST)));
      const mark = element("span", { className: "twisty" }, node.children.length ? (isOpen(node) ? "▾" : "▸") : "");
      mark.setAttribute("aria-hidden", "true");
      const level = node.isMissing ? "" : element("small", {}, ` ${node.level}`);
      name.append(mark, element("bdi", {}, ownersModel.brief(node).slice(0, 200)), level);
      row.append(name);
      for (const column of columns) {
        const cell = element("td", { className: "r" }, column.text(node));
        cell.setAttribute("role", "gridcell");
        cell.dataset.label = column.title;
        row.append(cell);
      }
      return row;
    };

    const render = (isFocused = false) => {
      search = state.query.length ? found() : { hits: new Set(), around: new Set() };
      const rows = visible();
      const made = rows.slice(0, state.room);
      shown = made.map(({ node }) => node);
      body.replaceChildren(...made.map(rowFor));
      more.hidden = rows.length <= state.room;
      more.textContent = `Show more of ${rows.length.toLocaleString("en")} rows`;
      if (state.query.length) {
        said.textContent = search.hits.size ? `${search.hits.size.toLocaleString("en")} found` : "none found";
      } else said.textContent = "";
      const at = Math.max(shown.indexOf(state.current), 0);
      if (!body.rows[at]) return;
      body.rows[at].tabIndex = 0;
      if (isFocused) body.rows[at].focus({ preventScroll: true });
      if (isFocused) body.rows[at].scrollIntoView({ block: "nearest" });
    };

    const choose = (node, isFocused = true) => {
      const before = shown.indexOf(state.current);
      state.current = node;
      for (const at of [before < 0 ? 0 : before, shown.indexOf(node)]) {
        if (!body.rows[at]) continue;
        body.rows[at].setAttribute("aria-selected", String(shown[at] === node));
        body.rows[at].tabIndex = shown[at] === node ? 0 : -1;
      }
      const row = body.rows[shown.indexOf(node)];
      if (isFocused && row) {
        row.focus({ preventScroll: true });
        row.scrollIntoView({ block: "nearest" });
      }
      chosen(node);
    };

    // An only child opens with what it is in: there is nothing to choose.
    const toggle = (node) => {
      if (!node.children.length) return;
      if (isOpen(node)) state.open.delete(node);
      else for (let at = node; at; at = at.children.length === 1 ? at.children[0] : null) state.open.add(at);
      render(true);
    };

    const keys = {
      ArrowDown: (at) => shown[at + 1] && choose(shown[at + 1]),
      ArrowUp: (at) => shown[at - 1] && choose(shown[at - 1]),
      Home: () => choose(shown[0]),
      End: () => choose(shown.at(-1)),
      ArrowRight: (at) => {
        const node = shown[at];
        if (!node.children.length) return;
        if (isOpen(node)) choose(shown[at + 1]);
        else toggle(node);
      },
      ArrowLeft: (at) => {
        const node = shown[at];
        if (node.children.length && state.open.has(node)) toggle(node);
        else if (node.parent.parent) choose(node.parent);
      },
      Enter: (at) => toggle(shown[at]),
      " ": (at) => choose(shown[at]),
    };
    body.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      const at = [...body.rows].indexOf(event.target.closest("tr"));
      if (shown[at] !== state.current) state.current = shown[at];
      keys[event.key](at);
    });
    body.addEventListener("click", (event) => {
      const node = shown[[...body.rows].indexOf(event.target.closest("tr"))];
      if (!node) return;
      choose(node);
      if (event.target.closest("th")) toggle(node);
    });

    const order = element("select", {});
    order.setAttribute("aria-label", `Sort: ${about.caption}`);
    const titles = ["owner", ...columns.map(({ title }) => title)];
    const sorted = () => {
      [...head.cells].forEach((cell, n) => {
        if (n - 1 === state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
      order.value = String(state.sort);
    };
    const sortBy = (n) => {
      state.down = state.sort === n ? !state.down : n >= 0;
      state.sort = n;
      sorted();
      render();
    };
    titles.forEach((title, n) => {
      const cell = element("th", { scope: "col", className: n ? "r" : "n" });
      cell.setAttribute("role", "columnheader");
      const button = element("button", { type: "button", className: "sort" }, title);
      button.addEventListener("click", () => sortBy(n - 1));
      cell.append(button);
      head.append(cell);
      order.append(element("option", { value: String(n - 1) }, title));
    });
    order.addEventListener("change", () => sortBy(Number(order.value)));

    const box = element("input", { type: "search", placeholder: "Search" });
    box.setAttribute("aria-label", `Search: ${about.caption}`);
    box.addEventListener("input", () => {
      state.query = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      state.room = ROOM;
      render();
    });
    more.addEventListener("click", () => {
      state.room += ROOM;
      render();
    });

    // The rows that are shown, with the whole path of each.
    const asRows = () => [
      titles,
      ...shown.map((node) => [
        ownersModel.pathOf(node).map(({ name }) => name).join(" / "),
        ...columns.map(({ text }) => text(node)),
      ]),
    ];
    const tools = element("div", { className: "tools" });
    const ordering = element("label", { className: "order" }, "Sort ", order);
    tools.append(ordering, box, ...tables.copiers(about.caption, asRows, said), said);
    const scroll = element("div", { className: "scroll" }, table);
    host.replaceChildren(tools, scroll, more);
    sorted();

    // Another tree; what leads to the first choice is open.
    const show = (root) => {
      Object.assign(state, { root, current: null, room: ROOM, open: new Set() });
      let at = root;
      while (at.children.length === 1 && at.children[0].children.length <= FEW) state.open.add((at = at.children[0]));
      render();
    };

    // A node that something else has chosen, as a row that is there.
    const reveal = (node) => {
      for (let at = node.parent; at?.parent; at = at.parent) state.open.add(at);
      if (node.parent && !shown.includes(node)) {
        state.query = [];
        box.value = "";
      }
      state.current = node;
      render();
    };

    return { show, reveal };
  };

  return { make, significant };
})();
