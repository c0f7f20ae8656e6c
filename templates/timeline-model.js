// What a timeline draws at once: the windows of all ranks that stand for the same, on one axis.
const timelineModel = (() => {
  // The windows of a rank by what they stand for; a word that it has twice gets a number.
  const keysOf = (rank) => {
    const seen = {};
    return rank.picture.windows.map(({ why }) => {
      seen[why] = (seen[why] ?? 0) + 1;
      return seen[why] > 1 ? `${why}-${seen[why]}` : why;
    });
  };
  const windowOf = (rank, key) => rank.picture.windows[keysOf(rank).indexOf(key)];

  // Where the critical path goes on on another rank: pairs of {rank, lane, n}, in the order of time.
  const jumps = (ranks) => {
    const found = ranks.flatMap((rank) =>
      rank.lanes
        .filter((lane) => lane.kind === "path")
        .flatMap((lane) => Array.from(lane.start, (_, n) => ({ lane, n }))),
    );
    found.sort((a, b) => a.lane.start[a.n] - b.lane.start[b.n]);
    return found.slice(1).map((next, k) => [found[k], next]).filter(([a, b]) => a.lane !== b.lane);
  };

  // {ranks, whole, oneClock, key}; `lanes` of the ranks are in ns from the axis' zero on, which is
  // where the first of them begins. Without a common clock each begins there.
  const read = async (sources, key, stretches) => {
    const present = sources.filter((rank) => windowOf(rank, key));
    const windows = present.map((rank) => windowOf(rank, key));
    const oneClock =
      present.every((rank) => Number.isSafeInteger(rank.picture.clock_ns)) &&
      windows.every((window) => window.iteration === windows[0].iteration);
    const starts = windows.map((w, k) => w.start_ns + (oneClock ? present[k].picture.clock_ns : 0));
    const zero = Math.min(...starts);
    const data = await Promise.all(present.map((r, k) => timelineData.read(r.picture, windows[k])));
    const ranks = present.map(({ rank, picture, device }, k) => {
      const shift = oneClock ? starts[k] - zero : 0;
      const own = stretches.filter((stretch) => stretch.rank === rank);
      const queue = device.kind === "cpu" ? "thread" : "stream"; // what runs one after the other
      const lanes = timelineLanes.ofRank(picture, data[k], shift, windows[k], own, queue);
      const window = windows[k];
      return { rank, picture, window, data: data[k], shift, lanes, queue, folded: k > 0 };
    });
    const whole = Math.max(...ranks.map((r) => r.shift + r.window.duration_ns));
    return { ranks, whole, oneClock, key, jumps: oneClock ? jumps(ranks) : [] };
  };

  return { keysOf, windowOf, read };
})();
