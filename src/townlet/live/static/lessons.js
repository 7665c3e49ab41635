/** The dialog with the lessons: a question first, the measured answer on request. */

import { request } from './api.js';
import { makeClosable } from './dialog.js';
import { byId, copyButton, el } from './dom.js';

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

/** @param {Lesson} lesson @param {string} program command that starts townlet */
function lessonItem(lesson, program) {
  const command = el('code', { class: 'lesson-command', text: `${program} lesson ${lesson.name} --open` });
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
    el('div', { class: 'command' }, command, copyButton(command)),
    answer);
}

/** Build the dialog. @param {import('./state.js').Store} store */
export function initLessons(store) {
  const dialog = /** @type {HTMLDialogElement} */ (byId('lessons'));
  const list = el('div', { class: 'lesson-list' });
  makeClosable(dialog);
  dialog.append(
    el('h2', { id: 'lessons-title', text: 'Lessons' }),
    el('p', { text: 'Each lesson is one failure of reinforcement learning beside its cure.' }),
    list);
  byId('lessons-button').addEventListener('click', async () => {
    if (!list.children.length) {
      const lessons = /** @type {Lesson[]} */ (await request('api/lessons').catch(() => []));
      list.replaceChildren(...lessons.map((lesson) => lessonItem(lesson, store.state.program)));
    }
    dialog.showModal();
  });
}
