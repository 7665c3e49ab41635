/** The form that saves an edited world as a file. */

import { ApiError, request } from './api.js';
import { el } from './dom.js';
import { sentence } from './format.js';

const NAME = '[a-z][a-z0-9\\-]{0,39}';

/** Form that saves the world under a new name. @param {() => string} text of the world @param {() => string} program */
export function makeSaveForm(text, program) {
  const name = el('input', {
    type: 'text', id: 'world-save-name', placeholder: 'my-town', pattern: NAME, maxlength: 40, required: true, autocomplete: 'off',
    autocapitalize: 'off', spellcheck: 'false', 'aria-describedby': 'world-save-result', title: 'Lowercase letters, digits and dashes, starting with a letter',
  });
  const button = el('button', { type: 'submit', text: 'Save as new world' });
  const output = el('div', { class: 'save-result', id: 'world-save-result', role: 'status' });
  const form = el('form', { class: 'save-form operator-only' },
    el('label', { for: 'world-save-name', text: 'Name' }), name, button, output);

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { file } = await request('api/worlds', { name: name.value, text: text() });
      showResult(output, 'right', el('p', { text: `Saved as ${file}. To train an agent in it, run this where you started the server:` }),
        el('pre', {}, el('code', { text: `${program()} train ${file} --live` })));
    } catch (error) {
      const fix = error instanceof ApiError ? error.fix : 'Your text is unchanged; try again.';
      showResult(output, 'wrong', el('p', { text: sentence(error instanceof Error ? error.message : String(error)) }), fix ? el('p', { class: 'muted', text: sentence(fix) }) : null);
    }
    button.disabled = false;
  });
  name.addEventListener('input', () => output.replaceChildren());
  return form;
}

/** @param {HTMLElement} box @param {'right' | 'wrong'} verdict @param {...(HTMLElement | null)} parts */
function showResult(box, verdict, ...parts) {
  box.dataset.verdict = verdict;
  box.replaceChildren(...parts.filter((part) => part !== null));
}
