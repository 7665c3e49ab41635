/** Keeping a world that was written in the page: a new file, never over another. */

import { ask, Refused } from './ask.js';
import { make } from './dom.js';

const NAME = '[a-z][a-z0-9\\-]{0,39}';

/** A name, a button, and what came of it. @param {() => string} text of the world @param {() => string} program */
export function makeSaving(text, program) {
  const name = make('input', {
    type: 'text', id: 'world-save-name', placeholder: 'my-town', pattern: NAME, maxlength: 40, required: true, autocomplete: 'off',
    autocapitalize: 'off', spellcheck: 'false', 'aria-describedby': 'world-saved', title: 'Small letters, digits and dashes, a letter first',
  });
  const button = make('button', { type: 'submit', text: 'Save as new world' });
  const told = make('div', { class: 'saved', id: 'world-saved', role: 'status' });
  const form = make('form', { class: 'saving operator-only' },
    make('label', { for: 'world-save-name', text: 'Name' }), name, button, told);

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { file } = await ask('api/worlds', { name: name.value, text: text() });
      tell(told, 'right', make('p', { text: `Saved as ${file}. Train an agent in it, in a terminal where you started this page:` }),
        make('pre', {}, make('code', { text: `${program()} train ${file} --live` })));
    } catch (error) {
      const fix = error instanceof Refused ? error.fix : 'The text is still here; try again.';
      tell(told, 'wrong', make('p', { text: sentence(error instanceof Error ? error.message : String(error)) }), fix ? make('p', { class: 'quiet', text: sentence(fix) }) : null);
    }
    button.disabled = false;
  });
  name.addEventListener('input', () => told.replaceChildren());
  return form;
}

/** @param {HTMLElement} box @param {'right' | 'wrong'} verdict @param {...(HTMLElement | null)} parts */
function tell(box, verdict, ...parts) {
  box.dataset.verdict = verdict;
  box.replaceChildren(...parts.filter((part) => part !== null));
}

/** @param {string} words */
const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?:]$/.test(words) ? '' : '.');
