// Names for the search and for the buttons of each code block, no headings of tables without text, and keyboard access
// to blocks that scroll sideways.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("th:empty").forEach((cell) => cell.replaceWith(document.createElement("td")));
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  const improve = () => {
    document.querySelectorAll(".md-code__nav").forEach((nav, number) => {
      nav.setAttribute("aria-label", `Code block ${number + 1}`);
    });
    document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((box) => {
      if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
    });
  };
  improve();
  window.addEventListener("load", improve);
  window.addEventListener("resize", improve);
  new MutationObserver(improve).observe(document.body, { childList: true, subtree: true });
});
