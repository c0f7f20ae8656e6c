// Opens what a link or a printer needs, marks the section that is read, offers the embedded result
// as a file and as Markdown. Nothing that the result needs happens here: the page reads the same
// with scripts turned off.
const embedded = (id) => document.getElementById(`traceprobe-${id}`).textContent;

const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without permission, or in an old browser: by way of a selection.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

const followLink = (() => {
  // What the address names; it may be of anybody's making.
  const addressed = () => {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return "";
    }
  };

  // A link to something folded opens everything around it, and the fold that it is.
  const reveal = () => {
    const target = document.getElementById(addressed());
    if (!target) return;
    const own = target.querySelector(":scope > details.folded");
    if (own) own.open = true;
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const e of folded) e.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const e of folded) e.open = false;
  });

  const download = document.getElementById("download");
  download.hidden = false;
  download.addEventListener("click", () => {
    const link = document.createElement("a");
    const text = document.getElementById(download.dataset.source).textContent;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = download.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  const copy = document.getElementById("copy");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const text = JSON.parse(embedded("markdown"));
    await copyText(text);
    const lines = text.split("\n").length - 1;
    document.getElementById("copied").textContent = `Copied ${lines} lines.`;
  });

  // Buttons that lead into the timeline, where there is one.
  if (document.querySelector("#timeline canvas")) {
    for (const button of document.querySelectorAll("button.show")) button.hidden = false;
  }

  // The list of sections: a menu where there is little room, and the current one is marked. Where
  // there is room the style shows it, in browsers that can show what is in a closed fold.
  const menu = document.querySelector("#sections > details");
  const narrow = matchMedia("(max-width: 640px)");
  const styled = CSS.supports("selector(::details-content)");
  const fold = () => { menu.open = !narrow.matches && !styled; };
  fold();
  narrow.addEventListener("change", fold);
  const links = [...menu.querySelectorAll("a")];
  const targets = links.map((link) => document.getElementById(link.hash.slice(1)));
  const title = menu.querySelector("summary");
  for (const [n, link] of links.entries()) {
    link.addEventListener("click", () => {
      fold();
      if (location.hash === link.hash) reveal(); // no change, so no event
      else if (targets[n]) mark(n);
    });
  }
  let current = -1;
  const mark = (n) => {
    if (n === current || n < 0) return;
    links[current]?.removeAttribute("aria-current");
    links[n].setAttribute("aria-current", "true");
    title.textContent = `Sections: ${links[n].textContent}`;
    current = n;
  };
  const look = () => {
    if (scrollY === 0) return mark(0);
    const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const reached = targets.findLastIndex((e) => e && e.getBoundingClientRect().top < innerHeight / 4);
    return mark(end ? links.length - 1 : Math.max(reached, 0));
  };
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; look(); });
  };
  window.addEventListener("scroll", soon, { passive: true });
  window.addEventListener("resize", soon);
  soon();

  const follow = () => {
    if (location.hash) reveal();
  };
  follow();
  return follow;
})();
