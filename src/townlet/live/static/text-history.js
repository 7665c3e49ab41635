/** Texts of the world editor that can be restored, and the draft that survives a reload. */

const MAX_TEXTS = 100;

export class TextHistory {
  constructor() {
    this.original = '';
    this.draftKey = ''; // in sessionStorage
    /** @type {string[]} */
    this.texts = []; // oldest first
    this.at = 0; // index of the current one
  }

  /** Begin with a text, or with the draft that was made from it; returns that. @param {string} original @param {string} draftKey */
  open(original, draftKey) {
    this.original = original;
    this.draftKey = draftKey;
    this.texts = [loadDraft(draftKey) ?? original];
    this.at = 0;
    return this.texts[0];
  }

  /** Keep the current text. @param {string} text */
  remember(text) {
    if (this.texts[this.at] !== text) {
      this.texts = [...this.texts.slice(0, this.at + 1), text].slice(-MAX_TEXTS);
      this.at = this.texts.length - 1;
    }
    try {
      if (text === this.original) sessionStorage.removeItem(this.draftKey);
      else sessionStorage.setItem(this.draftKey, text);
    } catch { /* storage disabled */ }
  }

  /** @param {-1 | 1} by */
  canGo(by) {
    return this.at + by in this.texts;
  }

  /** The text before or after the current one; null if there is none. @param {-1 | 1} by */
  go(by) {
    if (!this.canGo(by)) return null;
    this.at += by;
    return this.texts[this.at];
  }
}

/** @param {string} key */
function loadDraft(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
