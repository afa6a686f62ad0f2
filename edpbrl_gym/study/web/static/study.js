// Keys, answers that survive a lost connection, times, pictures and tabs. Every page works without this file.
"use strict";

document.documentElement.classList.add("scripted");

window.addEventListener("pageshow", (event) => {
  for (const form of document.querySelectorAll("form[data-once]")) delete form.dataset.sent;
  if (event.persisted && document.querySelector("form[data-question]")) location.reload(); // browser back
});
begin();

function begin() {
  for (const form of document.querySelectorAll("form[data-once]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault(); // a double click
      form.dataset.sent = "1";
    });
  }
  keepDraft(document.querySelector("form[data-page]"));
  if (isLeft(document)) return;
  if (document.querySelector("[data-pending]")) awaitStyle();
  if (document.querySelector("#files[data-later]")) awaitFiles();
  for (const picture of document.querySelectorAll("img[data-coming]")) awaitPicture(picture);
  const question = document.querySelector("form[data-question]");
  if (!question) return;
  askQuestion(question);
  for (const address of (question.dataset.preload ?? "").split(" ").filter(Boolean)) new Image().src = address;
}

// Whether a page sends whoever has finished back to the platform at once; there the back button skips this page.
function isLeft(page) {
  const leave = page.querySelector("a[data-leave]");
  if (leave) location.replace(leave.href);
  return Boolean(leave);
}

// What is typed on a page of questions stays in this tab until the server has it: after a reload, the browser's back
// button or a server that did not answer it is there again.
function keepDraft(form) {
  const key = "edpbrl-draft";
  const isAnswer = (one) => one.name.startsWith("q-");
  const write = (sent) => {
    const given = [...new FormData(form)].filter(([name]) => name.startsWith("q-"));
    sessionStorage.setItem(key, JSON.stringify({ page: form.dataset.page, given, sent }));
  };
  try {
    const draft = JSON.parse(sessionStorage.getItem(key) ?? "null");
    const isStored = draft?.sent && draft.page !== form?.dataset.page; // another page follows it
    if (isStored) sessionStorage.removeItem(key);
    if (form && draft?.page === form.dataset.page && !("typed" in form.dataset)) {
      const values = (name) => draft.given.filter(([other]) => other === name).map(([, value]) => value);
      for (const one of [...form.elements].filter(isAnswer)) {
        if (one.type === "radio" || one.type === "checkbox") one.checked = values(one.name).includes(one.value);
        else one.value = values(one.name)[0] ?? one.value;
      }
    }
    form?.addEventListener("input", () => write(false));
    form?.addEventListener("submit", () => write(true));
  } catch {
    // a browser that keeps nothing for pages
  }
  if (!form) return;
  const life = new AbortController();
  window.addEventListener("edpbrl-page", () => life.abort(), { once: true });
  const clock = watch(form, life.signal);
  form.addEventListener("submit", () => clock.fill());
}

function askQuestion(form) {
  const life = new AbortController(); // of this page
  window.addEventListener("edpbrl-page", () => life.abort(), { once: true });
  const clock = watch(form, life.signal);
  const order = form.dataset.gives === "order" ? tapInOrder(form) : null;
  keys(form, order, life.signal);
  zoom(form, order, life.signal);
  oneTab(form, life.signal);
  const sure = document.querySelector("[data-watch]");
  if (sure) watchCertainty(sure, life.signal);
  if ("swipe" in form.dataset) swipe(form, life.signal);
  if ("immediate" in form.dataset) {
    form.addEventListener("click", (event) => {
      if (event.target.matches("input[type=radio]") && event.detail > 0) next(form); // a pointer; arrow keys only move
    });
  }
  let sending = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (sending || (event.submitter?.matches("[data-next]") && form.querySelector(".is-coming"))) return;
    sending = true;
    clock.fill();
    send(form, event.submitter, () => (sending = false));
  });
}

function next(form) {
  form.querySelector("[data-next]").click();
}

// A picture that is being drawn has a sign in its place. One that can't be drawn says why; in a question another one comes.
function awaitPicture(picture) {
  const card = picture.closest(".card, .frame");
  const sign = document.createElement("span");
  sign.className = "no-picture is-coming";
  sign.textContent = picture.dataset.coming;
  const done = () => {
    sign.remove();
    card.classList.remove("is-coming");
  };
  const failed = async () => {
    if (card.closest("form[data-question]")) {
      const [, text] = await insist("/question", {}, 60, () => {});
      return sign.isConnected ? replace(text) : undefined; // otherwise another one was first
    }
    card.classList.replace("is-coming", "is-failed");
    sign.classList.remove("is-coming");
    sign.textContent = picture.dataset.failed;
    picture.remove();
    const answer = await fetch(picture.src).catch(() => null);
    const why = document.createElement("span");
    why.className = "why";
    why.textContent = answer?.status === 424 ? await answer.text() : "";
    sign.append(why);
  };
  card.classList.add("is-coming");
  picture.after(sign);
  if (picture.complete) return picture.naturalWidth ? done() : failed();
  picture.addEventListener("load", done);
  picture.addEventListener("error", failed);
}

// How sure the answers make it, as soon as that is known.
async function watchCertainty(place, signal) {
  const bar = document.querySelector("header progress");
  for (let wait = 150; !signal.aborted; wait = Math.min(2000, 1.5 * wait)) {
    try {
      const known = await (await fetch(place.dataset.watch, { signal })).json();
      if (signal.aborted) return;
      place.textContent = known.said ? ` · ${known.said}` : "";
      bar.value = known.share;
      if (known.settled) return;
    } catch {
      if (signal.aborted) return; // otherwise no connection: try again
    }
    await new Promise((go) => setTimeout(go, wait));
  }
}

// To the right is yes, to the left no; so are the arrow keys.
function swipe(form, signal) {
  const card = form.querySelector(".card");
  const inputs = [...card.querySelectorAll("input[type=radio]")];
  let begin = null;
  const give = (level) => {
    inputs[level].checked = true;
    next(form);
  };
  const moved = (event) => (begin ? event.clientX - begin.x : 0);
  card.addEventListener("pointerdown", (event) => {
    if (!event.target.matches("input")) begin = { x: event.clientX, id: event.pointerId };
  });
  document.addEventListener("pointermove", (event) => {
    if (begin?.id !== event.pointerId) return;
    const by = moved(event);
    card.style.transform = `translateX(${by}px) rotate(${by / 40}deg)`;
    card.dataset.leans = Math.abs(by) < 60 ? "" : by > 0 ? "yes" : "no";
  }, { signal });
  const end = (event) => {
    if (begin?.id !== event.pointerId) return;
    const by = event.type === "pointerup" ? moved(event) : 0;
    begin = null;
    card.style.transform = "";
    card.dataset.leans = "";
    if (Math.abs(by) >= 60 && !inputs[0].disabled) give(by > 0 ? 1 : 0);
  };
  document.addEventListener("pointerup", end, { signal });
  document.addEventListener("pointercancel", end, { signal });
  document.addEventListener("keydown", (event) => {
    const level = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
    if (level === undefined || event.repeat || event.altKey || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    if (!inputs[0].disabled) give(level);
  }, { capture: true, signal });
}

// Times from the appearance of the question, and how often the page was hidden or shown.
function watch(form, signal) {
  const begin = performance.now();
  let first = null;
  let changes = 0;
  const since = () => Math.round(performance.now() - begin);
  const note = () => (first ??= since());
  for (const kind of ["pointerdown", "keydown", "change"]) document.addEventListener(kind, note, { capture: true, signal });
  document.addEventListener("visibilitychange", () => (changes += 1), { signal });
  return {
    fill() {
      form.elements.first_input_ms.value = first ?? since();
      form.elements.answer_ms.value = since();
      form.elements.visibility_changes.value = changes;
      form.elements.viewport_width.value = window.innerWidth;
      form.elements.viewport_height.value = window.innerHeight;
    },
  };
}

// Post the form until the server has said that it has it (its key makes a repeated post harmless), then load the page
// that comes next. Until then nobody knows whether it is stored: an answer that does not come tells nothing.
async function send(form, submitter, release) {
  const state = form.querySelector(".state");
  const slow = setTimeout(() => (state.textContent = form.dataset.saving), 400);
  const say = (text) => {
    clearTimeout(slow);
    state.textContent = text;
  };
  const body = new URLSearchParams(new FormData(form));
  if (submitter?.name) body.append(submitter.name, submitter.value);
  const address = submitter?.getAttribute("formaction") || form.getAttribute("action");
  const post = { method: "POST", body, headers: { Accept: "application/json" } };
  const [answer, said] = await insist(address, post, 15, () => say(form.dataset.retrying));
  if (!answer.headers.get("content-type")?.startsWith("application/json")) {
    clearTimeout(slow);
    release();
    return replace(said);
  }
  const late = setTimeout(() => say(form.dataset.stored), 400);
  const [page, text] = await insist(JSON.parse(said).next, {}, 60, () => say(form.dataset.stored));
  clearTimeout(slow);
  clearTimeout(late);
  if (page.ok) history.replaceState(null, "", page.url);
  replace(text);
}

// Ask until the server answers, and not that it can't at the moment; then its answer and what it says.
async function insist(address, options, seconds, failed) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const answer = await fetch(address, { ...options, signal: AbortSignal.timeout(1000 * seconds) });
      if (answer.status < 500 && answer.status !== 429) return [answer, await answer.text()];
    } catch {
      // no connection, or no answer in time
    }
    failed();
    await new Promise((go) => {
      setTimeout(go, Math.min(8000, 500 * 2 ** attempt));
      window.addEventListener("online", go, { once: true });
    });
  }
}

// The last question comes into the last page when it is made; whoever copies the code is not disturbed.
async function awaitStyle() {
  while (document.querySelector("[data-pending]")) {
    await new Promise((go) => setTimeout(go, 2000));
    const [answer, text] = await insist(location.href, {}, 30, () => {});
    const page = new DOMParser().parseFromString(text, "text/html");
    const style = page.getElementById("style");
    if (!answer.ok || !style || isLeft(page)) return;
    if (style.querySelector("[data-pending]")) continue;
    const said = liveRegion();
    document.getElementById("style").replaceWith(document.importNode(style, true));
    begin();
    const heading = document.querySelector("#style h2");
    if (heading) setTimeout(() => (said.textContent = heading.textContent), 100);
  }
}

// Files that are written when the pictures are drawn.
async function awaitFiles() {
  for (let list; (list = document.querySelector("#files[data-later]")); ) {
    await new Promise((go) => setTimeout(go, 1000));
    const [, text] = await insist(location.href, {}, 30, () => {});
    const files = new DOMParser().parseFromString(text, "text/html").getElementById("files");
    if (!files) return;
    list.replaceWith(document.importNode(files, true));
  }
}

function replace(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  if (page.querySelector("[data-reload]")) return location.reload(); // a page that asks again by itself
  const wait = [...page.querySelectorAll(".card img:not([data-coming])")].map((picture) => loaded(picture.getAttribute("src")));
  Promise.race([Promise.all(wait), new Promise((go) => setTimeout(go, 3000))]).then(() => {
    document.title = page.title;
    document.documentElement.lang = page.documentElement.lang;
    document.documentElement.dir = page.documentElement.dir;
    window.dispatchEvent(new Event("edpbrl-page"));
    document.body.className = page.body.className;
    const said = liveRegion();
    for (const old of [...document.body.children]) if (old !== said) old.remove();
    said.before(...[...page.body.children].map((one) => document.importNode(one, true)));
    window.scrollTo(0, 0);
    begin();
    announce(said);
  });
}

// Whoever listens to the page goes on at its heading, and hears what is new: a notice, and the question's number.
function announce(said) {
  const heading = document.querySelector("h1");
  if (heading) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  const news = [...document.querySelectorAll(".practice, .notice, #progress")].map((one) => one.textContent);
  setTimeout(() => (said.textContent = news.join(" ")), 100); // after the focus, which would interrupt it
}

// Stays when pages are replaced: a region that comes with its text is not read out.
function liveRegion() {
  let said = document.getElementById("announcement");
  if (!said) {
    said = document.createElement("div");
    said.id = "announcement";
    said.className = "visually-hidden";
    said.setAttribute("role", "status");
    document.body.append(said);
  }
  said.textContent = "";
  return said;
}

function loaded(address) {
  return new Promise((go) => {
    const picture = new Image();
    picture.onload = picture.onerror = go;
    picture.src = address;
  });
}

// A key chooses an option or a level, Enter goes on, U undoes, S can't tell.
function keys(form, order, signal) {
  const options = [...form.querySelectorAll(".option")];
  const press = (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target instanceof HTMLSelectElement) return;
    const key = keyOf(event);
    const place = form.dataset.keys.indexOf(key);
    if (key.length === 1 && place >= 0) {
      const option = options[place];
      if (form.dataset.gives === "levels") {
        rate(options, place);
      } else if (order) {
        order.toggle(option);
        document.activeElement.blur(); // Enter goes on, whatever was pressed before
      } else {
        const inputs = option.querySelectorAll("input:enabled"); // with Shift the second one
        const input = inputs[event.shiftKey ? inputs.length - 1 : 0];
        input?.click();
        input?.focus({ focusVisible: false, preventScroll: true });
      }
      if ("immediate" in form.dataset && form.querySelector(".option input:checked")) next(form);
      event.preventDefault();
    } else if (key === "Z") (form.querySelector(".option:is(:focus-within, :hover) .zoom") ?? form.querySelector(".zoom"))?.click();
    else if (key === "U") click("[data-undo]");
    else if (key === "S") click("[data-cant-tell]");
    else if (event.key === "Enter" && !(event.target instanceof HTMLButtonElement || event.target instanceof HTMLAnchorElement)) {
      event.preventDefault();
      click("[data-next]");
    }
  };
  const click = (selector) => form.querySelector(selector + ":not(:disabled)")?.click();
  document.addEventListener("keydown", press, { signal });
}

// A level of the option in which the focus is, or else of the first one without a level; the next one has the focus then.
function rate(options, level) {
  const open = () => options.find((option) => !option.querySelector("input:checked"));
  const option = options.find((one) => one.contains(document.activeElement)) ?? open() ?? options[0];
  const input = option.querySelectorAll("input")[level];
  input.click();
  const next = open();
  const after = next ? next.querySelector("input") : input;
  if (next || options.length > 1) after.focus({ focusVisible: true });
}

// A digit is one on every layout and with Shift; a letter is read off the place of its key where a layout has none.
function keyOf(event) {
  const [, digit, letter] = /^(?:Digit|Numpad)(\d)$|^Key(.)$/.exec(event.code) ?? [];
  return digit ?? (/^[a-z]$/i.test(event.key) ? event.key.toUpperCase() : letter ?? event.key);
}

// Options are tapped in order, the best first; tapping one again takes it out. The selects of the form keep the places.
function tapInOrder(form) {
  form.classList.add("is-tapped-in-order");
  const options = [...form.querySelectorAll(".option")];
  const chosen = [];
  const draw = () => {
    for (const option of options) {
      const place = chosen.indexOf(option) + 1;
      option.querySelector("select").value = place || "";
      option.querySelector(".card").classList.toggle("is-placed", place > 0);
      option.querySelector(".mark").textContent = place || "";
      const button = option.querySelector(".tap");
      button.setAttribute("aria-pressed", String(place > 0));
      button.setAttribute("aria-label", [option.dataset.name, place || ""].join(" "));
    }
  };
  const toggle = (option) => {
    const place = chosen.indexOf(option);
    if (place >= 0) chosen.splice(place, 1);
    else chosen.push(option);
    draw();
    liveRegion().textContent = option.querySelector(".tap").getAttribute("aria-label");
  };
  for (const option of options) {
    const parts = [...option.querySelectorAll(".card > .visually-hidden, .title, .rest")].map((part) => part.textContent.trim());
    option.dataset.name = option.querySelector("img")?.alt ?? parts.join(" ");
    option.querySelector("select").required = false;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "tap";
    button.addEventListener("click", () => toggle(option));
    option.querySelector(".card").append(button);
  }
  draw();
  return { toggle };
}

// A picture as large as the window, its number, and what is pressed for it. The keys of the options, arrows and a swipe
// show the others, and Z closes it.
function zoom(form, order, signal) {
  const links = [...form.querySelectorAll(".zoom")];
  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      view(link);
    });
    const picture = link.closest(".option").querySelector("label.card, .tap") ? null : link.closest(".card").querySelector("img");
    if (picture && !("swipe" in form.dataset)) picture.addEventListener("click", () => view(link));
  }

  function view(first) {
    const made = (kind, name, ...inside) => {
      const one = document.createElement(kind);
      one.className = name;
      one.append(...inside);
      return one;
    };
    let shown = links.indexOf(first);
    const option = () => links[shown].closest(".option");
    const picture = document.createElement("img");
    const number = made("span", "which");
    const frame = made("div", "picture", picture);
    const choices = made("div", "choices");
    const box = dialog(form, made("div", "viewed", number, frame, choices), form.dataset.close, () => {
      (option().querySelector("input:checked, .tap") ?? links[shown]).focus({ preventScroll: true });
    });
    const show = (place) => {
      shown = (place + links.length) % links.length;
      const inside = option().querySelector("img");
      picture.src = links[shown].href;
      picture.alt = number.textContent = inside.alt;
      choices.replaceChildren(step(-1, "\u2039"), ...pressed(), step(1, "\u203a"));
      if (!box.contains(document.activeElement)) box.focus(); // where the pressed one is gone: keys go on
      if (links.length === 1) for (const one of choices.querySelectorAll(".step")) one.remove();
    };
    const step = (by, sign) => {
      const button = made("button", "step", made("span", "", sign));
      button.type = "button";
      button.setAttribute("aria-label", links[(shown + by + links.length) % links.length].closest(".option").querySelector("img").alt);
      button.addEventListener("click", () => {
        show(shown + by);
        choices.querySelector(`.step:${by < 0 ? "first" : "last"}-child`).focus();
      });
      return button;
    };
    const pressed = () => {
      const inputs = order ? [option().querySelector(".tap")] : [...option().querySelectorAll("input:enabled")];
      const isDown = (one) => (order ? one.getAttribute("aria-pressed") === "true" : one.checked);
      return inputs.map((input) => {
        const named = input.closest(".pill");
        const button = made("button", "", named ? named.querySelector("span").textContent : form.dataset.choose);
        button.type = "button";
        button.setAttribute("aria-pressed", String(isDown(input)));
        button.addEventListener("click", () => {
          input.click();
          for (const [place, one] of choices.querySelectorAll("[aria-pressed]").entries()) {
            one.setAttribute("aria-pressed", String(isDown(inputs[place])));
          }
          if (inputs.length === 1 || "immediate" in form.dataset) box.close();
          if ("immediate" in form.dataset) next(form);
        });
        return button;
      });
    };
    box.tabIndex = -1;
    show(shown);
    box.classList.add("viewer");
    box.setAttribute("aria-label", picture.alt);
    const forward = () => (document.documentElement.dir === "rtl" ? -1 : 1);
    box.addEventListener("keydown", (event) => {
      const other = form.querySelectorAll(".option")[form.dataset.keys.indexOf(keyOf(event))]?.querySelector(".zoom");
      event.stopPropagation(); // the page would open it again
      if (keyOf(event) === "Z") box.close();
      else if (event.key === "ArrowRight") show(shown + forward());
      else if (event.key === "ArrowLeft") show(shown - forward());
      else if (form.dataset.gives !== "levels" && other) show(links.indexOf(other));
    });
    const isZoomed = () => (window.visualViewport?.scale ?? 1) > 1.05; // by pinching: then a finger moves the picture
    window.visualViewport?.addEventListener("resize", () => box.classList.toggle("is-zoomed", isZoomed()), { signal });
    let begin = null;
    frame.addEventListener("pointerdown", (event) => (begin = event.isPrimary && !isZoomed() ? event : null));
    frame.addEventListener("pointerup", (event) => {
      const by = begin ? event.clientX - begin.clientX : 0;
      if (Math.abs(by) > 40 && Math.abs(by) > Math.abs(event.clientY - begin.clientY)) show(shown + (by < 0 ? forward() : -forward()));
      begin = null;
    });
    frame.addEventListener("dragstart", (event) => event.preventDefault());
  }
}

function dialog(form, content, label, then) {
  const box = document.createElement("dialog");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.addEventListener("click", () => box.close());
  box.addEventListener("close", () => {
    box.remove();
    then();
  });
  box.append(content, button);
  document.body.append(box);
  box.showModal();
  return box;
}

// The tab that was opened last is active; the others offer to go on in them.
function oneTab(form, signal) {
  if (!("BroadcastChannel" in window)) return;
  const channel = new BroadcastChannel("edpbrl-study");
  channel.postMessage("active");
  channel.addEventListener("message", () => {
    if (document.querySelector("dialog.tab")) return;
    const inside = document.createElement("div");
    inside.className = "inside";
    const heading = document.createElement("h2");
    heading.textContent = form.dataset.tabTitle;
    const text = document.createElement("p");
    text.textContent = form.dataset.tabText;
    inside.append(heading, text);
    dialog(form, inside, form.dataset.tabHere, () => location.reload()).classList.add("tab");
  });
  signal.addEventListener("abort", () => channel.close());
}
