/** The form below the world editor: one name, under which the world is saved, and under which an agent is trained in it. */

import { ApiError, request } from './api.js';
import { el, setText } from './dom.js';
import { sentence } from './format.js';

const DEFAULT_NAME = 'my-town';
const MAX_NAME = 40; // characters

/** File name of a world from any title: "Mia’s town!" as "mias-town". @param {string} title */
export function worldFileName(title) {
  const words = title.normalize('NFKD').toLowerCase().replace(/ß/g, 'ss').replace(/[\u0300-\u036F'’`´]/g, '').replace(/[^a-z0-9]+/g, '-');
  const name = words.replace(/^-+/, '').replace(/^(?=\d)/, 'town-').slice(0, MAX_NAME).replace(/-+$/, '');
  return name || DEFAULT_NAME;
}

/** @param {() => string} text of the world @param {() => string} program @param {import('./training-control.js').TrainingControl} trainings */
export function makeSaveForm(text, program, trainings) {
  const title = el('input', { type: 'text', id: 'save-name', value: 'My town', maxlength: 60, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'world-file' });
  const file = el('small', { id: 'world-file' });
  const save = el('button', { type: 'submit', text: 'Save' }); // also by the Enter key
  const output = el('div', { class: 'save-result', role: 'status' });
  const form = el('form', { class: 'train-form operator-only' },
    el('h3', { text: 'Save it, or train an agent here' }),
    el('div', { class: 'train-fields' },
      el('label', { for: 'save-name', text: 'Name' }), el('div', {}, title, file), ...trainings.fields()),
    el('div', { class: 'buttons' }, save, trainings.button),
    el('p', { class: 'muted', text: 'Both save this world. “Start training” also trains an agent in it on this computer; its town and its curve open at once.' }),
    output, trainings.result);

  const showFile = () => {
    setText(file, `Stored as ${worldFileName(title.value)}.yaml, or with a number if that name is taken.`);
    output.replaceChildren();
  };
  title.addEventListener('input', showFile);
  showFile();
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    save.disabled = true;
    try {
      const saved = await request('api/worlds', { name: worldFileName(title.value), text: text() });
      showResult(output, 'right', el('p', { text: `Saved as ${saved.file}. To train an agent in it later, run this where you started the server:` }),
        el('pre', {}, el('code', { text: `${program()} train ${saved.file} --live` })));
    } catch (error) {
      const fix = error instanceof ApiError ? error.fix : 'Your text is unchanged; try again.';
      showResult(output, 'wrong', el('p', { text: sentence(error instanceof Error ? error.message : String(error)) }), fix ? el('p', { class: 'muted', text: sentence(fix) }) : null);
    }
    save.disabled = false;
  });
  trainings.button.addEventListener('click', () => {
    output.replaceChildren();
    void trainings.start(worldFileName(title.value), text());
  });
  trainings.watchWorld(text);
  return form;
}

/** @param {HTMLElement} box @param {'right' | 'wrong'} verdict @param {...(HTMLElement | null)} parts */
function showResult(box, verdict, ...parts) {
  box.dataset.verdict = verdict;
  box.replaceChildren(...parts.filter((part) => part !== null));
}
