// Tables can be sorted, filtered and copied. Without scripts they are what they are.
const tables = (() => {
  const SHORT = 5; // rows up to which a table has no tools
  const LONG = 10; // rows from which a filter helps

  const UNITS = {
    ns: 1e-6, µs: 1e-3, us: 1e-3, ms: 1, s: 1e3, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30,
    MFLOP: 1e6, GFLOP: 1e9, TFLOP: 1e12, PFLOP: 1e15,
  };

  // What a cell is sorted by: its number in one unit, or its text. Nothing observed comes last.
  const keyOf = (text) => {
    const found = /^[≥~×]?\s*([+−-]?)([\d,]*\.?\d+)\s*([%A-Za-zµ]*)/.exec(text);
    if (!found) return text === "—" || text === "" ? null : text.toLowerCase();
    const size = Number(found[2].replaceAll(",", "")) * (UNITS[found[3]] ?? 1);
    return found[1] && found[1] !== "+" ? -size : size;
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");

  // The text of a cell without what is folded in it and without what only scripts use.
  const textOf = (cell) =>
    (cell.querySelector("details.name > summary") ?? cell).textContent.trim();

  const headOf = (table) => [...(table.tHead?.rows[0]?.cells ?? [])];
  // A column of buttons has no title and is not copied; the first column may have none either.
  const columnsOf = (table) =>
    headOf(table).map((cell, n) => ({ cell, n })).filter(({ cell, n }) => n === 0 || textOf(cell));

  const sort = (table, n, down) => {
    const rows = [...table.tBodies[0].rows].map((row, place) => ({
      row, place, key: keyOf(textOf(row.cells[n])),
    }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
      return (down ? -1 : 1) * compare(a.key, b.key) || a.place - b.place;
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
    for (const [k, cell] of headOf(table).entries()) {
      if (k === n) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  };

  // Numbers come largest first, names from A on; again turns it around.
  const sortBy = (table, n) => {
    const state = headOf(table)[n].getAttribute("aria-sort");
    const numeric = [...table.tBodies[0].rows].some((row) => typeof keyOf(textOf(row.cells[n])) === "number");
    sort(table, n, state ? state === "ascending" : numeric);
  };

  const asRows = (table) => {
    const columns = columnsOf(table);
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const cellText = (cell) => {
      const whole = cell.querySelector("details.name > code");
      return whole ? whole.textContent.trim() : textOf(cell);
    };
    return [columns.map(({ cell }) => textOf(cell)), ...shown.map((row) => columns.map(({ n }) => cellText(row.cells[n])))];
  };
  const csv = (rows) =>
    rows.map((row) => row.map((t) => (/[",\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t)).join(",")).join("\n") + "\n";
  const markdown = ([head, ...rows]) => {
    const line = (cells) =>
      `| ${cells.map((t) => t.replaceAll("\n", " ").replace(/[\\|`*_<>[\]]/g, "\\$&")).join(" | ")} |`;
    return [line(head), `|${" --- |".repeat(head.length)}`, ...rows.map(line)].join("\n") + "\n";
  };

  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  // Buttons that copy what `rows` gives, the titles first.
  const copiers = (caption, rows, said) =>
    [["CSV", csv], ["Markdown", markdown]].map(([name, write]) => {
      const button = element("button", { type: "button" }, `Copy ${name}`);
      button.setAttribute("aria-label", `Copy ${name}: ${caption}`);
      button.addEventListener("click", async () => {
        const found = rows();
        await copyText(write(found));
        said.textContent = `Copied ${found.length - 1} rows.`;
      });
      return button;
    });

  const equip = (table) => {
    const rows = [...table.tBodies[0].rows];
    // Rows of one subject and many units, as those beside each other, have no order.
    if (rows.length < SHORT || !table.tHead || table.closest(".beside")) return;
    const caption = table.caption.textContent;
    const columns = columnsOf(table).filter(({ cell }) => textOf(cell));
    const tools = element("div", { className: "tools" });
    const said = element("span", { role: "status" });
    said.setAttribute("role", "status");

    for (const { cell, n } of columns) {
      const button = element("button", { type: "button", className: "sort" }, ...cell.childNodes);
      button.addEventListener("click", () => sortBy(table, n));
      cell.append(button);
    }
    // On a narrow page the titles are not there to be clicked.
    const order = element("select", {}, element("option", { value: "" }, "as given"));
    order.append(...columns.map(({ cell, n }) => element("option", { value: String(n) }, textOf(cell))));
    order.setAttribute("aria-label", `Sort: ${caption}`);
    order.addEventListener("change", () => {
      if (order.value) { sortBy(table, Number(order.value)); return; }
      table.tBodies[0].append(...rows);
      for (const { cell } of columns) cell.removeAttribute("aria-sort");
    });
    tools.append(element("label", { className: "order" }, "Sort ", order));

    if (rows.length >= LONG) {
      const box = element("input", { type: "search", placeholder: "Filter" });
      box.setAttribute("aria-label", `Filter: ${caption}`);
      box.addEventListener("input", () => {
        const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
        const shown = rows.filter((row) => !row.hidden).length;
        said.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
      });
      tools.append(box);
    }
    tools.append(...copiers(caption, () => asRows(table), said), said);
    table.before(tools);
  };

  // A table gets its tools when it is seen: most are in folds that are never opened.
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      equip(target);
    }
  }, { rootMargin: "400px" });
  for (const table of document.querySelectorAll("main .scroll > table")) seen.observe(table);

  // A whole name that was opened can be copied.
  document.addEventListener("toggle", ({ target: name }) => {
    if (!name.matches("details.name[open]") || name.querySelector("button")) return;
    const button = element("button", { type: "button", className: "show" }, "Copy");
    button.setAttribute("aria-label", `Copy ${textOf(name.parentElement)}`);
    const code = name.querySelector("code");
    button.addEventListener("click", () => copyText(code.textContent));
    code.after(button);
  }, true);

  return { element, copiers };
})();
