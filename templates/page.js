// Opens what a link or a printer needs, offers the embedded result as a file and as Markdown.
// Nothing that the result needs happens here: the page reads the same with scripts turned off.
const followLink = (() => {
  const embedded = (id) => document.getElementById(id).textContent;

  // A link to something folded opens everything around it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
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
    const blob = new Blob([embedded(download.dataset.source)], { type: "application/json" });
    link.href = URL.createObjectURL(blob);
    link.download = download.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  const copy = document.getElementById("copy");
  const copied = document.getElementById("copied");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const text = JSON.parse(embedded("traceprobe-markdown"));
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
    copied.textContent = `Copied ${text.split("\n").length - 1} lines.`;
  });

  const follow = () => {
    if (location.hash) reveal();
  };
  follow();
  return follow;
})();
