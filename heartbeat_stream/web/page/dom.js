// Making elements, and changing no more of the page than what is different: whoever has selected
// something, or is being read to, is not disturbed.

export const byId = (id) => document.getElementById(id);

/** An element with properties (class as className) and children: nodes, or text. */
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setLink(node, text, address) {
  const link = node.querySelector("a") ?? node.appendChild(make("a"));
  setText(link, text);
  if (link.getAttribute("href") !== address) link.setAttribute("href", address);
}

/**
 * Fill a table's body. A cell is a text, or [text, class], or [text, class, address] for a link; the
 * first of each row is its heading. A column has links in all of its rows, or in none.
 */
export function fillRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, number) => {
    const row = body.rows[number] ?? body.insertRow();
    cells.forEach((cell, column) => {
      const [text, name, address] = Array.isArray(cell) ? cell : [cell, ""];
      let node = row.cells[column];
      if (!node) {
        node = make(column ? "td" : "th");
        if (!column) node.scope = "row";
        row.append(node);
      }
      if (address) setLink(node, text, address);
      else setText(node, text);
      if (node.className !== name) node.className = name;
    });
  });
}
