"use strict";
// Asks for the page again and puts what is new in place of what is old, so that nothing flickers.
(() => {
  const every = 3000;
  const answer = document.getElementById("answer");
  const boxes = () => [...document.querySelectorAll(".picture, .wide")];
  async function again() {
    if (document.hidden) return;
    try {
      const response = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!response.ok) throw new Error(response.status);
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = next.getElementById("live");
      const live = document.getElementById("live");
      if (fresh && !String(getSelection()) && fresh.innerHTML !== live.innerHTML) {
        const at = boxes().map((box) => [box.scrollLeft, box.scrollTop]);
        live.replaceWith(fresh);
        boxes().forEach((box, i) => box.scrollTo(...(at[i] ?? [0, 0])));
      }
      document.title = next.title;
      answer.textContent = "live";
      answer.className = "answer";
    } catch {
      answer.textContent = "no answer from trickle run";
      answer.className = "answer lost";
    }
  }
  const loop = () => again().finally(() => setTimeout(loop, every));
  setTimeout(loop, every);
  document.addEventListener("visibilitychange", again);
})();
