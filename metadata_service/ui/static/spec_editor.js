// The spec editor: CodeMirror over the text field, which stays the form's value, and is the editor without script. It lives in a
// shadow root: there its styles are constructed sheets, which the content policy lets in.

const find = (selector, within = document) => within.querySelector(selector);
const text = find("#text");
const form = text.form;
const {
  Compartment, Decoration, EditorState, EditorView, HighlightStyle, StateEffect, StateField, WidgetType, autocompletion, bracketMatching,
  closeBrackets, closeBracketsKeymap, completionKeymap, defaultKeymap, drawSelection, foldGutter, foldKeymap, goToNextChunk, goToPreviousChunk, highlightActiveLine,
  history, historyKeymap, indentOnInput, json, keymap, lineNumbers, lintGutter, lintKeymap, search, searchKeymap, setDiagnostics,
  syntaxHighlighting, syntaxTree, tags, unifiedMergeView,
} = await import(form.dataset.codemirror);

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "12px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "18px" },
  ".cm-content": { caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-soft)" },
  ".cm-gutters": { color: "var(--ink-3)", backgroundColor: "var(--surface)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--sunken)" },
  ".cm-foldPlaceholder": { color: "var(--ink-3)", background: "var(--sunken)", borderColor: "var(--line)" },
  ".cm-tooltip, .cm-panels": { color: "var(--ink)", background: "var(--surface)", border: "1px solid var(--line-strong)", fontFamily: "var(--sans)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 8px", fontFamily: "var(--mono)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--on-accent)", background: "var(--accent)" },
  ".cm-completionDetail": { fontStyle: "normal", fontFamily: "var(--sans)", opacity: "0.85" },
  ".cm-textfield, .cm-button": { color: "var(--ink)", background: "var(--surface)", border: "1px solid var(--line-strong)" },
  ".cm-lintRange-error": { background: "none", textDecoration: "underline wavy var(--bad)" },
  ".cm-lintRange-warning": { background: "none", textDecoration: "underline wavy var(--warn)" },
  ".cm-lint-marker": { width: "8px", height: "8px", margin: "5px 3px", borderRadius: "50%" },
  ".cm-lint-marker-error": { content: "normal", background: "var(--bad)" }, ".cm-lint-marker-warning": { content: "normal", background: "var(--warn)" },
  ".cm-changedLine": { backgroundColor: "var(--add)" }, ".cm-deletedChunk": { backgroundColor: "var(--del)" },
  ".cm-changedText": { background: "none", fontWeight: "700" }, ".cm-deletedText": { background: "none", fontWeight: "700" },
  ".below": { width: "fit-content", maxWidth: "440px", margin: "2px 14px 4px 20px", padding: "6px 12px", borderInlineStart: "2px solid var(--bad)", background: "var(--bad-soft)", color: "var(--bad)", font: "12px/18px var(--sans)", whiteSpace: "normal" },
  ".below.warn": { borderColor: "var(--warn)", background: "var(--warn-soft)", color: "var(--warn)" },
  ".below code": { display: "block", color: "var(--ink-2)", fontFamily: "var(--mono)" },
  ".below button": { font: "inherit", fontWeight: "600", color: "var(--accent)", background: "none", border: "0", padding: "0 6px", cursor: "pointer" },
});
const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--accent)" },
  { tag: tags.string, color: "var(--text-value)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number-value)" },
]);

// What the compiler says stands below its line. The list of problems beside the editor is the server's; here it is only read.
class Below extends WidgetType {
  constructor(problem) { super(); this.problem = problem; }
  eq(other) { return JSON.stringify(other.problem) === JSON.stringify(this.problem); }
  toDOM() {
    const { kind, message, hint, pointer, fix } = this.problem;
    const box = Object.assign(document.createElement("div"), { className: `below ${kind}`, textContent: hint ? `${message} (${hint})` : message });
    if (fix) box.append(Object.assign(document.createElement("button"), { type: "button", textContent: `Replace by ${fix}`, onclick: () => correct(this.problem) }));
    if (pointer) box.append(Object.assign(document.createElement("code"), { textContent: pointer }));
    return box;
  }
  ignoreEvent() { return true; }
}
const report = StateEffect.define();
const below = StateField.define({
  create: () => Decoration.none,
  update(shown, change) {
    for (const effect of change.effects) if (effect.is(report)) return Decoration.set(effect.value, true);
    return shown.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

function place(state, problem) {
  const line = state.doc.line(Math.min(problem.line, state.doc.lines));
  const from = Math.min(line.from + problem.column - 1, line.to);
  return { line, from, to: Math.max(from, Math.min(syntaxTree(state).resolveInner(from, 1).to, line.to)) };
}

function readProblems() {
  return [...document.querySelectorAll("#problems [data-line]")].map(({ dataset }) => {
    const fix = /^did you mean '(.+)'\?$/.exec(dataset.hint)?.[1];
    const wrong = /'([^']+)'/.exec(dataset.message)?.[1];
    return { ...dataset, line: Number(dataset.line), column: Number(dataset.column), wrong, fix: wrong && fix };
  });
}

function correct(problem) {
  const { line, from } = place(view.state, problem);
  const at = line.text.indexOf(problem.wrong, Math.max(0, from - line.from));
  if (at >= 0) view.dispatch({ changes: { from: line.from + at, to: line.from + at + problem.wrong.length, insert: problem.fix } });
  view.focus();
}

function showProblems() {
  const found = readProblems();
  const diagnostics = found.map((each) => {
    const { from, to } = place(view.state, each);
    const actions = each.fix ? [{ name: `Replace by ${each.fix}`, apply: () => correct(each) }] : [];
    return { from, to, severity: each.kind === "bad" ? "error" : "warning", message: each.message, actions };
  });
  const lines = found.map((each) => Decoration.widget({ widget: new Below(each), block: true, side: 1 }).range(place(view.state, each).line.to));
  view.dispatch(setDiagnostics(view.state, diagnostics), { effects: report.of(lines) });
  for (const id of ["#publish", "#preview"]) find(id)?.toggleAttribute("disabled", found.some((each) => each.kind === "bad"));
}

function goTo(problem) {
  const { from, to } = place(view.state, problem);
  view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
  view.focus();
}

// Completion: which words can stand here says the place in the JSON.
const unquoted = (state, node) => (node ? state.sliceDoc(node.from + 1, node.to - 1) : "");

function vocabularyAt(state, node, typed) {
  const isKey = node.name === "PropertyName";
  const property = isKey ? "" : unquoted(state, node.parent?.getChild?.("PropertyName"));
  if (property === "operation") return "operation";
  if (typed.startsWith("=")) return "function";
  let operation = "";
  for (let above = node.parent; above && !operation; above = above.parent) {
    const named = above.name === "Object" ? above.getChildren("Property").find((each) => unquoted(state, each.firstChild) === "operation") : null;
    operation = named ? unquoted(state, named.lastChild) : "";
  }
  if (operation === "jmespath") return isKey ? "path" : "jmespath";
  if (operation) return isKey === (operation !== "shift") ? "path" : null;
  return ["path", "id", "ordinal", "scope", "retracts"].includes(property) ? "path" : null;
}

async function complete(context) {
  const node = syntaxTree(context.state).resolveInner(context.pos, -1);
  if (!["String", "PropertyName"].includes(node.name) || context.pos <= node.from) return null;
  const typed = context.state.sliceDoc(node.from + 1, context.pos);
  const kind = vocabularyAt(context.state, node, typed);
  const word = kind === "function" || kind === "jmespath" ? /\w*$/.exec(typed)[0] : typed;
  if (!kind || (!word && !context.explicit && kind === "path")) return null;
  const answer = await fetch(`${form.dataset.completions}?${new URLSearchParams({ kind, q: word })}`);
  if (!answer.ok) return null;
  const { items, is_all } = await answer.json();
  const options = items.map((each) => ({ label: each.name, detail: each.help, type: kind }));
  return { from: context.pos - word.length, options, validFor: is_all ? /^[\w.-]*$/ : undefined };
}

// The editor.
const compared = new Compartment();
const leave = (event) => event.preventDefault();

function changed(update) {
  if (!update.docChanged) return;
  text.value = update.state.doc.toString();
  text.dispatchEvent(new Event("input", { bubbles: true }));
  addEventListener("beforeunload", leave);
}

// A browser that replaces several lines itself joins them with inline styles, which the content policy refuses.
function overwrite(event) {
  const { main } = view.state.selection;
  const isOneLine = view.state.doc.lineAt(main.from).to >= main.to;
  if (event.inputType !== "insertText" || event.data === null || isOneLine) return false;
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

const host = Object.assign(document.createElement("div"), { className: "code-host" });
const root = host.attachShadow({ mode: "open" });
text.after(host);
text.hidden = true;
const view = new EditorView({
  doc: text.value,
  parent: root,
  root,
  extensions: [
    lineNumbers(), foldGutter(), lintGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
    highlightActiveLine(), search({ top: true }), json(), syntaxHighlighting(colours), look, below, compared.of([]),
    autocompletion({ override: [complete] }), EditorState.tabSize.of(2), EditorView.updateListener.of(changed), EditorView.domEventHandlers({ beforeinput: overwrite }),
    EditorView.contentAttributes.of({ "aria-label": "Spec", tabindex: "0", spellcheck: "false" }),
    keymap.of([
      { key: "Mod-s", run: () => { form.requestSubmit(find("[value=draft]", form)); return true; } },
      { key: "Mod-Enter", run: () => { find("#reason").focus(); return true; } },
      { key: "Alt-F5", run: goToNextChunk, shift: goToPreviousChunk },
      ...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...defaultKeymap,
    ]),
  ],
});

form.addEventListener("submit", () => removeEventListener("beforeunload", leave));
find("label[for=text]").addEventListener("click", () => view.focus());
document.addEventListener("htmx:afterSwap", showProblems);
document.addEventListener("click", (event) => {
  const item = event.target.closest?.("#problems [data-line]");
  if (item) goTo({ line: Number(item.dataset.line), column: Number(item.dataset.column) });
});
showProblems();

const compare = find("#compare");
compare.hidden = false;
compare.addEventListener("click", () => {
  const isOn = compare.getAttribute("aria-pressed") !== "true";
  compare.setAttribute("aria-pressed", String(isOn));
  const extension = isOn ? unifiedMergeView({ original: find("#saved").value, mergeControls: false }) : [];
  view.dispatch({ effects: compared.reconfigure(extension), selection: isOn ? { anchor: 0 } : undefined });
  if (isOn) goToNextChunk(view);
});
