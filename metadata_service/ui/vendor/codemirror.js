// What ../static/spec_editor.js uses of CodeMirror.
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { json } from "@codemirror/lang-json";
export { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { goToNextChunk, goToPreviousChunk, unifiedMergeView } from "@codemirror/merge";
export { search, searchKeymap } from "@codemirror/search";
export { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, WidgetType, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
export { tags } from "@lezer/highlight";
