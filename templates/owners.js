// Who owns the time: the choices, the icicle, what is chosen of it, and the table.
(() => {
  const { element } = tables;
  const MOST = 4_000; // characters of a name
  const MODES = { busy: "GPU time", idle: "idle time" };
  const HINT =
    "Each bar is as long as its time and is inside what it belongs to; its colour is the class that " +
    "has most of it. A click enlarges it. The table below has the same, also for keys: ↑ and ↓ " +
    "from row to row, → and ← to open and close.";
  const root = document.documentElement;
  const labelled = (text, input) => {
    input.setAttribute("aria-label", text); // without the options, which are in the label, too
    return element("label", {}, `${text} `, input);
  };
  const action = (text, act) => {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", act);
    return button;
  };
  const picture = () => (typeof timeline !== "undefined" && root.dataset.timelinesReady === "1" ? timeline : null);

  const build = async (box, report) => {
    const words = JSON.parse(embedded("labels"));
    const ranks = box.dataset.ranks.split(" ").map((index) => report.ranks[Number(index)]);
    const caption = box.querySelector("h3").textContent;
    const state = { rank: null, rows: [], by: "", mode: "busy", root: null, top: null, chosen: null };
    let grid = null;

    const tools = element("div", { className: "owners-tools" });
    const trail = element("div", { className: "owners-trail" });
    trail.setAttribute("role", "group");
    trail.setAttribute("aria-label", "What the bars are part of");
    const bars = element("div", { className: "icicle" });
    bars.setAttribute("aria-hidden", "true");
    const figure = element("figure", {}, trail, bars, element("figcaption", {}, HINT));
    const panel = element("div", { className: "owners-chosen" });
    panel.setAttribute("role", "region");
    panel.setAttribute("aria-label", "Chosen owner");
    const place = element("div", {});

    const { significant } = ownersTable;
    const perStep = () => Math.max(state.rank.summary.iterations_used, 1);
    const unit = () => (state.rank.summary.iterations_used ? "ms a step" : "ms in all");
    const number = (ns) => significant(ns / perStep() / 1e6);
    const ms = (ns) => `${number(ns)} ${unit()}`;
    const share = (ns) => `${((100 * ns) / Math.max(state.rank.summary.window_ns, 1)).toFixed(1)} %`;
    const tell = (node) => `${node.name.slice(0, 600)}\n${ms(node[state.mode])} of ${MODES[state.mode]}`;

    let drawn = [];
    const draw = () => {
      drawn = ownersIcicle.draw(bars, state.top, state.mode, words, tell, state.chosen);
      const steps = [state.root, ...ownersModel.pathOf(state.top)];
      const items = steps.map((node, n) => {
        const name = ownersModel.brief(node).slice(0, 80);
        if (n < steps.length - 1) return action(name, () => enlarge(node));
        const here = element("span", {}, `${name}: ${ms(node[state.mode])} of ${MODES[state.mode]}`);
        here.setAttribute("aria-current", "true");
        return here;
      });
      trail.replaceChildren(...items.flatMap((item, n) => (n ? [" › ", item] : [item])));
    };

    const enlarge = (node) => {
      state.top = node;
      draw();
    };

    const inTimeline = (node) => {
      const { rank } = state.rank;
      const line = picture();
      line.unfold(rank);
      const id = `owner:${rank}:${state.by}:${ownersModel.pathOf(node).map(({ name }) => name).join("/")}`;
      line.light(timelineLight.owner(ownersModel.wanted(node, state.rows, rank, id)));
      line.scroll();
    };
    const isDrawn = () => picture()?.model().ranks.some(({ rank }) => rank === state.rank.rank);

    // What is known of a node; of all as long as nothing is chosen, so that the table stays in place.
    const tellChosen = (chosen) => {
      state.chosen = chosen;
      const node = chosen ?? state.root;
      const path = ownersModel.pathOf(node).slice(0, -1).map((step) => ownersModel.brief(step));
      const own = node.rows.reduce((sum, { ns }) => sum + ns, 0);
      const parts = [...node.classes].sort((a, b) => b[1] - a[1]).filter(([, ns]) => ns);
      const all = node.busy + node.idle;
      const alone = own && node.children.length ? `, ${ms(own)} without what is below it` : "";
      const facts = [
        ...(path.length ? [["in", path.join(" › ").slice(0, MOST)]] : []),
        ["time", `${ms(all)}, ${share(all)} of it all${alone}`],
        ["of it", parts.map(([key, ns]) => `${(words[key] ?? words.other)[0]} ${number(ns)}`).join(", ") || "nothing"],
      ];
      const list = element("dl", { className: "facts" });
      for (const [key, value] of facts) {
        list.append(element("dt", {}, key), element("dd", {}, element("bdi", {}, value)));
      }
      const buttons = element("p", { className: "owners-tools" });
      if (chosen && isDrawn()) buttons.append(action("Show in the timeline", () => inTimeline(node)));
      if (chosen) buttons.append(action("Enlarge in the picture", () => enlarge(node)));
      else buttons.append("Choose a bar or a row to see more of it.");
      const name = element("h4", {}, element("bdi", {}, node.name.slice(0, MOST)));
      panel.replaceChildren(name, list, buttons);
    };

    bars.addEventListener("click", (event) => {
      const node = drawn[[...bars.children].indexOf(event.target.closest(".icicle > div"))];
      if (!node) return;
      state.top = node === state.top && node.parent ? node.parent : node;
      tellChosen(node.parent ? node : null);
      if (node.parent) grid.reveal(node);
      draw();
    });

    const group = (by) => {
      state.by = by;
      state.root = ownersModel.grown(state.rows, by);
      state.top = state.root;
      tellChosen(null);
      draw();
      grid.show(state.root);
    };

    const by = element("select", {});
    by.addEventListener("change", () => group(by.value));
    const choose = async (rank) => {
      const rows = await ownersModel.read(rank.tree);
      Object.assign(state, { rank, rows });
      const choices = ownersModel.choices(rows, rank.device.kind === "cpu");
      by.replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
      const about = {
        caption,
        steps: perStep(),
        window_ns: rank.summary.window_ns,
        unit: unit(),
        communicates: rows.some(({ key, ns }) => key === "communication" && ns),
      };
      grid = ownersTable.make(place, about, (node) => {
        tellChosen(node);
        draw();
      });
      group(choices[0][0]);
    };

    if (ranks.length > 1) {
      const which = element("select", {});
      which.append(...ranks.map((rank, n) => element("option", { value: String(n) }, String(rank.rank))));
      which.addEventListener("change", () => choose(ranks[Number(which.value)]).catch(fail(box)));
      tools.append(labelled("Rank", which));
    }
    tools.append(labelled("By", by));
    const modes = element("fieldset", {}, element("legend", { className: "unseen" }, "Time of the bars"));
    for (const [mode, word] of Object.entries(MODES)) {
      const radio = element("input", { type: "radio", name: "owners-mode", value: mode, checked: mode === state.mode });
      radio.addEventListener("change", () => {
        state.mode = mode;
        draw();
      });
      modes.append(element("label", {}, radio, ` ${word}`));
    }
    tools.append(modes);

    box.querySelector(".fallback").remove();
    box.append(tools, figure, panel, place);
    await choose(ranks[0]);
    new ResizeObserver(() => draw()).observe(figure);
  };

  const fail = (box) => (error) => {
    const said = box.querySelector(".fallback") ?? element("p", { className: "fallback" });
    said.textContent = `The tree cannot be drawn: ${error.message}. “traceprobe top” lists the same.`;
    box.replaceChildren(box.querySelector("h3"), said);
    root.dataset.ownersReady = "failed";
  };

  // It is made when it is seen: most readers never open the section.
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      build(target, JSON.parse(embedded("report"))).then(() => {
        root.dataset.ownersReady = "1";
      }, fail(target));
    }
  }, { rootMargin: "200px" });
  for (const box of document.querySelectorAll(".owners")) seen.observe(box);
})();
