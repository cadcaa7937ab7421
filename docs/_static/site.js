// Show the first block of the page that has the most of the searched words.
function showMarkedWords() {
  const words = (mark) => {
    const marks = mark.closest("p, li, tr, dt, pre, h1, h2, h3, h4")?.querySelectorAll(".highlighted") ?? [];
    return new Set([...marks].map((one) => one.textContent.toLowerCase())).size;
  };
  const marks = [...document.querySelectorAll("article .highlighted")];
  marks.sort((one, other) => words(other) - words(one))[0]?.scrollIntoView({ block: "center", behavior: "instant" });
}

// What readers with a keyboard or a screen reader need, and Sphinx leaves out.
addEventListener("DOMContentLoaded", () => {
  // Boxes that scroll take the keyboard's focus, so that arrow keys scroll them.
  for (const box of document.querySelectorAll("pre, .table-wrapper, .cell_output .text_html, .mathematics")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  }
  // A hit of the search opens where its words are. Its address carries them: not every browser shares storage between files.
  const query = new URLSearchParams(location.search).get("q");
  document.getElementById("search-results")?.addEventListener("click", ({ target }) => {
    if (target.href) target.search = new URLSearchParams({ highlight: query });
  });
  if (!location.hash) setTimeout(showMarkedWords, 50);  // Sphinx marks them after 10 milliseconds
  // A signature of several lines is one expression, no list of definitions.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dl > dd")) part.role = "none";
});
