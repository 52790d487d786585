"use strict";
(() => {
  const began = performance.now();
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make, tell } = spanDrawing;
  const RIGHT = 0, CHUNK = 30;
  const byId = (id) => document.getElementById(id);

  const key = (label) => spanDrawing.key(data.labels[label], label);

  // Head of the page

  for (const [name, value] of Object.entries(data.facts)) {
    const fact = make("div");
    fact.append(make("dt", "", name), make("dd", "", value));
    byId("facts").append(fact);
  }
  byId("remark").textContent = data.remark;
  byId("remark").hidden = !data.remark;

  function row(name, cells) {
    const line = make("tr");
    const head = make("th");
    head.scope = "row";
    head.append(name);
    line.append(head, ...cells.map((cell) => make("td", "", cell)));
    byId("scores").tBodies[0].append(line);
  }

  if (data.corpus) row("whole evaluation set", [data.corpus.p, data.corpus.r, data.corpus.f, "", "", ""]);
  data.scores.forEach((each, i) => row(i ? key(i - 1) : "all labels",
    [each.p, each.r, each.f, each.n_right, each.n_found, each.n_gold]));
  if (data.labels.length > 12) byId("table-box").open = false;

  // Filters: what they are set to stands in the address, so that a view can be kept

  const kinds = [["all", "all entities"], ["error", "all errors"],
    ...data.kinds.map((kind, i) => [String(i), kind])];
  for (const [value, name] of kinds) {
    const option = make("option", "", name);
    option.value = value;
    byId("kind").append(option);
  }
  const boxes = data.labels.map((label, i) => {
    const line = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.checked = true;
    line.append(box, key(i), make("span", "n", data.scores[i + 1].n_gold));
    byId("label-list").append(line);
    return box;
  });
  const FIELDS = { kind: "all", "min-length": "", "max-length": "", "min-depth": "", "max-depth": "",
    text: "", order: "errors" };

  function restore() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const [field, usual] of Object.entries(FIELDS)) {
      byId(field).value = wanted.get(field) ?? usual;
      byId(field).value ||= usual;  // a choice that this page does not have
    }
    const chosen = new Set(wanted.getAll("label"));
    const every = !chosen.size && wanted.get("labels") !== "none";
    boxes.forEach((box, i) => { box.checked = every || chosen.has(data.labels[i]); });
  }

  function remember() {
    const view = new URLSearchParams();
    for (const [field, usual] of Object.entries(FIELDS)) {
      const { value } = byId(field);
      if (value !== usual) view.set(field, value);
    }
    if (!boxes.every((box) => box.checked)) {
      if (!boxes.some((box) => box.checked)) view.set("labels", "none");
      boxes.forEach((box, i) => { if (box.checked) view.append("label", data.labels[i]); });
    }
    try { history.replaceState(null, "", `#${view}`); } catch { /* some file systems refuse */ }
  }

  let passes = () => true;
  let shown = [];
  let drawn = 0;
  let sides = [];  // what is drawn of each sentence, gold and predicted
  let current = -1;
  let span = -1;

  function number(id, otherwise) {
    const value = Number.parseInt(byId(id).value, 10);
    return Number.isNaN(value) ? otherwise : value;
  }

  function errors(doc) {
    return [...doc.gold, ...doc.found].filter((each) => each[3] !== RIGHT).length;
  }

  function lowest(doc) {
    return Math.min(...doc.found.map((each) => each[5] ?? Infinity), Infinity);
  }

  data.docs.forEach((doc, i) => {
    doc.number = i + 1;
    doc.errors = errors(doc);
    doc.lowest = lowest(doc);
  });

  function apply() {
    const on = boxes.map((box) => box.checked);
    const everyLabel = on.every(Boolean);
    const kind = byId("kind").value;
    const [minLength, maxLength] = [number("min-length", 1), number("max-length", Infinity)];
    const [minDepth, maxDepth] = [number("min-depth", 1), number("max-depth", Infinity)];
    const text = byId("text").value.toLowerCase();
    const everything = everyLabel && kind === "all" && minLength <= 1 && maxLength === Infinity
      && minDepth <= 1 && maxDepth === Infinity;
    passes = ([start, end, label, found, depth]) => on[label]
      && (kind === "all" || (kind === "error" ? found !== RIGHT : found === Number(kind)))
      && end - start >= minLength && end - start <= maxLength
      && depth >= minDepth && depth <= maxDepth;
    shown = data.docs.filter((doc) =>
      (everything || doc.gold.some(passes) || doc.found.some(passes))
      && (!text || doc.words.join("").toLowerCase().includes(text)));
    const order = byId("order").value;
    if (order === "errors") shown.sort((a, b) => b.errors - a.errors || a.number - b.number);
    if (order === "doubt") shown.sort((a, b) => a.lowest - b.lowest || a.number - b.number);
    drawn = 0;
    sides = [];
    current = span = -1;
    byId("tip").hidden = true;
    byId("docs").replaceChildren();
    byId("nothing").hidden = shown.length > 0;
    byId("count").textContent = `${shown.length} of ${data.docs.length} sentences`;
    byId("label-count").textContent = `${on.filter(Boolean).length} of ${on.length}`;
    remember();
    more();
  }

  // Docs are drawn as they come into sight

  function more() {
    const before = sides.length;
    byId("docs").append(...shown.slice(drawn, drawn + CHUNK).map(card));
    drawn = Math.min(drawn + CHUNK, shown.length);
    spanDrawing.arrange(sides.slice(before));
  }

  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && drawn < shown.length) {
      more();
      observeAgain();
    }
  }, { rootMargin: "1200px" }).observe(byId("more"));

  addEventListener("beforeprint", () => { while (drawn < shown.length) more(); });

  function observeAgain() {  // the end may still be in sight, which is no news to the observer
    requestAnimationFrame(() => {
      if (drawn < shown.length && byId("more").getBoundingClientRect().top < innerHeight + 1200) {
        more();
        observeAgain();
      }
    });
  }

  function card(doc) {
    const article = make("article");
    article.tabIndex = 0;
    article.setAttribute("aria-label", `${doc.number}, ${doc.id}`);
    const header = make("header");
    const wrong = doc.n_found - doc.n_right;
    const verdict = `${doc.n_right} of ${doc.n_gold} found` + (wrong ? `, ${wrong} wrong` : "");
    header.append(make("h2", "", doc.number), make("span", "soft", doc.id),
      make("span", "verdict", verdict),
      make("span", "prf", `P ${doc.p} · R ${doc.r} · F ${doc.f}`));
    const both = make("div", "sides");
    both.append(side("Gold", doc.words, doc.gold, doc.dir, "○"),
      side("Predicted", doc.found_words ?? doc.words, doc.found, doc.dir, "✗"));
    article.append(header, both);
    return article;
  }

  function side(title, words, spans, dir, sign) {
    const section = make("section");
    const marks = spans.map((each) => described(each, words, title, sign));
    const drawn = spanDrawing.draw(words, marks, { direction: dir, blank: "␣" });
    section.append(make("h3", "", title), drawn.line);
    sides.push(drawn);
    return section;
  }

  function described(each, words, title, sign) {
    const [start, end, label, kind, depth, score] = each;
    const bad = kind !== RIGHT;
    const text = words.slice(start, end).join("").trim();
    const says = [`${title}: ${data.labels[label]}`, `“${text}”`, data.kinds[kind],
      score !== null ? `score ${score.toFixed(3)}` : title === "Predicted" ? "no score" : "",
      `${end - start} ${end - start === 1 ? "word" : "words"}, depth ${depth}`]
      .filter(Boolean).join(" · ");
    const name = `${bad ? `${sign} ` : title === "Predicted" ? "✓ " : ""}${data.labels[label]}`;
    const look = `${bad ? " bad" : ""}${passes(each) ? "" : " dim"}`;
    return { start, end, label, name, says, look };
  }

  let arrangedFor = byId("docs").clientWidth;
  new ResizeObserver(() => {
    if (byId("docs").clientWidth === arrangedFor) return;
    arrangedFor = byId("docs").clientWidth;
    spanDrawing.arrange(sides);
  }).observe(byId("docs"));

  // Scores by the arrow keys

  function goTo(place) {
    while (place >= drawn && drawn < shown.length) more();
    const cards = byId("docs").children;
    if (!cards.length) return;
    current = Math.max(0, Math.min(place, cards.length - 1));
    span = -1;
    byId("docs").querySelector(".here")?.classList.remove("here");
    tell(null);
    cards[current].focus();
    cards[current].scrollIntoView({ block: "nearest" });
  }

  function step(by) {
    const tags = byId("docs").children[current]?.querySelectorAll(".tag") ?? [];
    if (!tags.length) return;
    tags[span]?.classList.remove("here");
    span = (Math.max(span, by > 0 ? -1 : 0) + by + tags.length) % tags.length;
    tags[span].classList.add("here");
    tags[span].scrollIntoView({ block: "nearest" });
    tags[span].focus({ preventScroll: true });
    tell(tags[span]);
  }

  byId("docs").addEventListener("focusin", (event) => {
    const place = [...byId("docs").children].indexOf(event.target.closest("article"));
    if (place !== current) { current = place; span = -1; }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      const inside = byId("label-box").contains(document.activeElement);
      byId("label-box").open = false;
      tell(null);
      if (inside) byId("label-box").firstElementChild.focus();
      else document.activeElement.blur();
      return;
    }
    if (event.target.closest?.("input, select, textarea")) return;
    const actions = {
      j: () => goTo(current + 1),
      k: () => goTo(current - 1),
      ArrowRight: () => (current < 0 ? goTo(0) : step(1)),
      ArrowLeft: () => step(-1),
      l: () => {
        byId("filter-box").open = byId("label-box").open = true;
        byId("label-search").focus();
      },
      "/": () => { byId("filter-box").open = true; byId("text").focus(); },
    };
    if (!actions[event.key]) return;
    // A table that is scrolled by these keys keeps them.
    const at = document.activeElement;
    if (event.key.startsWith("Arrow") && at !== document.body && !byId("docs").contains(at)) return;
    event.preventDefault();
    actions[event.key]();
  });

  // Menus close where the reader goes on elsewhere. On a narrow screen the filters are one.

  const narrow = matchMedia("(max-width: 48rem)");
  const fold = () => { byId("filter-box").open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
  function leave(target) {
    if (!byId("label-box").contains(target)) byId("label-box").open = false;
    if (narrow.matches && !byId("filters").contains(target)) byId("filter-box").open = false;
  }
  document.addEventListener("pointerdown", (event) => leave(event.target));
  document.addEventListener("focusin", (event) => leave(event.target));

  byId("label-search").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    boxes.forEach((box, i) => {
      box.parentElement.hidden = !data.labels[i].toLowerCase().includes(wanted);
      box.parentElement.style.display = box.parentElement.hidden ? "none" : "";
    });
    event.stopPropagation();
  });
  for (const [id, value] of [["label-all", true], ["label-none", false]]) {
    byId(id).addEventListener("click", () => {
      boxes.forEach((box) => { if (!box.parentElement.hidden) box.checked = value; });
      apply();
    });
  }
  byId("filters").addEventListener("input", apply);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(() => {
    for (const box of boxes) {
      box.checked = true;
      box.parentElement.hidden = false;  // the search for labels is empty, too
      box.parentElement.style.display = "";
    }
    apply();
  }));
  addEventListener("hashchange", () => { restore(); apply(); });

  restore();
  apply();
  document.documentElement.dataset.ready = Math.round(performance.now());
  document.documentElement.dataset.drawing = Math.round(performance.now() - began);
})();
