// The theme of all pages: the one that the reader chose on any of them, otherwise the system's.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let here = null;  // in place of the browser's storage, which may be blocked
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return here; } };
  const current = () => (["light", "dark"].includes(chosen()) ? chosen() : system.matches ? "dark" : "light");
  function show(theme) {
    for (const element of [document.documentElement, document.body]) if (element) element.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-pressed", theme === "dark");
    document.dispatchEvent(new Event("themechange"));
  }
  show(current());  // before anything is drawn
  addEventListener("DOMContentLoaded", () => show(current()));
  system.addEventListener("change", () => show(current()));
  addEventListener("storage", () => show(current()));  // chosen in another tab
  document.addEventListener("click", ({ target }) => {
    if (target.id !== "theme") return;
    here = current() === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", here); } catch { /* blocked */ }
    show(here);
  });
})();
