
"use strict";
const said = document.querySelector("[role=status]");

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // an old browser, or one that gives a file no clipboard
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("no clipboard");
  }
}

for (const button of document.querySelectorAll("[data-copies]")) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const texts = [...document.querySelectorAll(button.dataset.copies)].map((one) => one.textContent);
    let outcome = "Copied";
    try {
      await copy(texts.join("\n"));
    } catch {
      outcome = "Select the text to copy it";
    }
    button.textContent = outcome;
    said.textContent = outcome;
    button.focus();
    setTimeout(() => {
      button.textContent = label;
      said.textContent = "";
    }, 1800);
  });
}
