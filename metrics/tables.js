// Every table can be copied, for a spreadsheet or a message: cells between tabs, a line per row.
function tabbed(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join("\t")).join("\n") + "\n";
}

document.querySelectorAll(".card table").forEach((table) => {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "copy";
  button.onclick = async () => {
    await navigator.clipboard.writeText(tabbed(table));
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1500);
  };
  table.parentElement.before(button);
});
