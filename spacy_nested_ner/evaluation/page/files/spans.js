"use strict";
// Words with the bars and labels of nested spans below them.
const spanDrawing = (() => {
  const STEP = 17;

  // Text only ever goes in as text: what the data holds can do nothing on this page.
  function make(name, className, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // Light colours that black text can be read on, far apart for neighbours in the list of labels.
  const color = (i) =>
    `hsl(${Math.round(i * 137.508 + 205) % 360} ${[85, 60, 75][i % 3]}% ${[76, 70, 83][i % 3]}%)`;

  function key(text, i) {
    const element = make("span", "key", text);
    element.style.background = color(i);
    return element;
  }

  // A line of words with its spans, to be arranged when it is on the page. Of each span: start and
  // end (exclusive), words; label, for its colour; name, on its label; says, its explanation;
  // look, classes of bars and label. blank: what stands for a word of spaces.
  function draw(words, spans, { direction, blank }) {
    const line = make("div", "words");
    line.dir = direction;
    const elements = words.map((word) =>
      make("div", /\s$/.test(word) ? "word space" : "word", word.trim() || blank));
    const rails = new Map();
    for (const { start, end } of spans) {
      for (let w = start; w < end; w++) {
        if (!rails.has(w)) rails.set(w, elements[w].appendChild(make("div", "rail")));
      }
    }
    const marks = spans.map((each) => ({ ...each, ...mark(each, rails) }));
    // Outer spans first: what contains a span lies above it.
    marks.sort((a, b) => a.start - b.start || b.end - a.end || a.label - b.label);
    line.append(...elements);
    return { line, elements, rails, marks };
  }

  function mark({ start, end, label, name, says, look }, rails) {
    const bars = [];
    for (let w = start; w < end; w++) {
      const bar = make("span", `bar${look}${w === end - 1 ? " last" : ""}`);
      bar.style.background = color(label);
      bar.dataset.says = says;
      rails.get(w).append(bar);
      bars.push(bar);
    }
    const tag = make("span", `tag${look}`);
    tag.append(make("bdi", "", name));  // says nothing of the direction of the words
    tag.style.background = color(label);
    tag.dataset.says = says;
    tag.setAttribute("aria-label", says);
    tag.tabIndex = -1;  // arrow keys focus it, so that it is read out
    tag.setAttribute("role", "img");
    rails.get(start).append(tag);
    return { bars, tag };
  }

  // Where bars and labels lie depends on how the text was broken into lines. All places are read
  // before any is written, else the browser would lay out the page once for each sentence.
  function arrange(some) {
    const found = some.map(({ line, elements, marks }) => {
      const rtl = getComputedStyle(line).direction === "rtl";
      return {
        width: line.clientWidth,
        places: elements.map((element) => {
          const { offsetTop: top, offsetLeft: left, offsetWidth: wide } = element;
          const from = rtl ? line.clientWidth - left - wide : left;
          return { top, from, to: from + wide };
        }),
        tags: marks.map(({ tag }) => Math.min(tag.scrollWidth, line.clientWidth)),
      };
    });
    some.forEach((each, i) => stack(each, found[i]));
  }

  // Each part of a span in a line goes to the first row below those that share a word with it where
  // neither it nor its label meets another one. A label may be longer than its span.
  function stack({ rails, marks }, { width, places, tags }) {
    const lines = new Map();
    marks.forEach(({ start, end, bars, tag }, i) => {
      for (let first = start, last; first < end; first = last + 1) {
        const { top } = places[first];
        for (last = first; last + 1 < end && places[last + 1].top === top;) last++;
        if (!lines.has(top)) lines.set(top, []);
        const line = lines.get(top);
        let { from } = places[first];
        let { to } = places[last];
        const back = Math.min(0, width - from - tags[i]);
        if (first === start) {
          to = Math.max(to, from + back + tags[i]);
          from += back;
        }
        let row = 0;
        for (const other of line) {
          if (other.first <= last && other.last >= first) row = Math.max(row, other.row + 1);
        }
        while (line.some((other) => other.row === row && other.from < to && other.to > from)) row++;
        line.push({ first, last, from, to, row });
        for (let w = first; w <= last; w++) bars[w - start].style.top = `${STEP * row + 9}px`;
        if (first === start) {
          tag.style.top = `${STEP * row - 3}px`;
          tag.style.insetInlineStart = `${back}px`;
          tag.style.maxWidth = `${width}px`;
        }
      }
    });
    for (const [w, rail] of rails) {
      const rows = Math.max(...lines.get(places[w].top).map((each) => each.row)) + 1;
      rail.style.height = `${STEP * rows + 4}px`;
    }
  }

  // The explanation of a span, beside it; none for none
  function tell(element) {
    const tip = document.getElementById("tip");
    if (!element) { tip.hidden = true; return; }
    tip.textContent = element.dataset.says;
    tip.hidden = false;
    const box = element.getBoundingClientRect();
    const left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? box.bottom + 6 : box.top - tip.offsetHeight - 6}px`;
  }

  document.addEventListener("mouseover", (event) => tell(event.target.closest?.("[data-says]")));

  return { make, key, draw, arrange, tell };
})();
