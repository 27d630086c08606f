// What a page does beyond forms and links. Everything here is comfort: each page works without it.

const find = (selector, within = document) => within.querySelector(selector);

function say(text) {
  const toast = find("#toast");
  toast.textContent = text;
  setTimeout(() => { toast.textContent = ""; }, 6000);
}

document.addEventListener("click", (event) => {
  const target = event.target.closest?.("button, summary");
  if (target?.dataset.copy) {
    navigator.clipboard?.writeText(target.dataset.copy).then(() => say("Copied"), () => say("Select the text and copy it"));
  } else if (target?.classList.contains("menu")) {
    const isOpen = find("#navigation")?.classList.toggle("open");
    target.setAttribute("aria-expanded", String(Boolean(isOpen)));
  }
  for (const open of document.querySelectorAll("details.curl[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select");
  const slash = event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey;
  const field = slash && find("[data-key='/']");
  if (field) { event.preventDefault(); field.focus(); }
  else if (slash || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey))) {
    if (find("#palette")) { event.preventDefault(); openPalette(); }
  } else if ((event.key === "j" || event.key === "k") && !isTyping && !event.ctrlKey && !event.metaKey && find("[data-keys]")) {
    // Moves along a list; Enter opens, as it does for every link.
    const links = [...document.querySelectorAll("[data-keys] a")];
    const here = links.indexOf(document.activeElement);
    const from = here >= 0 ? here : links.findIndex((each) => each.hasAttribute("aria-current"));
    links[Math.min(links.length - 1, Math.max(0, from + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.curl[open]")) { open.open = false; find("summary", open).focus(); }
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && isTyping?.form?.id === "editor") {
    event.preventDefault();
    find("#reason").focus();
  }
});

// The palette: one field over pages, attributes, specs and profiles. The focus stays in it; arrows choose.
function openPalette() {
  const palette = find("#palette");
  if (palette.open) return;
  palette.showModal();
  find("#palette-q").select();
  find("#palette-q").dispatchEvent(new Event("open"));
}

function choose(options, number) {
  options.forEach((each, place) => each.setAttribute("aria-selected", String(place === number)));
  find("#palette-q").setAttribute("aria-activedescendant", options[number]?.id ?? "");
  options[number]?.scrollIntoView({ block: "nearest" });
}

function follow(option, isNewTab) {
  if (!option?.dataset.href) find("#palette form").requestSubmit();
  else if (isNewTab) open(option.dataset.href, "_blank", "noopener");
  else location.assign(option.dataset.href);
}

find("[data-palette]")?.removeAttribute("hidden");
document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-palette]")) openPalette();
  else if (event.target.id === "palette") event.target.close();
  else if (event.target.closest?.("#palette [role=option]")) follow(event.target.closest("[role=option]"), event.ctrlKey || event.metaKey);
});
find("#palette")?.addEventListener("keydown", (event) => {
  const options = [...document.querySelectorAll("#palette [role=option]")];
  const here = options.findIndex((each) => each.getAttribute("aria-selected") === "true");
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) { event.preventDefault(); choose(options, (here + steps[event.key] + options.length) % options.length); }
  else if (event.key === "Enter") { event.preventDefault(); follow(options[here], event.ctrlKey || event.metaKey); }
});
document.addEventListener("htmx:afterSwap", (event) => { if (event.target.id === "palette-found") choose([...document.querySelectorAll("#palette [role=option]")], 0); });

// A search that takes its time: the old content stays, dimmed.
document.addEventListener("submit", (event) => { if (event.target.matches("[data-busy]")) find("#main").setAttribute("aria-busy", "true"); });
addEventListener("pageshow", () => find("#main").removeAttribute("aria-busy"));
document.addEventListener("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.requestSubmit(); });

// Filters that somebody keeps, in this browser.
function showSaved() {
  const place = find("[data-saved]");
  if (!place) return;
  const name = `saved ${place.dataset.saved}`;
  const kept = JSON.parse(localStorage.getItem(name) ?? "[]");
  const here = String(new URLSearchParams([...new URLSearchParams(location.search)].filter(([part, value]) => value && part !== "cursor")));
  const links = kept.map((each) => {
    const link = document.createElement("a");
    link.className = "button small";
    link.href = `?${each}`;
    link.textContent = [...new URLSearchParams(each)].map((part) => part.join(" ")).join(", ");
    if (each === here) link.setAttribute("aria-current", "true");
    return link;
  });
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button small plain";
  button.textContent = kept.includes(here) ? "Forget this filter" : "Save this filter";
  button.addEventListener("click", () => {
    const others = kept.filter((each) => each !== here);
    localStorage.setItem(name, JSON.stringify(kept.includes(here) ? others : [...others, here].slice(-20)));
    showSaved();
  });
  place.replaceChildren(...links, ...(here ? [button] : []));
  place.hidden = !place.children.length;
}
for (const name of ["htmx:afterSwap", "htmx:pushedIntoHistory"]) document.addEventListener(name, showSaved);
showSaved();

// Selecting a row is no filter: the list stays.
function countChosen() {
  const shown = find("#bulk-count");
  if (shown) shown.textContent = `${document.querySelectorAll("[name^='chosen:']:checked").length} selected`;
}
document.addEventListener("change", (event) => { if (event.target.name?.startsWith("chosen:")) { event.stopPropagation(); countChosen(); } }, true);
document.addEventListener("htmx:afterSwap", countChosen);
countChosen();

// New attributes: the list is read again in place, unless somebody is at work in it. Nobody asks while nobody looks.
const refresh = () => find("#again")?.dispatchEvent(new Event("refresh"));
document.addEventListener("click", (event) => { if (event.target.closest?.("[data-refresh]")) refresh(); });
document.addEventListener("htmx:beforeRequest", (event) => { if (["news", "waiting"].includes(event.target.id) && document.hidden) event.preventDefault(); });
document.addEventListener("htmx:afterSwap", () => {
  const isBusy = scrollY > 120 || find("[name^='chosen:']:checked") || document.activeElement?.closest("#filter, #bulk");
  if (find("#news[data-news]") && !isBusy) refresh();
});

// The policy of an attribute follows the defaults of the classification that somebody chooses; they change what is to differ.
document.addEventListener("change", (event) => {
  const levels = event.target.id === "classification" && event.target.form?.dataset.levels;
  const level = levels && JSON.parse(levels)[event.target.value];
  if (!level) return;
  const fields = event.target.form.elements;
  fields.encryption.value = level.encryption;
  fields.authorization_level.value = level.authorization_level;
  fields.indexable.checked = level.indexable;
  find("#level-note").hidden = false;
});

// A list of facets starts closed where there is no room beside it.
if (matchMedia("(width < 720px)").matches) find(".facets")?.removeAttribute("open");

document.addEventListener("input", (event) => {
  const list = event.target.dataset?.filter;
  if (!list) return;
  const words = event.target.value.toLowerCase();
  for (const leaf of document.querySelectorAll(`${list} [data-text]`)) leaf.hidden = !leaf.dataset.text.toLowerCase().includes(words);
  for (const group of document.querySelectorAll(`${list} .group`)) group.hidden = !find("[data-text]:not([hidden])", group);
});

for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    const trouble = find("#trouble");
    const status = event.detail.xhr?.status;
    trouble.textContent = status ? `The service answered ${status}. The page may show an old state; try again.` : "The service does not answer. The page may show an old state; try again.";
    trouble.hidden = false;
  });
}
document.addEventListener("htmx:afterOnLoad", (event) => { if (event.detail.successful) find("#trouble").hidden = true; });

// A revealed value is sealed again when its seconds are over, and when the page is hidden or left.
function seal(shown) {
  clearInterval(Number(shown.dataset.ticking));
  const note = document.createElement("p");
  note.className = "third";
  note.textContent = "Sealed again.";
  shown.replaceWith(note);
}

function watchRevealed() {
  for (const shown of document.querySelectorAll("[data-seconds]:not([data-ticking])")) {
    const until = Date.now() + 1000 * Number(shown.dataset.seconds);
    shown.dataset.ticking = String(setInterval(() => {
      const left = Math.ceil((until - Date.now()) / 1000);
      find(".left", shown).textContent = `${left} s left`;
      if (left <= 0) seal(shown);
    }, 500));
  }
}

const sealAll = () => document.querySelectorAll("[data-ticking]").forEach(seal);
document.addEventListener("htmx:afterSwap", watchRevealed);
document.addEventListener("visibilitychange", () => { if (document.hidden) sealAll(); });
addEventListener("pagehide", sealAll);
watchRevealed();

// A file is read into a field; without script it is pasted.
for (const field of document.querySelectorAll("input[data-into]")) {
  field.parentElement.hidden = false;
  field.addEventListener("change", async () => { find(`#${field.dataset.into}`).value = (await field.files[0]?.text()) ?? ""; });
}

// A file is sent as it is, with what stands beside it in the address.
document.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-upload]")) return;
  event.preventDefault();
  const { csrf, file, name, reason } = event.target.elements;
  find("#main").setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`${event.target.action}?${new URLSearchParams({ name: name.value, reason: reason.value })}`, {
      method: "POST", headers: { "X-CSRF-Token": csrf.value, "Content-Type": "application/octet-stream" }, body: file.files[0],
    });
    if (answer.ok) return location.assign(answer.url);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    find("#main").replaceChildren(...find("#main", page).childNodes);
    find("#main [aria-invalid]")?.focus();
  } catch {
    find("#trouble").textContent = "The service does not answer. Try again.";
    find("#trouble").hidden = false;
  }
  find("#main").removeAttribute("aria-busy");
});

// A list of pairs has an empty one at its end.
document.addEventListener("input", (event) => {
  const pair = event.target.closest?.("[data-grow]");
  if (!pair || find("[data-grow] ~ [data-grow]:last-of-type", pair.parentElement) !== pair) return;
  const next = pair.cloneNode(true);
  for (const input of next.children) {
    for (const name of ["name", "id", "aria-label"]) input.setAttribute(name, (input.getAttribute(name) ?? "").replace(/\d+(?!.*\d)/, (number) => Number(number) + 1));
    input.value = "";
    input.removeAttribute("aria-invalid");
  }
  pair.after(next);
});
