/** A text area with line numbers for YAML; long lines are wrapped. */

import { el } from './dom.js';

export class YamlEditor {
  /** @param {() => void} onInput @param {() => void} onSubmit called by Ctrl+Enter */
  constructor(onInput, onSubmit) {
    this.gutter = el('pre', { class: 'gutter', 'aria-hidden': 'true' });
    this.measure = el('div', { class: 'yaml-measure', 'aria-hidden': 'true' }); // finds the height of wrapped lines
    this.text = el('textarea', { class: 'yaml-editor', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', 'aria-label': 'The world as YAML', 'aria-describedby': 'world-check-result' });
    this.box = el('div', { class: 'editor' }, this.gutter, this.text, this.measure);
    /** @type {Set<number>} */
    this.wrong = new Set();
    this.text.addEventListener('input', () => { this.numberLines(); onInput(); });
    this.text.addEventListener('scroll', () => { this.gutter.scrollTop = this.text.scrollTop; });
    this.text.addEventListener('keydown', (event) => {
      // Tab leaves the editor, so that the keyboard reaches every control.
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) onSubmit();
    });
    new ResizeObserver(() => this.numberLines(this.wrong)).observe(this.text);
  }

  get value() {
    return this.text.value;
  }

  set value(text) {
    if (text === this.text.value) return;
    this.text.value = text;
    this.numberLines();
  }

  /** Number the lines; a wrapped line has one number. @param {Set<number>} [wrong] lines with errors */
  numberLines(wrong = new Set()) {
    this.wrong = wrong;
    this.measure.style.width = `${this.text.clientWidth}px`;
    this.measure.replaceChildren(...this.text.value.split('\n').map((line) => el('div', { text: line || ' ' })));
    const heights = [...this.measure.children].map((line) => /** @type {HTMLElement} */ (line).offsetHeight);
    this.gutter.replaceChildren(...heights.map((height, k) => {
      const number = el('span', { class: wrong.has(k + 1) ? 'wrong' : null, text: String(k + 1) });
      number.style.height = `${height}px`;
      return number;
    }));
    this.gutter.scrollTop = this.text.scrollTop;
  }

  /** Select a line and scroll to it. @param {number} line */
  goToLine(line) {
    const lines = this.text.value.split('\n');
    const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    const above = [...this.measure.children].slice(0, Math.max(0, line - 6)).reduce((sum, one) => sum + /** @type {HTMLElement} */ (one).offsetHeight, 0);
    this.text.scrollTop = above;
  }
}
