"use strict";
for (const episode of document.querySelectorAll(".episode")) {
  const turns = [...episode.querySelectorAll(".turn")];
  const heads = [...episode.querySelectorAll(".timeline a")];
  const rows = [...episode.querySelectorAll(".timeline tr")];
  const buttons = [...episode.querySelectorAll("[data-step]")];
  let at = 0;
  const show = (n) => {
    at = Math.min(Math.max(n, 0), turns.length - 1);
    turns.forEach((turn, i) => turn.classList.toggle("shown", i === at));
    heads.forEach((head, i) => {
      if (i === at) head.setAttribute("aria-current", "step");
      else head.removeAttribute("aria-current");
    });
    for (const row of rows) {
      [...row.children].forEach((cell, i) => cell.classList.toggle("now", i === at + 1 && cell.colSpan === 1));
    }
    episode.style.setProperty("--reached", (at + 1) / turns.length);
    for (const button of buttons) {
      const to = at + Number(button.dataset.step);
      button.disabled = to < 0 || to >= turns.length;
    }
  };
  heads.forEach((head, i) => head.addEventListener("click", (event) => {
    event.preventDefault();
    show(i);
  }));
  for (const button of buttons) {
    button.addEventListener("click", () => show(at + Number(button.dataset.step)));
  }
  episode.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(at + step);
  });
  show(turns.findIndex((turn) => !turn.querySelector(".none")));
}
document.body.classList.add("js");
