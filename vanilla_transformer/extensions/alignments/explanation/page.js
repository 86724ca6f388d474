"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const find = id => document.getElementById(id);
const targetTexts = data.target_tokens.map(token => token.text);
const readTexts = ["<start>", ...targetTexts.slice(0, -1)]; // by the decoder, when it predicts each target token
const KINDS = {
  cross: {
    name: "Translation to source", rows: targetTexts, columns: data.source_tokens,
    queries: "When the model predicts this token of the translation …", keys: "… it attends to the source:",
    note: "Cross-attention. Each row is a token of the translation as it is predicted, and shows where in the source "
      + "the decoder looks.",
  },
  encoder: {
    name: "Source to source", rows: data.source_tokens, columns: data.source_tokens,
    queries: "When the encoder reads this token …", keys: "… it attends to:",
    note: "Self-attention of the encoder. Each row is a token of the source, and shows which others it takes into account.",
  },
  decoder: {
    name: "Translation to itself", rows: targetTexts, columns: readTexts,
    queries: "When the model predicts this token …", keys: "… it attends to the tokens before:",
    note: "Self-attention of the decoder. Each row is a token as it is predicted, from the start symbol and the tokens "
      + "before it.",
  },
};
const view = {kind: null, layer: 0, head: 0, row: 0, step: 0, place: 0};

/* Small helpers. */

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return fill(made, attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/* The text of a token by itself: a part of a word begins with an ellipsis. */
function label(text, before) {
  const shown = text.trim() || (text ? "␣" : "◌");
  return continues(text, before) ? `…${shown}` : shown;
}

function continues(text, before) {
  return /[\p{L}\p{N}\p{M}]$/u.test(before || "") && /^[\p{L}\p{N}\p{M}]/u.test(text);
}

const labels = texts => texts.map((text, place) => label(text, texts[place - 1]));
const isolate = text => `\u2068${text}\u2069`; // a sentence may have tokens of both directions
const shorten = (text, most) => [...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text;
const percent = value => value < 0.001 ? "<0.1%" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
const number = value => value.toFixed(2).replace("-", "−");

/* Tokens and their runners-up. */

function showHeader() {
  find("source").textContent = data.source;
  find("translation").textContent = data.translation;
  const compared = data.steps.reduce((sum, step) => sum + step.length, 0);
  const how = data.num_beams > 1 ? `Beam search with ${data.num_beams} beams` : "Greedy search";
  const facts = [how, `${data.steps.length} steps`, `${compared} hypotheses compared`];
  if (data.is_forced) {
    find("translation-name").textContent = "Given translation";
    facts.unshift(`The model's own translation: ${data.hypotheses[0].text}`);
  }
  find("facts").textContent = facts.join(" · ");
}

function showTokens() {
  const names = labels(targetTexts);
  data.target_tokens.forEach((token, place) => {
    const others = element("span", {class: "others"});
    if (token.rank > 1) others.append(element("span", {}, `${ordinal(token.rank)} most likely`));
    for (const [text, probability] of token.alternatives.filter(other => other[1] >= 0.001))
      others.append(element("span", {}, element("b", {dir: "auto"}, label(text, targetTexts[place - 1])), ` ${percent(probability)}`));
    const bar = element("i");
    bar.style.width = `${100 * token.probability}%`;
    find("token-list").append(element("li", {class: token.probability < 0.5 ? "unsure" : "sure"},
      element("span", {class: "token", dir: "auto"}, names[place]), element("span", {class: "bar"}, bar),
      element("span", {class: "percent"}, percent(token.probability)), others));
  });
}

function ordinal(rank) {
  const ending = {one: "st", two: "nd", few: "rd", other: "th"};
  return rank + ending[new Intl.PluralRules("en", {type: "ordinal"}).select(rank)];
}

/* Attention. */

for (const attention of data.attentions) {
  if (attention.weights !== null)
    attention.weights = Uint8Array.from(atob(attention.weights), byte => byte.charCodeAt(0));
  KINDS[attention.kind].attention = attention;
}

/* The weights of a head as rows of numbers from 0 to 1. A head beyond the last one is the mean of its layer. */
function weightsOf(kind, layer, head) {
  const {heads, rows, columns, weights} = KINDS[kind].attention;
  const chosen = head < heads ? [head] : [...Array(heads).keys()];
  const at = (row, column) => chosen.reduce((sum, each) =>
    sum + weights[((layer * heads + each) * rows + row) * columns + column], 0) / (255 * chosen.length);
  return Array.from({length: rows}, (_, row) => Array.from({length: columns}, (_, column) => at(row, column)));
}

const strength = weight => weight ** 0.7; // small weights stay visible

function paint(canvas, rows, size) {
  canvas.width = rows[0].length * size;
  canvas.height = rows.length * size;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  rows.forEach((row, y) => row.forEach((weight, x) => {
    context.globalAlpha = strength(weight);
    context.fillRect(x * size, y * size, size, size);
  }));
  return canvas;
}

function showKinds() {
  for (const [kind, {name, attention}] of Object.entries(KINDS)) {
    const input = element("input", {type: "radio", name: "kind", value: kind, class: "hidden"});
    input.addEventListener("change", () => chooseKind(kind));
    find("kinds").append(element("label", {}, input, name));
    if (view.kind === null && attention.weights !== null) {
      input.checked = true;
      view.kind = kind;
    }
  }
  if (view.kind === null) find("kinds").querySelector("input").checked = true;
  chooseKind(view.kind ?? "cross");
}

function chooseKind(kind) {
  const {note, attention, rows} = KINDS[kind];
  const exists = attention.weights !== null;
  find("kind-note").textContent = exists ? note
    : "The layers of this model compute this attention without weights (linear or LSH attention): there is nothing to show.";
  find("attention-body").hidden = !exists;
  if (!exists) return;
  const [layer, head] = kind === "cross" && data.alignment_heads.length ? data.alignment_heads[0]
    : [attention.layers - 1, attention.heads];
  Object.assign(view, {kind, layer, head, row: Math.min(view.row, rows.length - 1)});
  showHeads();
  showHead();
}

function headName(layer, head) {
  const {heads} = KINDS[view.kind].attention;
  const aligns = view.kind === "cross" && data.alignment_heads.some(each => each[0] === layer && each[1] === head);
  return `Layer ${layer + 1}, ${head < heads ? `head ${head + 1}` : `mean of ${heads} heads`}`
    + (aligns ? ", which aligns words" : "");
}

function showHeads() {
  const {layers, heads} = KINDS[view.kind].attention, grid = find("heads");
  grid.replaceChildren(grid.querySelector("legend"), element("span"));
  grid.style.gridTemplateColumns = `max-content repeat(${heads + 1}, minmax(1.9rem, ${heads > 8 ? 3.6 : 5.5}rem))`;
  for (let head = 0; head <= heads; head++)
    grid.append(element("span", {}, head === heads ? "mean" : head ? head + 1 : "head 1"));
  for (let layer = 0; layer < layers; layer++) {
    grid.append(element("span", {class: "layer"}, `layer ${layer + 1}`));
    for (let head = 0; head <= heads; head++) {
      const input = element("input", {type: "radio", name: "head", class: "hidden", "aria-label": headName(layer, head)});
      input.checked = layer === view.layer && head === view.head;
      input.addEventListener("change", () => { Object.assign(view, {layer, head}); showHead(); });
      grid.append(element("label", {title: headName(layer, head)}, input, paint(element("canvas"), weightsOf(view.kind, layer, head), 1)));
    }
  }
}

/* Up and down move by a layer; the browser itself moves by a head. */
function moveByLayer(event) {
  const by = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (!by) return;
  event.preventDefault();
  const inputs = [...find("heads").querySelectorAll("input")];
  const next = inputs[inputs.indexOf(event.target) + by * (KINDS[view.kind].attention.heads + 1)];
  if (next) { next.focus(); next.click(); }
}

function showHead() {
  const kind = KINDS[view.kind];
  view.weights = weightsOf(view.kind, view.layer, view.head);
  find("head-name").textContent = headName(view.layer, view.head);
  find("queries-name").textContent = kind.queries;
  find("keys-name").textContent = kind.keys;
  paint(find("scale"), [Array.from({length: 96}, (_, place) => place / 95)], 1);
  find("queries").replaceChildren(...words(kind.rows, "button"));
  find("keys").replaceChildren(...words(kind.columns, "span"));
  [...find("queries").children].forEach((button, row) => {
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => chooseRow(row));
  });
  showMatrix();
  chooseRow(view.row);
}

function words(texts, name) {
  return texts.map((text, place) =>
    element(name, {dir: "auto", ...(continues(text, texts[place - 1]) ? {class: "joined"} : {})}, text.trim() || label(text)));
}

function chooseRow(row) {
  const kind = KINDS[view.kind], weights = view.weights[row], names = labels(kind.columns);
  view.row = row;
  [...find("queries").children].forEach((button, place) => {
    button.setAttribute("aria-checked", place === row);
    button.tabIndex = place === row ? 0 : -1;
  });
  [...find("keys").children].forEach((word, place) => {
    const share = Math.round(100 * strength(weights[place]));
    word.style.background = `color-mix(in srgb, var(--accent) ${share}%, transparent)`;
    word.style.color = share > 55 ? "var(--on-accent)" : "";
    word.title = percent(weights[place]);
  });
  const best = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 3).filter(place => weights[place] >= 0.01);
  const list = best.map(place => `${isolate(names[place])} ${percent(weights[place])}`).join(", ");
  find("row-note").textContent = `${isolate(label(kind.rows[row], kind.rows[row - 1]))} → ${list}`;
  const {left, top, size, columns, rows} = view.matrix;
  fill(rows.frame, {y: top + row * size, x: left, width: size * columns, height: size}, []);
  rows.names.forEach((name, place) => name.setAttribute("class", place === row ? "selected" : ""));
}

function moveInRow(event) {
  const by = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key], buttons = find("queries").children;
  const next = buttons[view.row + by];
  if (!by) return;
  event.preventDefault();
  if (next) { chooseRow(view.row + by); next.focus(); }
}

function showMatrix() {
  const kind = KINDS[view.kind], rowNames = labels(kind.rows), columnNames = labels(kind.columns);
  const width = text => Math.min(7.2 * [...text].length, 100) + 8;
  const left = Math.ceil(Math.max(...rowNames.map(width))), columns = columnNames.length;
  const room = window.innerWidth < 704 ? find("attention").clientWidth - 30 : 640;
  const size = Math.max(13, Math.min(26, Math.floor((room - left - 24) / columns)));
  const angle = size < 18 ? 68 : 45, radians = angle * Math.PI / 180;
  const top = Math.ceil(Math.max(...columnNames.map(width)) * Math.sin(radians) + 10);
  const right = Math.ceil(width(columnNames[columns - 1]) * Math.cos(radians));
  const names = rowNames.map((name, row) => drawing("text",
    {x: left - 6, y: top + (row + 0.5) * size, "text-anchor": "end", "dominant-baseline": "central"}, shorten(name, 14)));
  const heads = columnNames.map((name, column) => {
    const x = left + (column + 0.5) * size, y = top - 5;
    return drawing("text", {x, y, transform: `rotate(-${angle} ${x} ${y})`, "dominant-baseline": "central"}, shorten(name, 14));
  });
  const place = {x: left, y: top, width: size * columns, height: size * rowNames.length};
  const cells = paint(element("canvas"), view.weights, 2 * size);
  const frame = drawing("rect", {class: "selected"});
  const picture = drawing("svg", {width: left + size * columns + right, height: top + size * rowNames.length + 2, "aria-hidden": true},
    drawing("rect", {class: "frame", ...place}), drawing("image", {...place, href: cells.toDataURL()}), ...names, ...heads, frame);
  view.matrix = {left, top, size, columns, rows: {frame, names}};
  const rowAt = event => Math.floor((event.clientY - picture.getBoundingClientRect().top - top) / size);
  picture.addEventListener("click", event => { if (view.weights[rowAt(event)]) chooseRow(rowAt(event)); });
  picture.addEventListener("pointermove", event => {
    const row = rowAt(event), column = Math.floor((event.clientX - picture.getBoundingClientRect().left - left) / size);
    const weight = (view.weights[row] || [])[column];
    if (weight !== undefined) find("row-note").textContent = `${isolate(rowNames[row])} → ${isolate(columnNames[column])} ${percent(weight)}`;
  });
  picture.addEventListener("pointerleave", () => chooseRow(view.row));
  find("matrix").replaceChildren(picture);
}

/* The search: a column for each step, with its hypotheses in the order of their log-probability. */

const NODE = {width: 88, height: 34, across: 116, down: 42, top: 24};

function showSearch() {
  find("search-note").textContent = (data.num_beams > 1
    ? `Each step continues the ${data.num_beams} best hypotheses by their most likely tokens and keeps the best ones again. `
    : "Each step takes the most likely token. ")
    + "The number of a hypothesis is its log-probability; if it is finished, its score: the log-probability divided by the "
    + "length penalty. Choose one to follow its path.";
  data.hypotheses.forEach(({text, score, place}, rank) => {
    const button = element("button", {type: "button"}, element("span", {class: "number"}, `${rank + 1}.`),
      element("span", {class: "number"}, number(score)), element("span", {dir: "auto"}, text || "(empty)"));
    button.addEventListener("click", () => { chooseNode(...place); scrollToStep(place[0]); });
    find("hypotheses").append(element("li", {}, button));
  });
  const rows = Math.max(...data.steps.map(step => step.length));
  const picture = drawing("svg", {width: data.steps.length * NODE.across, height: NODE.top + rows * NODE.down});
  const edges = drawing("g"), nodes = drawing("g");
  const ranks = new Map(data.hypotheses.map(({place}, rank) => [String(place), rank + 1]));
  data.steps.forEach((step, column) => {
    nodes.append(drawing("text", {class: "small", x: column * NODE.across + 2, y: 12}, `step ${column + 1}`));
    step.forEach((node, place) => {
      node.edge = drawing("path", {d: edgeTo(column, place, node.parent)});
      node.mark = nodeMark(node, column, place, ranks.get(String([column, place])));
      edges.append(node.edge);
      nodes.append(node.mark);
    });
  });
  picture.append(edges, nodes);
  find("tree").append(picture);
  chooseNode(...(data.hypotheses.length ? data.hypotheses[0].place : [0, 0]));
}

function edgeTo(column, place, parent) {
  if (!column) return "";
  const middle = row => NODE.top + row * NODE.down + NODE.height / 2;
  const start = (column - 1) * NODE.across + NODE.width + 2, end = column * NODE.across + 2, half = (start + end) / 2;
  return `M${start} ${middle(parent)}C${half} ${middle(parent)} ${half} ${middle(place)} ${end} ${middle(place)}`;
}

function nodeMark(node, column, place, rank) {
  const x = column * NODE.across + 2, y = NODE.top + place * NODE.down;
  const before = column ? data.steps[column - 1][node.parent].text : "", name = label(node.text, before);
  const value = number(node.state === "finished" ? node.score : node.log_probability);
  const mark = drawing("g", {class: `node ${node.state} ${rank ? "best" : ""}`, tabindex: -1, role: "button",
    "aria-label": `Step ${column + 1}: ${name}, ${node.state}, ${value}`},
    drawing("rect", {x, y, width: NODE.width, height: NODE.height, rx: 6}),
    drawing("text", {x: x + 7, y: y + 15}, shorten(name, 11)),
    drawing("text", {class: "small", x: x + 7, y: y + 28}, value + (rank ? ` · no. ${rank}` : "")));
  mark.addEventListener("click", () => chooseNode(column, place));
  mark.addEventListener("keydown", moveInTree);
  return mark;
}

function pathTo(column, place) {
  const path = [];
  for (; column >= 0; column--) {
    path.unshift(data.steps[column][place]);
    place = path[0].parent;
  }
  return path;
}

const MEANINGS = {
  kept: "kept: the next step continued it",
  dropped: "dropped: others were better",
  unfinished: "unfinished: the search ended, since it could not beat the finished ones any more",
  finished: "finished, but others are better",
};

function chooseNode(column, place) {
  const path = pathTo(column, place), node = path[path.length - 1];
  for (const {mark, edge} of data.steps.flat()) {
    mark.classList.remove("on");
    edge.removeAttribute("class");
    mark.setAttribute("tabindex", -1);
  }
  for (const {mark, edge} of path) {
    mark.classList.add("on");
    edge.setAttribute("class", "on");
    edge.parentNode.append(edge); // above the others
  }
  node.mark.setAttribute("tabindex", 0);
  Object.assign(view, {step: column, place});
  const rank = data.hypotheses.findIndex(each => String(each.place) === String([column, place]));
  const meaning = rank < 0 ? MEANINGS[node.state] : `finished: number ${rank + 1} of the translations`;
  const text = path.map(each => each.text).filter(each => !data.special_tokens.includes(each)).join("").trim();
  find("node-note").textContent = `${isolate(text)} (${meaning}; log-probability ${number(node.log_probability)}, `
    + `score ${number(node.score)})`;
  [...find("hypotheses").children].forEach((item, each) => item.firstChild.setAttribute("aria-pressed", each === rank));
}

function scrollToStep(column) {
  const box = find("tree"), left = column * NODE.across;
  if (left < box.scrollLeft || left + NODE.across > box.scrollLeft + box.clientWidth)
    box.scrollLeft = left - box.clientWidth / 2;
}

function moveInTree(event) {
  const {step, place} = view, children = data.steps[step + 1] || [];
  const next = {
    ArrowUp: [step, place - 1],
    ArrowDown: [step, place + 1],
    ArrowLeft: [step - 1, data.steps[step][place].parent],
    ArrowRight: [step + 1, children.findIndex(node => node.parent === place)],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const node = (data.steps[next[0]] || [])[next[1]];
  if (!node) return;
  chooseNode(...next);
  scrollToStep(next[0]);
  node.mark.focus({preventScroll: true});
}

showHeader();
showTokens();
showKinds();
showSearch();
find("heads").addEventListener("keydown", moveByLayer);
find("queries").addEventListener("keydown", moveInRow);
const redraw = () => { if (!find("attention-body").hidden) { showHeads(); showHead(); } };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
