"use strict";
(() => {
  const box = document.getElementById("filter");
  const status = document.getElementById("filter-status");
  const folds = [...document.querySelectorAll("[data-fold]")].map((node) => ({ node, open: null }));
  const groups = [...document.querySelectorAll("[data-group]")];
  let items = null;

  // A finding is also found by its kind, which stands in the heading of its group.
  const read = (node) => {
    const group = node.closest("[data-group]");
    return { node, text: `${group ? group.firstElementChild.textContent : ""} ${node.textContent}`.toLowerCase() };
  };

  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    items ??= [...document.querySelectorAll("[data-item]")].map(read);
    let shown = 0;
    for (const { node, text } of items) {
      const match = words.every((word) => text.includes(word));
      node.hidden = !match;
      shown += match;
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
    status.textContent = words.length ? `${shown} of ${items.length} match` : "";
  };

  const follow = () => {
    const target = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    if (!target) return;
    if (target.closest("[hidden]")) {
      box.value = "";
      filter();
    }
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    target.scrollIntoView();
    const control = target.tagName === "DETAILS" ? target.firstElementChild : target;
    control.focus({ preventScroll: true });
  };

  box.addEventListener("input", filter);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== box && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      box.focus();
      box.select();
    } else if (event.key === "Escape" && box.value) {
      box.value = "";
      filter();
    }
  });
  window.addEventListener("hashchange", follow);
  // A link to where one already is changes no hash, and is still meant to lead there.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    box.value = asked;
    filter();
  }
  follow();
})();
