"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;
  const box = document.getElementById("filter");
  const status = document.getElementById("filter-status");
  const theme = document.getElementById("theme");
  const groups = all("[data-group]");
  const folds = all("[data-fold]").map((node) => ({ node, open: null }));
  const PAGE = 25;
  let items = null;
  let words = [];

  // ---- colours: the system's wish until the reader says otherwise; a page from disk may not be allowed to remember
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const paint = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
  const kept = (value) => { try { return value ? localStorage.setItem("causalcast-theme", value) : localStorage.getItem("causalcast-theme"); } catch { return null; } };
  const wanted = kept();
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; kept(root.dataset.theme); paint(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();

  // ---- tables: rows are data, a page of them at a time is in the document
  const table = (node) => {
    const rows = JSON.parse(node.querySelector("script").textContent);
    const texts = rows.map((row) => row.join(" ").toLowerCase());
    const heads = all("th", node);
    const kinds = heads.map((head, i) => ({ number: head.classList.contains("n"), code: node.querySelector(`tbody td:nth-child(${i + 1}) code`) !== null }));
    const body = node.querySelector("tbody");
    const pager = node.querySelector(".pager");
    const place = pager.querySelector("output");
    const [back, on] = all("button", pager);
    let order = rows.map((_, i) => i);
    let shown = order;
    let first = 0;
    const cell = (value, { number, code }) => {
      const td = document.createElement("td");
      if (number) td.className = "n";
      const into = code ? td.appendChild(document.createElement("code")) : td;
      into.textContent = typeof value === "number" ? value.toLocaleString("en-US") : value;
      return td;
    };
    const draw = () => {
      body.replaceChildren(...shown.slice(first, first + PAGE).map((i) => {
        const tr = document.createElement("tr");
        tr.append(...rows[i].map((value, at) => cell(value, kinds[at])));
        return tr;
      }));
      const last = Math.min(first + PAGE, shown.length);
      place.textContent = shown.length ? `${(first + 1).toLocaleString("en-US")} to ${last.toLocaleString("en-US")} of ${shown.length.toLocaleString("en-US")}` : "none";
      back.disabled = first === 0;
      on.disabled = last >= shown.length;
      pager.hidden = rows.length <= PAGE;
    };
    const filter = () => {
      shown = words.length ? order.filter((i) => words.every((word) => texts[i].includes(word))) : order;
      first = 0;
      draw();
      return shown.length;
    };
    pager.addEventListener("click", (event) => {
      const step = Number(event.target.dataset.step || 0);
      if (step) { first += step * PAGE; draw(); }
    });
    all(".sort", node).forEach((button, at) => button.addEventListener("click", () => {
      const head = heads[at];
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const by = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      order = [...order].sort((a, b) => by(rows[a][at], rows[b][at]) * (down ? -1 : 1));
      filter();
    }));
    draw();
    return { size: rows.length, filter };
  };
  const tables = all("[data-table]").map(table);

  // ---- search: a finding is also found by its kind, which stands in the heading of its group
  const read = (node) => {
    const group = node.closest("[data-group]");
    return { node, text: `${group ? group.firstElementChild.textContent : ""} ${node.textContent}`.toLowerCase() };
  };
  const filter = () => {
    words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    items ??= all("[data-item]").map(read);
    let shown = 0;
    let size = items.length;
    for (const { node, text } of items) {
      const match = words.every((word) => text.includes(word));
      node.hidden = !match;
      shown += match;
    }
    for (const part of tables) {
      shown += part.filter();
      size += part.size;
    }
    for (const group of groups) {
      group.hidden = words.length > 0 && !group.querySelector("[data-item]:not([hidden])");
    }
    for (const fold of folds) {
      if (words.length === 0) {
        if (fold.open !== null) fold.node.open = fold.open;
        fold.open = null;
      } else {
        fold.open ??= fold.node.open;
        fold.node.open = fold.node.querySelector("[data-item]:not([hidden])") !== null;
      }
    }
    status.textContent = words.length ? `${shown.toLocaleString("en-US")} of ${size.toLocaleString("en-US")} match` : "";
  };
  const search = (text) => { box.value = text; filter(); };

  // ---- findings: by link and by key
  const follow = () => {
    const target = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    if (!target) return;
    if (target.closest("[hidden]")) search("");
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    target.scrollIntoView();
    const control = target.tagName === "DETAILS" ? target.firstElementChild : target;
    control.focus({ preventScroll: true });
  };
  const step = (by) => {
    const stops = all(".finding > summary").filter((node) => !node.closest("[hidden]"));
    const finding = document.activeElement?.closest(".finding");
    const here = stops.indexOf(finding?.firstElementChild);
    const next = here < 0 ? stops[by > 0 ? 0 : stops.length - 1] : stops[here + by];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  box.addEventListener("input", filter);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target === box;
    const onFinding = document.activeElement?.matches(".finding > summary");
    if (event.key === "/" && !writing) {
      box.focus();
      box.select();
    } else if (event.key === "Escape" && box.value) {
      search("");
    } else if (writing ? event.key === "Enter" || event.key === "ArrowDown" : event.key === "j" || (onFinding && event.key === "ArrowDown")) {
      step(1);
    } else if (!writing && (event.key === "k" || (onFinding && event.key === "ArrowUp"))) {
      step(-1);
    } else {
      return;
    }
    event.preventDefault();
  });
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const named = event.target.closest("[data-search]");
    if (named) {
      search(named.dataset.search);
      document.getElementById("findings").scrollIntoView();
      box.focus({ preventScroll: true });
    }
    // A link to where one already is changes no hash, and is still meant to lead there.
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) search(asked);
  follow();
})();
