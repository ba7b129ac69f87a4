// Elements of the page: made of texts, never of markup, so that names of a model stay names.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

/** An element of SVG. */
function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const linkTo = (text, act, more = {}) =>
  element("button", { type: "button", class: "link", onclick: act, ...more }, text);

/** A table; rows are lists of cells, texts or elements, and those of `numbers` stand right. */
function table(headings, rows, numbers = [], more = {}) {
  if (more.class?.includes("columns")) return tableOfColumns(headings, rows, numbers, more);
  const cell = (tag) => (child, at) =>
    element(tag, numbers.includes(at) ? { class: "number" } : {}, child ?? "");
  return tableOf(headings, rows, cell, more);
}

/**
 * A table whose columns keep their widths, whatever else is in a row: numbers have what the longest
 * takes, bars what the style says, and texts share the rest. What a text has no room for is its title.
 */
function tableOfColumns(headings, rows, numbers, more) {
  const kinds = headings.map((text, at) => (numbers.includes(at) ? "number" : text ? "text" : "drawn"));
  const cells = (at) => rows.map((row) => String((row.cells ?? row)[at] ?? "").length);
  const letters = kinds.map((kind, at) => (kind === "number" ? Math.max(headings[at].length, ...cells(at)) : 0));
  const count = (kind) => kinds.filter((one) => one === kind).length;
  const least = `calc(${letters.reduce((sum, one) => sum + one, 0)}ch + ${count("number")} * var(--beside) + ${count("text")} * var(--least-text))`;
  const cell = (tag) => (child, at) => {
    const made = element(tag, { class: kinds[at] }, child ?? "");
    if (kinds[at] === "text" && made.textContent) made.title = made.textContent;
    return made;
  };
  const made = tableOf(headings, rows, cell, { style: `min-width:${least}`, ...more });
  made.prepend(element("colgroup", {}, kinds.map((kind, at) =>
    element("col", { class: kind, style: kind === "number" ? `width:calc(${letters[at]}ch + var(--beside))` : false }))));
  return made;
}

function tableOf(headings, rows, cell, more) {
  const head = headings.length
    ? element("thead", {}, element("tr", {}, headings.map(cell("th")))) : null;
  const body = rows.map((row) =>
    element("tr", row.attributes ?? {}, (row.cells ?? row).map(cell("td"))));
  return element("table", more, head, element("tbody", {}, body));
}

/** A drawing of the server's, whose names are texts in it. */
const drawing = (svg) =>
  document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);

const errorBox = (error) =>
  element("div", { class: "error", role: "alert" },
    [error.what, error.where && `at: ${error.where}`, error.hint && `try: ${error.hint}`]
      .filter(Boolean).join("\n"));

const TOKENS = {
  c: new RegExp(
    String.raw`(?<c>/\*[\s\S]*?\*/|//[^\n]*)|(?<s>"(?:[^"\\\n]|\\.)*")|(?<k>^#.*|\b(?:for|if|else|` +
    String.raw`while|return|const|static|void|restrict|typedef|enum|do)\b)|(?<t>\b(?:bf|[iuf])\d+` +
    String.raw`(?:x\d+)?(?:_memory)?\b|\b(?:int|char|float|double|intptr_t)\b)|(?<n>\b\d[\w.+]*)`, "gm"),
  ir: new RegExp(
    String.raw`(?<c>//[^\n]*)|(?<s>"(?:[^"\\\n]|\\.)*")|(?<t>[!#][\w.$-]+|\b(?:tensor|memref|vector|` +
    String.raw`index)\b|\b(?:bf|f|i|u|si|ui)\d+\b)|(?<k>%[\w.$-]+|\^[\w.$-]+|@[\w.$-]+)|` +
    String.raw`(?<o>(?<![\w.])[a-z_]+\.[A-Za-z_][\w.]*)|(?<n>(?<![\w.%])-?\d+(?:\.\d+)?\b)`, "g"),
  python: new RegExp(
    String.raw`(?<c>#[^\n]*)|(?<s>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?<k>\b(?:and|as|class|def|elif|else|` +
    String.raw`for|from|if|import|in|is|lambda|not|or|return|while|with|yield|None|True|False)\b)|` +
    String.raw`(?<o>\b\w+(?=\())|(?<n>(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?\b)`, "g"),
  pgraph: new RegExp(
    String.raw`(?<c>#[^\n]*)|(?<s>"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*")|(?<k>\b(?:graph|def|train|` +
    String.raw`weight|opset|import|if|else|loop|for|in|with|return|loss|optimizer)\b)|` +
    String.raw`(?<t>\b(?:bf|f|i|u)\d+\b)|(?<o>\b[A-Z]\w*(?=\())|(?<n>(?<![\w.])-?\d+(?:\.\d+)?\b)`, "g"),
};

/** The language of the text in which nodes were written. */
const languageOf = (file) => (file.endsWith(".pgraph") ? "pgraph" : "python");

/** A text in colours, as nodes. */
function coloured(text, language) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS[language])) {
    if (match.index > end) found.push(text.slice(end, match.index));
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    found.push(element("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  found.push(text.slice(end));
  return found;
}

const code = (text, language, wrap = false) =>
  element("div", { class: wrap ? "code wrap" : "code", tabindex: "0" },
    element("pre", {}, coloured(text, language)));
