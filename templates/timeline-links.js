// Addresses of a view (#t=12.300-14.100&rank=1&window=slowest) and buttons elsewhere on the page
// that show something in the timeline: data-show="idle_sync,idle_host", or a time of a rank as
// data-show-time="0:12300000-14100000", in ns after the time zero of its input.
const timelineLinks = (() => {
  const REST = 250; // ms without a change before the address follows
  let own = ""; // the address that was written last
  let rank = null;

  const wanted = () => {
    const found = {};
    const hash = location.hash.slice(1);
    if (!/(^|&)(t|rank|window)=/.test(hash)) return found;
    const fields = new URLSearchParams(hash);
    const times = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(fields.get("t") ?? "");
    if (times && Number(times[2]) > Number(times[1])) {
      found.from = Number(times[1]) * 1e6;
      found.to = Number(times[2]) * 1e6;
    }
    if (/^\d+$/.test(fields.get("rank") ?? "")) found.rank = Number(fields.get("rank"));
    if (fields.get("window")) found.window = fields.get("window");
    return { ...found, isView: true };
  };

  const follow = async (line) => {
    const { from, to, window: key, rank: asked, isView } = wanted();
    if (!isView || location.hash === own) return;
    if (key) await line.load(key).catch((error) => line.say(`It cannot be drawn: ${error.message}.`));
    if (asked !== undefined) {
      rank = asked;
      line.unfold(asked);
    }
    if (from !== undefined) line.show(from, to);
    line.scroll();
  };

  const remember = (line) => {
    const { from, to } = line.view();
    const { key, whole } = line.model();
    const fields = [];
    if (to - from < whole) fields.push(`t=${(from / 1e6).toFixed(6)}-${(to / 1e6).toFixed(6)}`);
    rank = line.model().ranks.length > 1 ? (line.current()?.rank.rank ?? rank) : rank;
    if (rank !== null) fields.push(`rank=${rank}`);
    if (key !== line.keys[0]) fields.push(`window=${key}`);
    const hash = fields.length ? `#${fields.join("&")}` : "";
    if (hash === location.hash || (!hash && location.hash !== own)) return;
    own = hash;
    try {
      history.replaceState(history.state, "", hash || location.pathname + location.search);
    } catch {
      own = location.hash; // a frame without an address
    }
  };

  // Which window of which rank holds that time; `place` is -1 where none does.
  const placeOf = (line, text) => {
    const found = /^(\d+):(\d+)-(\d+)$/.exec(text);
    if (!found) return { place: -1 };
    const [number, from, to] = found.slice(1).map(Number);
    const source = line.sources.find((r) => r.rank === number);
    const windows = source?.picture.windows ?? [];
    const place = windows.findIndex((w) => from < w.start_ns + w.duration_ns && to > w.start_ns);
    return { number, from, to, source, place };
  };

  const showTime = async (line, text) => {
    const { number, from, to, source, place } = placeOf(line, text);
    line.scroll();
    if (place < 0) {
      line.say("That time is in none of the iterations that are drawn here.");
      return;
    }
    const key = line.keysOf(source)[place];
    try {
      await line.load(key);
    } catch (error) {
      line.say(`It cannot be drawn: ${error.message}.`);
      return;
    }
    line.unfold(number);
    const shown = line.model().ranks.find((r) => r.rank === number);
    const shift = shown.shift - shown.window.start_ns;
    const room = 0.5 * (to - from);
    line.show(from + shift - room, to + shift + room);
    line.select(from + shift, to + shift);
    line.measure();
  };

  const listen = (line) => {
    let resting = 0;
    let isReady = false;
    line.onChange(() => {
      clearTimeout(resting);
      if (isReady) resting = setTimeout(remember, REST, line);
    });
    window.addEventListener("hashchange", () => {
      clearTimeout(resting); // the reader's address stays
      follow(line);
    });
    for (const button of document.querySelectorAll("[data-show-time]")) {
      button.classList.toggle("outside", placeOf(line, button.dataset.showTime).place < 0);
    }
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-show], [data-show-time]");
      if (!button) return;
      const { show, showTime: text } = button.dataset;
      if (text) {
        showTime(line, text);
        return;
      }
      const classes = show.split(",").map((key) => key.trim()).filter(Boolean);
      const isOn = button.getAttribute("aria-pressed") === "true";
      line.light(isOn ? null : timelineLight.classes(classes));
      if (!button.closest(".timeline-figure")) line.scroll();
    });
    follow(line).then(() => {
      isReady = true;
    });
  };

  return { wanted, listen };
})();
