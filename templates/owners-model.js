// The tree of owners of a rank, regrouped by what a reader asks for.
const ownersModel = (() => {
  const COLUMNS = ["parent", "level", "name", "ns", "count"];
  const KNOWN = ["class", "range", "module", "line", "operator", "kernel", "call", "unknown", "other"];
  const NAMELESS = { unknown: "(no operator recorded)", other: "(other)" };
  const LEAVES = ["kernel", "call", "unknown", "other"];
  const isIdle = (key) => key.startsWith("idle_");

  // Nodes of the record with their path by level: [{key, range, module, line, operator, leaf, ns,
  // count}], where `key` is the class, a path is [{level, name}], and `count` the node's own.
  const read = async ({ levels, names, nodes }) => {
    const columns = await shared.columns(nodes, COLUMNS);
    const { parent, level, name } = columns;
    const rows = [];
    for (let n = 0; n < columns.rows; n++) {
      const kind = levels[level[n]];
      const isClass = parent[n] === 0;
      if (parent[n] > n || !KNOWN.includes(kind) || name[n] > names.length || isClass !== (kind === "class")) {
        throw new Error("a node of the tree is out of place");
      }
      const text = name[n] ? names[name[n] - 1] : (NAMELESS[kind] ?? "");
      const above = isClass
        ? { key: text, range: [], module: [], line: [], operator: [], leaf: [] }
        : rows[parent[n] - 1];
      const row = { ...above, ns: columns.ns[n], count: columns.count[n] };
      const into = LEAVES.includes(kind) ? "leaf" : kind;
      if (!isClass) row[into] = [...above[into], { level: kind, name: text }];
      rows.push(row);
    }
    return rows;
  };

  const missing = (level, name) => [{ level, name, isMissing: true }];
  const last = (path) => path.slice(-1);
  const place = (row) => (row.module.length ? row.module : row.range);

  const placed = (row, outer, word) => {
    const found = outer.length ? outer : missing(word, `(in no ${word})`);
    return [...found, ...row.line, ...row.operator, ...row.leaf];
  };

  // From the outermost step to the innermost.
  const PATHS = {
    module: (row) => placed(row, place(row), "module"),
    range: (row) => placed(row, row.range, "range"),
    line: (row) => {
      const line = row.line.length ? row.line : missing("line", "(no line recorded)");
      return [...line, ...row.operator, ...row.leaf];
    },
    operator: (row) => {
      const operator = row.operator.length ? last(row.operator) : missing("operator", "(no operator)");
      return [...operator, ...row.leaf];
    },
    kernel: (row) => {
      const leaf = row.leaf.length ? last(row.leaf) : missing("kernel", "(the host, without a kernel)");
      return [...leaf, ...last(row.operator), ...(row.line.length ? row.line : last(place(row)))];
    },
  };

  // [key of PATHS, word], the first the one to begin with.
  const choices = (rows, isCpu) => {
    const has = (level) => rows.some((row) => row[level].length);
    const found = [];
    if (has("module")) found.push(["module", "module"]);
    else if (has("range")) found.push(["range", "range"]);
    if (has("line")) found.push(["line", "line"]);
    if (has("operator")) found.push(["operator", "operator"]);
    found.push(["kernel", isCpu ? "operator that ran" : "kernel"]);
    return found;
  };

  const make = (parent, { level, name, isMissing = false }) => ({
    parent, level, isMissing,
    raw: name, // as the trace has it
    name: shared.clean(name),
    depth: parent ? parent.depth + 1 : 0,
    kids: new Map(),
    children: [],
    rows: [], // of the record that end here
    busy: 0, idle: 0, communication: 0, operations: 0, calls: 0, // ns and counts with all below
    classes: new Map(),
  });

  const add = (node, { key, ns, count }) => {
    const idle = isIdle(key);
    node[idle ? "idle" : "busy"] += ns;
    node[idle ? "calls" : "operations"] += count;
    if (key === "communication") node.communication += ns;
    node.classes.set(key, (node.classes.get(key) ?? 0) + ns);
  };

  // The root of the tree by one of PATHS; each node has its sums with all that is below.
  const grown = (rows, by) => {
    const root = make(null, { level: "all", name: "All" });
    for (const row of rows) {
      if (!row.ns && !row.count) continue;
      let node = root;
      add(node, row);
      for (const step of PATHS[by](row)) {
        const key = `${step.level}\n${step.name}`;
        let next = node.kids.get(key);
        if (!next) {
          next = make(node, step);
          node.kids.set(key, next);
          node.children.push(next);
        }
        add((node = next), row);
      }
      node.rows.push(row);
    }
    return root;
  };

  const pathOf = (node) => (node.parent ? [...pathOf(node.parent), node] : []);
  const rowsBelow = (node) => [...node.rows, ...node.children.flatMap(rowsBelow)];

  // What the timeline is to light up for a node.
  const wanted = (node, rows, number, id) => {
    const names = ["range", "module", "operator"].includes(node.level) ? [node.raw] : [];
    const operatorOf = (row) => row.operator.at(-1)?.name ?? "";
    const leaves = rowsBelow(node).filter((row) => row.leaf.length && row.leaf[0].level !== "other");
    const pairs = leaves.map((row) => [row.leaf[0].name, operatorOf(row)]);
    const operators = [...new Set(rows.flatMap((row) => row.operator.map(({ name }) => name)))];
    return { id, name: node.name, number, names, pairs, operators };
  };

  // A kernel in a few words: without return type, scopes and arguments of templates.
  const brief = ({ level, name }) => {
    if (level !== "kernel" || !/[<(]/.test(name) || /^Mem/.test(name)) return name;
    const text = name.replace(/^void /, "").replace(/\(anonymous namespace\)/g, "_");
    const head = text.split("<")[0].split("(")[0].trim().split("::").pop();
    if (!/[A-Za-z]/.test(head)) return name;
    const does = /\w*(?:Functor|Op|Ops|KernelImpl)\b/.exec(text.slice(text.indexOf("<")));
    return /elementwise|reduce_kernel|multi_tensor/.test(head) && does ? `${head}: ${does[0]}` : head;
  };

  return { read, choices, grown, pathOf, wanted, brief, isIdle };
})();
