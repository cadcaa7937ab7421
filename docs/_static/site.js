// What readers with a keyboard or a screen reader need, and Sphinx leaves out.
addEventListener("DOMContentLoaded", () => {
  // Boxes that scroll take the keyboard's focus, so that arrow keys scroll them.
  for (const box of document.querySelectorAll("pre, .table-wrapper, .mathematics")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  }
  // A signature of several lines is one expression, no list of definitions.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dl > dd")) part.role = "none";
});
