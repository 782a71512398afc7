// Checks a selector at each pause of the typing: underlines the fault, says what was expected, offers the fix.
"use strict";

const PAUSE_MILLISECONDS = 150;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Offsets of the service count characters; a string of JavaScript counts UTF-16 units.
function unitOf(text, offset) {
  return Array.from(text).slice(0, offset).join("").length;
}

function watchEditor(form) {
  const area = form.querySelector("#selector");
  const dialect = form.querySelector("#dialect");
  const verdict = form.querySelector("#verdict");
  const marks = form.querySelector(".marks");
  let timer = 0;
  let asked = 0;
  let isPressed = false;
  let postponed = null; // what to show when the pointer is released

  function underline(text, offset, length) {
    const from = unitOf(text, offset);
    const to = unitOf(text, offset + Math.max(length, 1));
    const mark = element("mark", text.slice(from, to) || " ");
    marks.replaceChildren(text.slice(0, from), mark, text.slice(to));
    marks.scrollTop = area.scrollTop;
  }

  // The verdict moves the buttons below it: one that moved between press and release would not be clicked.
  function show(className, ...parts) {
    if (isPressed) {
      postponed = () => show(className, ...parts);
      return;
    }
    verdict.className = `verdict ${className}`;
    verdict.replaceChildren(...parts);
  }

  function fixed(suggestion) {
    const button = element("button", `Write ${suggestion}`);
    button.type = "button";
    button.addEventListener("click", () => {
      area.value = suggestion;
      area.focus();
      check();
    });
    return button;
  }

  function warnings(list) {
    const shown = element("ul");
    shown.append(...list.map((one) => element("li", one.message)));
    return shown;
  }

  function access(list) {
    return list
      .map((one) =>
        one.attributes.length
          ? `by ${one.attributes.join(" and ")}${one.by_prefix ? ", by a prefix" : ""}`
          : `for every message (${one.reason})`)
      .join("; ");
  }

  function told(text, data) {
    marks.replaceChildren();
    if (data.problem) {
      show("bad", element("p", data.problem));
    } else if (!data.valid) {
      const fault = data.error;
      underline(text, fault.offset, fault.length);
      const hint = fault.hint ? `; ${fault.hint}` : "";
      const parts = [element("p", `Line ${fault.line}, column ${fault.column}: ${fault.reason}${hint}`)];
      if (fault.expected && fault.expected.length) {
        parts.push(element("p", `Expected: ${fault.expected.join(", ")}`));
      }
      if (fault.suggestion) parts.push(fixed(fault.suggestion));
      show("bad", ...parts);
    } else {
      const parts = [element("p", `Valid. It is looked at ${access(data.access)}.`)];
      if (data.warnings.length) parts.push(warnings(data.warnings));
      show("good", ...parts);
    }
  }

  async function check() {
    const number = ++asked;
    const text = area.value;
    const body = new URLSearchParams({ selector: text, dialect: dialect.value });
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body, credentials: "same-origin" });
      if (number !== asked) return; // a later one was asked for
      const isJson = (answer.headers.get("content-type") || "").startsWith("application/json");
      told(text, isJson ? await answer.json() : { problem: "The console refused to check this: load the page again." });
    } catch {
      if (number === asked) show("bad", element("p", "The service does not answer; it is asked again when you type."));
    }
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MILLISECONDS);
  }

  function released() {
    isPressed = false;
    setTimeout(() => { postponed?.(); postponed = null; });
  }

  document.addEventListener("pointerdown", () => { isPressed = true; });
  document.addEventListener("pointerup", released);
  document.addEventListener("pointercancel", released);
  area.addEventListener("input", later);
  area.addEventListener("scroll", () => { marks.scrollTop = area.scrollTop; });
  dialect.addEventListener("change", check);
  check();
}

// Offers the identifiers of recent messages, with their types, for the word before the caret.
function completeNames(form) {
  const area = form.querySelector("#selector");
  const list = form.querySelector("#names");
  const MOST = 8;
  let known = null; // the promise of the identifiers
  let active = -1;

  async function ask() {
    const answer = await fetch(form.dataset.names, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.statusText);
    return (await answer.json()).items;
  }

  async function load() {
    known ??= ask();
    try {
      return await known;
    } catch {
      known = null; // asked again at the next key
      return [];
    }
  }

  function wordBefore() {
    const before = area.value.slice(0, area.selectionStart);
    if (before.split("'").length % 2 === 0) return ""; // inside a string
    return (before.match(/[\p{L}_$][\p{L}\p{N}_$.]*$/u) || [""])[0];
  }

  function close() {
    active = -1;
    list.hidden = true;
    list.replaceChildren();
    area.removeAttribute("aria-activedescendant");
  }

  function take(name) {
    const end = area.selectionStart;
    area.setRangeText(name, end - wordBefore().length, end, "end");
    close();
    area.dispatchEvent(new Event("input"));
    close(); // the word is whole
  }

  function choose(number) {
    const options = [...list.children];
    active = (number + options.length) % options.length;
    options.forEach((one, at) => one.setAttribute("aria-selected", String(at === active)));
    area.setAttribute("aria-activedescendant", options[active].id);
  }

  function option(one, number) {
    const made = element("li");
    made.id = `name-${number}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", "false");
    made.dataset.name = one.name;
    const values = one.values.length ? `, such as ${one.values.slice(0, 3).join(", ")}` : "";
    made.append(element("code", one.name), element("span", ` ${one.types.join(" or ")}${values}`, "saw"));
    made.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the caret stays
      take(one.name);
    });
    return made;
  }

  async function offer() {
    const identifiers = await load();
    const word = wordBefore().toLowerCase();
    const found = identifiers.filter((one) => {
      const name = one.name.toLowerCase();
      return word && name.startsWith(word) && name !== word;
    });
    close();
    if (!found.length) return;
    list.replaceChildren(...found.slice(0, MOST).map(option));
    list.hidden = false;
  }

  area.addEventListener("input", offer);
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      choose(event.key === "ArrowDown" ? active + 1 : active < 0 ? -1 : active - 1);
    } else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) {
      take(list.children[active].dataset.name);
    } else if (event.key === "Escape") {
      close();
    } else {
      return;
    }
    event.preventDefault();
  });
}

// Asks again and again until there is an answer, which takes the place of the text.
async function awaitSentence(place) {
  const MOST_MINUTES = 10;
  const PAUSE = 5_000;
  const until = Date.now() + MOST_MINUTES * 60_000;
  while (Date.now() < until) {
    let wait = 0; // the service itself waits before it says that there is none
    try {
      const answer = await fetch(place.dataset.sentence, { credentials: "same-origin" });
      if (answer.status < 500 && !answer.ok) return;
      const { sentence } = answer.ok ? await answer.json() : {};
      if (sentence) {
        place.textContent = sentence;
        return;
      }
      if (!answer.ok) wait = PAUSE;
    } catch {
      wait = PAUSE; // the service is starting again
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}


// Follows a replay until it is done: its sentence, which a screen reader says, and its table.
function followReplay(part) {
  const SECONDS = 2;
  const status = part.querySelector("[role=status]");
  const lists = { missing: part.querySelector("ul"), rows: part.querySelector("tbody") };

  function row(texts) {
    const made = element("tr");
    made.append(...texts.map((text, at) => element(at ? "td" : "th", text, at ? "number" : "")));
    made.firstChild.scope = "row";
    return made;
  }

  function show(data) {
    if (status.textContent !== data.sentence) status.textContent = data.sentence;
    lists.missing.replaceChildren(...data.missing.map((why) => element("li", why)));
    lists.missing.hidden = !data.missing.length;
    lists.rows.replaceChildren(...data.rows.map(row));
    part.querySelector(".scroll").hidden = !data.rows.length;
  }

  async function ask() {
    let goesOn = true;
    try {
      const answer = await fetch(part.dataset.follow, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.statusText);
      const data = await answer.json();
      show(data);
      goesOn = data.follow;
    } catch {
      const sentence = "The service does not answer; it is asked again.";
      if (status.textContent !== sentence) status.textContent = sentence;
    }
    if (goesOn) setTimeout(ask, SECONDS * 1000);
  }

  setTimeout(ask, SECONDS * 1000);
}

document.querySelectorAll("form[data-check]").forEach(watchEditor);
document.querySelectorAll("form[data-names]").forEach(completeNames);
document.querySelectorAll("[data-sentence]").forEach(awaitSentence);
document.querySelectorAll("[data-follow]").forEach(followReplay);
