"use strict";

const settings = JSON.parse(document.getElementById("data").textContent);
const {limits} = settings;
const find = id => document.getElementById(id);

/* Small helpers. */

class Problem extends Error {} // whose message the page shows

const count = number => number.toLocaleString("en");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/* The tag by which browsers and screen readers know a language, or nothing for other codes. */
function languageTag(code) {
  try {
    return Intl.getCanonicalLocales((code ?? "").replaceAll("_", "-"))[0] ?? "";
  } catch {
    return "";
  }
}

/* Requests. */

async function request(content, signal) {
  const body = JSON.stringify({...content, ...chosenLanguages()});
  const size = new Blob([body]).size;
  const most = content.format ? limits.max_document_bytes : limits.max_body_bytes;
  if (size > most)
    throw new Problem(`A request may have at most ${count(most)} bytes, got ${count(size)}.`);
  const headers = {"Content-Type": "application/json"};
  return (await fetchFrom("translate", {method: "POST", headers, body, signal})).translations;
}

async function fetchFrom(path, options) {
  const key = String.fromCharCode(...new TextEncoder().encode(find("key").value));  // a header has bytes, not letters
  const headers = settings.needs_key ? {...options.headers, Authorization: `Bearer ${key}`} : options.headers;
  const answer = await fetch(path, {...options, headers}).catch(error => {
    throw error.name === "AbortError" ? error : new Problem("The service does not answer. Try again later.");
  });
  const result = await answer.json().catch(() => ({}));
  if (answer.ok) return result;
  if (answer.status === 401 || answer.status === 403) {
    find("key").focus();
    throw new Problem("The service needs a valid API key.");
  }
  throw new Problem(result.detail ?? result.error ?? `The service answered with status ${answer.status}.`);
}

/* Run the work of a form, and show how it ends. Sending the form again stops the earlier work. */
function onSubmit(name, work) {
  let current = null;
  find(`${name}-form`).addEventListener("submit", async event => {
    event.preventDefault();
    current?.abort();
    const running = current = new AbortController();
    const say = (kind, text) => { if (running === current) find(`${name}-${kind}`).textContent = text; };
    say("error", "");
    say("status", "Translating …");
    try {
      say("status", await work(running.signal));
    } catch (error) {
      if (!(error instanceof Problem) && error.name !== "AbortError") console.error(error);
      say("status", "");
      say("error", error instanceof Problem ? error.message : "The page failed to show the answer.");
    }
  });
}

/* Languages. */

const targetsOf = source => settings.targets_of[source] ?? settings.targets.filter(code => code !== source);
const sourceLanguage = () => find("source-language").value || settings.sources[0] || "";
const targetLanguage = () => find("target-language").value;
const hasChoice = settings.sources.length > 1 || settings.targets.length > 1;

/* Return the entries of a request; a model of one direction takes none. */
function chosenLanguages() {
  if (chosenModel()) return {model: chosenModel()};
  if (!hasChoice) return {};
  const target = {tgt_lang: targetLanguage()};
  return sourceLanguage() ? {src_lang: sourceLanguage(), ...target} : target;
}

/* Return the name of the model for the chosen languages, if the service has several. */
const chosenModel = () => settings.models[`${sourceLanguage()}-${targetLanguage()}`];

const featuresOf = new Map();

/* Return what the chosen model can do. The service loads it for that if it is not in memory. */
async function chosenFeatures(signal) {
  const model = chosenModel();
  if (model === undefined) return settings.features;
  if (!featuresOf.has(model)) featuresOf.set(model, (await fetchFrom(`models/${encodeURIComponent(model)}`, {signal})).features);
  return featuresOf.get(model);
}

function fillChoice(select, codes, chosen) {
  const named = codes.map(code => [settings.names[code] ?? code, code]);
  named.sort(([one], [other]) => one.localeCompare(other, "en"));
  select.replaceChildren(...named.map(([name, code]) => element("option", {value: code}, name)));
  if (codes.includes(chosen)) select.value = chosen;
}

function showTargets() {
  fillChoice(find("target-language"), targetsOf(sourceLanguage()), targetLanguage() || settings.default.tgt_lang);
  find("source").lang = languageTag(sourceLanguage());
}

function setUpLanguages() {
  fillChoice(find("source-language"), settings.sources, settings.default.src_lang);
  showTargets();
  find("source-language").addEventListener("change", showTargets);
  find("source-choice").hidden = !hasChoice || !sourceLanguage();
  find("target-choice").hidden = !hasChoice;
  if (!hasChoice && sourceLanguage())
    find("direction").textContent = `${settings.names[sourceLanguage()]} to ${settings.names[targetLanguage()]}`;
}

/* Translate a text. */

function readLines() {
  const lines = find("source").value.split("\n");
  const places = [...lines.keys()].filter(place => lines[place].trim());
  if (!places.length) throw new Problem("There is no text to translate.");
  if (places.length > limits.max_texts)
    throw new Problem(`A text may have at most ${plural(limits.max_texts, "line")}, got ${count(places.length)}.`);
  for (const place of places) {
    const length = [...lines[place]].length;
    if (length > limits.max_characters)
      throw new Problem(`A line may have at most ${plural(limits.max_characters, "character")}, got ${count(length)}${inLine(place, lines)}.`);
  }
  return [lines, places];
}

/* Return the options that a model knows, each of them on. */
const knownOptions = (names, features) => Object.fromEntries(names.filter(name => features.includes(name)).map(name => [name, true]));

const inLine = (place, lines) => lines.length > 1 ? ` in line ${place + 1}` : "";

async function translateText(signal) {
  find("result").hidden = true;
  forgetTyping();
  const [lines, places] = readLines();
  const started = performance.now();
  const features = await chosenFeatures(signal);
  const options = knownOptions(settings.options, features);
  const text = places.map(place => lines[place]);
  const rows = await request({text, num_return_sequences: settings.num_hypotheses, ...options}, signal).catch(error => {
    if (error instanceof Problem)
      error.message = error.message.replace(/ at position (\d+)/, (_, place) => inLine(places[place], lines));
    throw error;
  });
  showResult(lines, places, rows.map(row => row.map(each => typeof each === "string" ? {text: each} : each)));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  return `Translated ${plural(places.length, "line")} in ${seconds} seconds.`;
}

/* Translate a text while somebody types it: the last translation of a line is the draft of its next one. */

const draftBias = 0.2; // so that its beginning seldom changes
const hiddenWords = 3; // at the end of a line that is typed, which the next words often change
const pause = 700; // milliseconds without typing after which the translation is the exact one
const live = {isRunning: false, text: "", lines: [], drafts: [], shown: []};
const sleep = milliseconds => new Promise(resolve => { setTimeout(resolve, milliseconds); });

async function followTyping() {
  if (live.isRunning) return;
  live.isRunning = true;
  try {
    const features = await chosenFeatures();
    if (!features.includes("draft")) return;
    const options = knownOptions(["split_sentences"], features);
    while (find("result").hidden && find("source").value.trim() && find("source").value !== live.text) {
      await translateTyped(options, draftBias);
      await sleep(find("source").value === live.text ? pause : 0);
      if (find("source").value === live.text) await translateTyped(options, 0);
    }
  } catch (error) { // a translation by the button names it
    if (!(error instanceof Problem)) console.error(error);
    live.lines = [];
  } finally {
    live.isRunning = false;
    if (!find("source").value.trim()) forgetTyping();
  }
}

/* Translate the lines that changed, or for the last time all that are not exact. */
async function translateTyped(options, bias) {
  const text = find("source").value, [lines, places] = readLines(), known = live.lines;
  const changed = places.filter(place => bias === 0 ? !live.lines[place]?.isExact : lines[place] !== live.lines[place]?.source);
  if (changed.length) {
    const texts = changed.map(place => lines[place]);
    const draft = changed.map(place => live.drafts[place] ?? "");
    const rows = await request({text: texts, draft, draft_bias: bias, ...options});
    if (live.lines !== known) return; // of another language, or before the button was pressed
    changed.forEach((place, number) => {
      live.drafts[place] = rows[number][0];
      live.lines[place] = {source: lines[place], isExact: bias === 0};
    });
  }
  live.text = text;
  live.shown = lines.map((line, place) => line.trim() ? shownPart(live.drafts[place], live.shown[place] ?? "", live.lines[place].isExact) : "");
  find("live").textContent = live.shown.join("\n");
  find("live").lang = languageTag(targetLanguage());
  find("live").hidden = !find("result").hidden;
}

/* Return a translation, unless it is exact without its last words, of which those stay that were shown before. */
function shownPart(translation, before, isExact) {
  if (isExact) return translation;
  const words = translation.split(" "), wordsBefore = before.split(" ");
  const firstOther = words.findIndex((word, number) => word !== wordsBefore[number]);
  const known = firstOther < 0 ? words.length : firstOther;
  return `${words.slice(0, Math.max(known, words.length - hiddenWords)).join(" ")} …`;
}

function forgetTyping() {
  Object.assign(live, {text: "", lines: [], drafts: [], shown: []});
  find("live").hidden = true;
}

function showResult(lines, places, rows) {
  const whole = [...lines];
  places.forEach((place, number) => { whole[place] = rows[number][0].text; });
  const language = languageTag(targetLanguage());
  find("translation").textContent = whole.join("\n");
  find("translation").lang = language;
  const warned = places.flatMap((place, number) => warningsOf(rows[number][0]).map(words => `Check this: ${words}${inLine(place, lines)}.`));
  find("warnings").replaceChildren(...warned.map(words => element("li", {}, words)));
  find("lines-title").textContent = `The ${rows[0].length} best translations${places.length > 1 ? " of each line" : ""}`;
  const notes = [];
  if (rows[0][0].score !== undefined) notes.push("A higher score is better.");
  if (rows.flat().some(each => each.alignment?.length))
    notes.push("Point at an underlined word to see which words belong to it, or move there with Tab and the arrow keys.");
  find("lines-note").textContent = notes.join(" ");
  const blocks = places.map((place, number) => lineBlock(lines[place], rows[number], place, language));
  find("lines").replaceChildren(...(places.length > 1 ? blocks.map(foldable(lines, places)) : blocks));
  find("result").hidden = false;
  forgetTyping();
}

const warningsOf = translation => (translation.warnings ?? []).map(name => settings.warnings[name] ?? name);

const foldable = (lines, places) => (block, number) => {
  const summary = element("summary", {}, `Line ${places[number] + 1}: ${lines[places[number]]}`);
  return element("details", number === 0 ? {open: "open"} : {}, summary, block);
};

/* Return the source and the translations of a line, whose words know their counterparts. */
function lineBlock(source, hypotheses, place, language) {
  const links = hypotheses.map(each => each.alignment ?? []);
  const sourceWords = words(source, links.flat().map(link => [link[0], link[1]]));
  const items = hypotheses.map(({text, score, memory, warnings}, number) => {
    const targetWords = words(text, links[number].map(link => [link[2], link[3]]));
    for (const [start, , targetStart] of links[number]) connect(sourceWords, start, targetWords, targetStart, number === 0);
    const shown = score === undefined ? [] : [element("span", {class: "score"}, `score ${score.toFixed(2).replace("-", "−")}`)];
    if (memory) shown.push(element("span", {class: "score"}, `memory ${Math.floor(100 * memory)} %`));
    const warned = warningsOf({warnings});
    if (warned.length) shown.push(element("p", {class: "warnings"}, `Check this: ${warned.join("; ")}.`));
    const rank = element("span", {class: "rank"}, `${number + 1}.`);
    return element("li", {}, rank, group(targetWords, `Words of translation ${number + 1}`, language), ...shown);
  });
  for (const button of [...sourceWords.buttons.values()]) button.setAttribute("aria-label", nameOf(button));
  if (settings.suggestions) items[0].append(correction(source, hypotheses[0].text, language));
  const block = element("div", {});
  if (sourceWords.buttons.size)
    block.append(element("div", {class: "line-source"}, group(sourceWords, "Words of the source", languageTag(sourceLanguage()))));
  block.append(element("ol", {class: "hypotheses"}, ...items));
  for (const button of block.querySelectorAll(".hypotheses .words button")) button.setAttribute("aria-label", nameOf(button));
  return block;
}

/* Return a button that lets a visitor correct a translation, which later requests get. */
function correction(source, text, language) {
  const area = element("textarea", {rows: "2", dir: "auto", lang: language, "aria-label": "Correct translation"});
  area.value = text;
  const status = element("p", {class: "note", role: "status"});
  const form = element("form", {}, area, element("button", {type: "submit"}, "Save"), status);
  form.hidden = true;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const body = JSON.stringify({q: source, s: area.value, source: sourceLanguage(), target: targetLanguage()});
    const headers = {"Content-Type": "application/json"};
    try {
      const {warnings} = await fetchFrom("suggest", {method: "POST", headers, body});
      status.textContent = warnings.length ? `Kept aside, not used: ${warningsOf({warnings}).join("; ")}.` : "Saved. It is used from now on.";
    } catch (error) {
      status.textContent = error instanceof Problem ? error.message : "The page failed to save it.";
    }
  });
  const button = element("button", {type: "button"}, "Correct");
  button.addEventListener("click", () => { form.hidden = false; area.focus(); });
  return element("div", {class: "correction"}, button, form);
}

/* Cut a text at ranges of characters. Return its pieces, and the button of each range by its start. */
function words(text, ranges) {
  const characters = [...text], ends = new Map(ranges), buttons = new Map(), pieces = [];
  let end = 0;
  for (const start of [...ends.keys()].sort((one, other) => one - other)) {
    pieces.push(characters.slice(end, start).join(""));
    end = ends.get(start);
    const button = element("button", {type: "button", tabindex: buttons.size ? "-1" : "0"}, characters.slice(start, end).join(""));
    Object.assign(button, {partners: new Set(), named: new Set()});
    buttons.set(start, button);
    pieces.push(button);
  }
  pieces.push(characters.slice(end).join(""));
  return {pieces, buttons};
}

/* Link two words; the name of a word of the source has its counterparts in the best translation only. */
function connect(sourceWords, start, targetWords, targetStart, isBest) {
  const from = sourceWords.buttons.get(start), to = targetWords.buttons.get(targetStart);
  from.partners.add(to);
  to.partners.add(from);
  to.named.add(from);
  if (isBest) from.named.add(to);
}

function nameOf(button) {
  const counterparts = [...button.named].map(each => each.textContent).join(" ");
  return counterparts ? `${button.textContent}, aligned with ${counterparts}` : button.textContent;
}

/* Return an element with words; the first is reached by Tab, the others by arrow keys. */
function group({pieces, buttons}, name, language) {
  const made = element("div", {class: "words", dir: "auto", lang: language}, ...pieces);
  if (!buttons.size) return made;
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", name);
  const order = [...buttons.values()];
  made.addEventListener("keydown", event => {
    const forward = getComputedStyle(made).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const here = order.indexOf(event.target), last = order.length - 1;
    const next = {ArrowLeft: here - 1, ArrowRight: here - 1, [forward]: here + 1, Home: 0, End: last}[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const button = order[Math.max(0, Math.min(last, next))];
    event.target.tabIndex = -1;
    button.tabIndex = 0;
    button.focus();
  });
  return made;
}

/* Mark a word and its counterparts, or none. */
function mark(button) {
  for (const each of document.querySelectorAll(".active, .linked")) each.classList.remove("active", "linked");
  button?.classList.add("active");
  for (const each of button?.partners ?? []) each.classList.add("linked");
}

const wordAt = target => target?.partners ? target : null;

function setUpWords() {
  const lines = find("lines");
  lines.addEventListener("mouseover", event => mark(wordAt(event.target) ?? wordAt(document.activeElement)));
  lines.addEventListener("mouseleave", () => mark(wordAt(document.activeElement)));
  lines.addEventListener("focusin", event => mark(wordAt(event.target)));
  lines.addEventListener("focusout", () => mark(null));
}

/* Translate a document. */

async function translateDocument(signal) {
  find("download").hidden = true;
  const [file] = find("document").files;
  if (!file) throw new Problem("Choose a file first.");
  const [, stem, ending] = /^(.*?)(\.[^.]*)?$/s.exec(file.name);
  const format = settings.endings[(ending ?? "").toLowerCase()];
  if (!format) throw new Problem(`The name of the file must end with ${listEndings()}, got ${file.name}.`);
  if (file.size > limits.max_document_bytes)
    throw new Problem(`A file may have at most ${count(limits.max_document_bytes)} bytes, got ${count(file.size)}.`);
  const text = await readText(file);
  const [[translated]] = await request({text: [text], format}, signal).catch(error => {
    if (error instanceof Problem) error.message = error.message.replace(/ \(at position 0\)| at position 0/, "");
    throw error;
  });
  offerDownload(translated, `${stem}.${targetLanguage() || "translated"}${ending}`);
  return `Translated ${file.name}.`;
}

const isZip = text => text.startsWith("PK\u0003\u0004"); // whose text is its bytes, as Latin-1

async function readText(file) {
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (isZip(String.fromCharCode(...bytes.slice(0, 4)))) return Array.from(bytes, byte => String.fromCharCode(byte)).join("");
    return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch (error) {
    throw new Problem(error instanceof TypeError ? "The file must be text in UTF-8." : "The file cannot be read. Choose it again.");
  }
}

function offerDownload(text, name) {
  const link = find("download").firstElementChild;
  URL.revokeObjectURL(link.href);
  const content = isZip(text) ? Uint8Array.from(text, character => character.charCodeAt(0)) : text;
  link.href = URL.createObjectURL(new Blob([content], {type: isZip(text) ? "application/octet-stream" : "text/plain;charset=utf-8"}));
  link.download = name;
  link.textContent = `Download ${name}`;
  find("download").hidden = false;
}

const listEndings = () => Object.keys(settings.endings).join(", ").replace(/, ([^,]*)$/, " or $1");

/* Start. */

function setUpAccess() {
  if (settings.needs_key) find("key").type = "password";
  find("access").hidden = !settings.needs_key;
  find("settings").hidden = !hasChoice && !settings.needs_key;
  find("settings").addEventListener("submit", event => { // by Enter in the field of the key
    event.preventDefault();
    find("text-form").requestSubmit();
  });
}

function setUp() {
  setUpLanguages();
  setUpAccess();
  setUpWords();
  find("text-limits").textContent =
    `At most ${plural(limits.max_texts, "line")}, each of at most ${plural(limits.max_characters, "character")} and ${plural(limits.max_tokens, "token")}.`;
  find("source").addEventListener("input", () => {
    find("result").hidden = true;
    find("text-status").textContent = "";
    followTyping();
  });
  for (const name of ["source-language", "target-language"]) find(name).addEventListener("change", () => {
    forgetTyping();
    if (find("result").hidden) followTyping();
  });
  find("source").addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("text-form").requestSubmit();
  });
  find("copying").hidden = !navigator.clipboard;
  find("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(find("translation").textContent);
    find("text-status").textContent = "Copied the translation.";
  });
  const endings = Object.keys(settings.endings);
  find("documents").hidden = !endings.length;
  find("document").accept = endings.join(",");
  find("document-limits").textContent =
    `${listEndings()}, at most ${count(limits.max_document_bytes)} bytes.`;
  onSubmit("text", translateText);
  onSubmit("document", translateDocument);
  find("source").focus();
}

setUp();
