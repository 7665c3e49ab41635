/** The dialog with the lessons: a question first, the measured answer on request. */

import { request } from './api.js';
import { byId, el } from './dom.js';

/**
 * @typedef {{label: string, values: (string | null)[]}} Arm
 * @typedef {{number: number, name: string, title: string, question: string, conclusion: string, measures: string[], arms: Arm[], seeds: number, seconds: number | null}} Lesson
 */

/** @param {Lesson} lesson */
function resultTable({ measures, arms, seeds }) {
  return el('table', { class: 'lesson-table' },
    el('caption', { text: `Interquartile means over ${seeds} seeds` }),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col', text: 'agent' }), ...measures.map((label) => el('th', { scope: 'col', text: label })))),
    el('tbody', {}, ...arms.map(({ label, values }) => el('tr', {}, el('th', { scope: 'row', text: label }), ...values.map((value) => el('td', { text: value ?? '–' }))))));
}

/** @param {Lesson} lesson */
function lessonItem(lesson) {
  const { number, name, title, question, conclusion, arms, seconds } = lesson;
  const answer = el('details', { class: 'lesson-answer' }, el('summary', { text: 'What happened' }));
  answer.addEventListener('toggle', () => { // the figure is loaded when it is needed
    if (answer.open && answer.children.length === 1) {
      answer.append(el('img', { src: `api/lessons/${name}/figure.svg`, alt: `Curves of the agents in “${title}”` }), resultTable(lesson), el('p', { class: 'lesson-conclusion', text: conclusion }));
    }
  });
  const duration = seconds === null ? '' : `, about ${Math.max(1, Math.round(seconds / 10)) * 10} seconds`;
  return el('details', { class: 'lesson', name: 'lesson' },
    el('summary', {}, el('b', { text: `${number}. ${title}` }), el('span', { text: question })),
    el('ul', {}, ...arms.map(({ label }) => el('li', { text: label }))),
    el('p', { text: 'Which agent does better, and why? Write your prediction down, then train them side by side' + duration + ':' }),
    el('code', { class: 'lesson-command', text: `townlet lesson ${name} --open` }),
    answer);
}

/** Build the dialog. */
export function initLessons() {
  const dialog = /** @type {HTMLDialogElement} */ (byId('lessons'));
  const list = el('div', { class: 'lesson-list' });
  const close = el('button', { type: 'button', class: 'primary', text: 'Close' });
  dialog.append(
    el('h2', { id: 'lessons-title', text: 'Lessons' }),
    el('p', { text: 'Each lesson is one failure of reinforcement learning beside its cure.' }),
    list, close);
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  byId('lessons-button').addEventListener('click', async () => {
    if (!list.children.length) {
      const lessons = /** @type {Lesson[]} */ (await request('api/lessons').catch(() => []));
      list.replaceChildren(...lessons.map(lessonItem));
    }
    dialog.showModal();
  });
}
