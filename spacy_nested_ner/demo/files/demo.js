"use strict";
(async () => {
  const { make, key, draw, arrange, tell } = spanDrawing;
  const byId = (id) => document.getElementById(id);
  const many = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
  const NEAR = "600px";  // blocks that are so near to what is seen are drawn
  const GONE = "The server does not answer. Is the command still running? Start it again as before, "
    + "then annotate again.";

  async function get(path, options) {
    let response, answer;
    try {
      response = await fetch(path, options);
      const isJson = response.headers.get("content-type")?.startsWith("application/json");
      answer = isJson ? await response.json() : { error: await response.text() };
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error(GONE);
    }
    if (!response.ok) throw new Error(answer.error || `The server answers ${response.status}.`);
    return answer;
  }

  // Labels: one list for all pipelines, so that a label has one colour

  const labels = new Map();

  function labelOf(name) {
    if (!labels.has(name)) {
      const line = make("label");
      const box = make("input");
      const count = make("span", "n");
      box.type = "checkbox";
      box.checked = true;
      line.append(box, key(name, labels.size), count);
      byId("label-list").append(line);
      labels.set(name, { index: labels.size, box, count });
      byId("labels").hidden = false;
    }
    return labels.get(name);
  }

  function count(found) {
    const counts = new Map();
    for (const { label } of found) counts.set(label, (counts.get(label) ?? 0) + 1);
    for (const [name, { count }] of labels) count.textContent = counts.get(name) ?? 0;
  }

  // A pane: what one component finds, and its settings

  class Pane {
    constructor(facts, number) {
      Object.assign(this, { facts, number, asked: null, text: null, words: [], blocks: [],
        spans: [], found: [], shown: [], current: -1, near: new Set() });
      this.element = make("section", "pane");
      this.element.append(...this.heading(), this.settings(), ...this.results());
      this.observer = new IntersectionObserver((entries) => this.seen(entries),
        { rootMargin: NEAR });
      this.width = 0;
      new ResizeObserver(() => this.resized()).observe(this.list);
      this.reset();
    }

    heading() {
      const { pipeline, component, factory, spans_key: spansKey } = this.facts;
      const title = make("h2", "", pipeline);
      title.id = `pane-${this.number}`;
      this.element.setAttribute("aria-labelledby", title.id);
      const kind = component === factory ? component : `${component} (${factory})`;
      return [title, make("p", "soft", `${kind}, spans key ${spansKey}`)];
    }

    settings() {
      const line = make("div", "settings");
      const { threshold, lowest, overlap, overlap_choices: choices } = this.facts;
      if (threshold !== null) {
        this.slider = make("input");
        Object.assign(this.slider, { type: "range", min: lowest, max: 1, step: 0.01 });
        this.value = make("span", "value");
        const label = make("label", "", "threshold");
        label.append(this.slider, this.value);
        line.append(label, make("span", "soft", `default: ${threshold}`));
        this.slider.addEventListener("input", () => {
          this.threshold = Number(this.slider.value);
          this.changed(false);
        });
        this.slider.addEventListener("change", () => this.changed(true));
      }
      if (overlap !== null) {
        this.policy = make("select");
        for (const choice of choices) {
          const own = choice === overlap ? " (default)" : "";
          const option = make("option", "", `${choice.replace("_", " ")}${own}`);
          option.value = choice;
          this.policy.append(option);
        }
        const label = make("label", "", "overlap");
        label.append(this.policy);
        line.append(label);
        this.policy.addEventListener("change", () => {
          this.overlap = this.policy.value;
          this.changed(true);
        });
      }
      const own = make("button", "", "Reset");
      this.copy = make("button", "", "Copy as JSON");
      own.type = this.copy.type = "button";
      own.addEventListener("click", () => { this.reset(); this.changed(true); });
      this.copy.addEventListener("click", () => copy(this));
      own.hidden = threshold === null && overlap === null;
      line.append(own, this.copy);
      return line;
    }

    results() {
      this.problem = make("p", "problem");
      this.problem.hidden = true;
      this.problem.setAttribute("role", "alert");
      this.count = make("p", "count");
      this.list = make("div", "blocks");
      this.list.tabIndex = 0;
      this.list.setAttribute("role", "group");
      this.list.setAttribute("aria-label", `Entities of ${this.facts.pipeline}`);
      this.list.addEventListener("keydown", (event) => this.pressed(event));
      const again = make("p", "soft",
        "With another threshold or overlap this component may find other entities, "
        + "so it reads the text again.");
      again.hidden = this.facts.live;
      return [again, this.problem, this.count, this.list];
    }

    reset() {
      this.threshold = this.facts.threshold;
      this.overlap = this.facts.overlap;
      if (this.slider) this.slider.value = this.threshold;
      if (this.policy) this.policy.value = this.overlap;
      this.tellSettings();
    }

    tellSettings() {
      if (!this.slider) return;
      this.value.textContent = this.threshold.toFixed(2);
      const found = this.text === null ? "" : `, ${many(this.found.length, "entity", "entities")}`;
      this.slider.setAttribute("aria-valuetext", `${this.value.textContent}${found}`);
    }

    // Of a live component all that it may find is here, others have to be asked again.
    changed(isDone) {
      if (this.facts.live) showSoon();
      else if (isDone && this.asked !== null) this.annotate(this.asked).then(tellFound);
      this.tellSettings();
    }

    async annotate(text) {
      this.asking?.abort();
      this.asking = new AbortController();
      this.asked = text;
      const { signal } = this.asking;
      this.element.setAttribute("aria-busy", "true");
      this.problem.hidden = true;
      let answer = { words: [], blocks: [], spans: [] };
      try {
        const { number: pane, threshold, overlap } = this;
        answer = await get("/annotate", { method: "POST", signal,
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ run, pane, text, threshold, overlap }) });
        this.text = text;
      } catch (error) {
        if (signal.aborted) return;
        this.asked = this.text = null;  // nothing stands there that is not of this text
        this.problem.textContent = error.message;
        this.problem.hidden = false;
      }
      this.take(answer);
      this.element.setAttribute("aria-busy", "false");
    }

    take({ words, blocks, spans, seconds }) {
      this.words = words;
      this.seconds = seconds;
      // NestedNER gives them in this order; the drawing needs it.
      this.spans = [...spans].sort((a, b) =>
        a.start_token - b.start_token || b.end_token - a.end_token);
      spans.forEach(({ label }) => labelOf(label));
      this.observer.disconnect();
      this.near.clear();
      this.blocks = blocks.map(([start, end]) => {
        const text = words.slice(start, end).join("");
        const element = make("div", text.includes("\n") ? "block last" : "block", text);
        element.dir = this.facts.direction;
        return { start, end, text, element, indices: [], drawn: null };
      });
      this.blockOf = new Map(this.blocks.map((block) => [block.element, block]));
      this.list.replaceChildren(...this.blocks.map(({ element }) => element));
      this.blocks.forEach(({ element }) => this.observer.observe(element));
      showAll();
    }

    choose() {
      const least = Math.fround(this.threshold ?? 0);  // the components compare float32, too
      this.found = this.facts.live
        ? this.spans.filter(({ score, overlap }) => (score === null || Math.fround(score) >= least)
          && (!overlap || overlap.includes(this.overlap)))
        : this.spans;
    }

    show() {
      this.shown = this.found.filter(({ label }) => labelOf(label).box.checked);
      this.current = -1;
      for (const block of this.blocks) {  // what is far away is text alone until it comes near
        if (block.drawn && !this.near.has(block)) block.element.textContent = block.text;
        Object.assign(block, { indices: [], drawn: null });
      }
      let first = 0;  // spans stand in the order of their first words
      this.shown.forEach((span, i) => {
        while (this.blocks[first].end <= span.start_token) first++;
        for (let b = first; b < this.blocks.length && this.blocks[b].start < span.end_token; b++) {
          this.blocks[b].indices.push(i);
        }
      });
      this.draw([...this.near]);
      const [shown, found] = [this.shown.length, this.found.length];
      const rest = shown === found ? "" : ` (${found - shown} more hidden by label)`;
      this.count.textContent = this.text === null ? ""
        : `${many(shown, "entity", "entities")}${rest} in ${many(this.words.length, "token", "tokens")}`
          + ` · ${this.seconds.toFixed(2)} s`;
      this.copy.hidden = this.text === null;
      this.tellSettings();
    }

    // A span that goes over the end of a block is drawn in both.
    draw(blocks) {
      const drawn = blocks.filter((block) => !block.drawn).map((block) => {
        const marks = block.indices.map((i) => {
          const { label, score, start_token: start, end_token: end, text } = this.shown[i];
          const says = [label, `“${text}”`, score === null ? "no score" : `score ${score.toFixed(3)}`,
            many(end - start, "token", "tokens")].join(" · ");
          return { start: Math.max(start, block.start) - block.start,
            end: Math.min(end, block.end) - block.start,
            label: labelOf(label).index, name: label, says, look: "", i };
        });
        block.drawn = draw(this.words.slice(block.start, block.end), marks,
          { direction: this.facts.direction, blank: "" });
        block.element.replaceChildren(block.drawn.line);
        return block.drawn;
      });
      arrange(drawn);
    }

    seen(entries) {
      for (const { target, isIntersecting } of entries) {
        const block = this.blockOf.get(target);
        if (isIntersecting) this.near.add(block);
        else this.near.delete(block);
      }
      this.draw([...this.near]);
    }

    resized() {
      if (this.list.clientWidth === this.width) return;
      this.width = this.list.clientWidth;
      for (const block of this.blocks) if (!this.near.has(block)) block.drawn = null;
      arrange([...this.near].flatMap(({ drawn }) => drawn ?? []));
    }

    // Arrow keys go from entity to entity, wherever in the text the next one stands.
    pressed(event) {
      const last = this.shown.length - 1;
      const to = { ArrowRight: this.current + 1, ArrowLeft: this.current - 1, Home: 0, End: last };
      if (!(event.key in to) || event.ctrlKey || event.altKey || event.metaKey || last < 0) return;
      event.preventDefault();
      this.current = Math.max(0, Math.min(to[event.key], last));
      const block = this.blocks.find(({ indices }) => indices.includes(this.current));
      this.draw([block]);
      const { tag } = block.drawn.marks.find(({ i }) => i === this.current);
      tag.scrollIntoView({ block: "nearest" });
      tag.focus({ preventScroll: true });
    }

    json() {
      const { pipeline, component, spans_key } = this.facts;
      const entities = this.shown.map(({ overlap, ...entity }) => entity);
      const { text, threshold, overlap } = this;
      return JSON.stringify(
        { pipeline, component, spans_key, threshold, overlap, text, entities }, null, 2);
    }
  }

  async function copy(pane) {
    const json = pane.json();
    try {
      await navigator.clipboard.writeText(json);
      byId("status").textContent = `Copied ${many(pane.shown.length, "entity", "entities")}.`;
    } catch {  // no clipboard where the page comes from another machine, or by the reader's wish
      const area = byId("by-hand").querySelector("textarea");
      area.value = json;
      byId("by-hand").showModal();
      area.select();
    }
  }

  // The page

  let panes = [];
  let run = null;
  let waiting = 0;

  function showAll() {
    panes.forEach((pane) => pane.choose());
    count(panes.flatMap((pane) => pane.found));
    panes.forEach((pane) => pane.show());
    tell(null);
  }

  function showSoon() {  // once a frame, however fast the slider moves
    waiting ||= requestAnimationFrame(() => { waiting = 0; showAll(); });
  }

  async function annotate() {
    const text = byId("text").value;
    byId("status").textContent = "Reading …";
    await Promise.all(panes.map((pane) => pane.annotate(text)));
    tellFound();
  }

  function tellFound() {
    if (panes.some((pane) => pane.element.getAttribute("aria-busy") === "true")) return;
    byId("status").textContent = panes.map(({ facts, text, found }) => {
      const says = text === null ? "cannot read the text" : many(found.length, "entity", "entities");
      return panes.length > 1 ? `${facts.pipeline}: ${says}` : says;
    }).join(" · ");
  }

  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); annotate(); });
  byId("text").addEventListener("input", () => {
    const changed = "The text has changed. Annotate it again.";
    if (byId("status").textContent !== changed) byId("status").textContent = changed;  // said once
  });
  byId("label-list").addEventListener("input", showSoon);
  for (const [id, value] of [["label-all", true], ["label-none", false]]) {
    byId(id).addEventListener("click", () => {
      for (const { box } of labels.values()) box.checked = value;
      showSoon();
    });
  }
  addEventListener("beforeprint", () => panes.forEach((pane) => pane.draw(pane.blocks)));
  document.addEventListener("focusin", (event) => tell(event.target.closest("[data-says]")));
  document.addEventListener("scroll", () => {
    if (document.activeElement.dataset.says) tell(document.activeElement);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tell(null);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      annotate();
    }
  });

  try {
    let facts, example;
    ({ run, panes: facts, example } = await get("/panes"));
    [...new Set(facts.flatMap((each) => each.labels))].sort().forEach(labelOf);
    panes = facts.map((each, i) => new Pane(each, i));
    byId("panes").append(...panes.map(({ element }) => element));
    byId("text").value ||= example;  // a browser may have kept what was typed
    if (byId("text").value) annotate();
  } catch (error) {
    byId("status").textContent = error.message;
  }
})();
