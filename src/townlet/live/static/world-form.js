/** The form of the world editor: sliders and fields for the selected place, meter, or the whole world. */

import { el, setText } from './dom.js';
import { formatHour, formatMoney, formatNumber, formatPercent, humanize, sentence } from './format.js';
import { affordanceColor, affordanceIcon } from './icons.js';
import { PixelEditor } from './pixel-editor.js';
import { ICONS, METER_FIELDS, PLACE_FIELDS, placeName, WORLD_FIELDS } from './world-fields.js';

/**
 * @typedef {import('./types.js').WorldSpec} WorldSpec
 * @typedef {import('./world-fields.js').Field} Field
 * @typedef {{kind: 'world'} | {kind: 'place' | 'meter', name: string}} Selection
 * @typedef {(path: string[], value: any) => void} SetValue
 */

export class WorldForm {
  /** @param {SetValue} setValue @param {(name: string) => void} remove @param {(name: string, to: string) => void} rename @param {(selection: Selection) => void} select */
  constructor(setValue, remove, rename, select) {
    this.setValue = setValue;
    this.rename = rename;
    this.remove = remove;
    this.select = select;
    this.box = el('div', { class: 'world-form' });
    /** @type {(() => void) | null} */
    this.redraw = null; // waits until no field is in use
    /** @type {import('./types.js').WorldError[]} */
    this.errors = [];
    this.pressed = false; // a slider or the drawing is held
    /** @type {string[]} */
    this.path = []; // of what is selected
    this.description = ''; // of the world, made from it where the text has none
    this.iconPath = ['']; // of the icon that is drawn
    this.pixels = new PixelEditor((icon) => this.setValue(this.iconPath, icon || null));
    this.box.addEventListener('pointerdown', ({ target }) => {
      this.pressed = target instanceof HTMLCanvasElement || (target instanceof HTMLInputElement && target.type === 'range');
    });
    // After the events that follow, such as `change`.
    for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => { if (this.pressed) setTimeout(() => this.release(), 0); });
    this.box.addEventListener('focusout', () => setTimeout(() => this.drawIfFree(), 0));
  }

  release() {
    this.pressed = false;
    this.drawIfFree();
  }

  /** Whether a slider is dragged, or a text typed that was not entered yet: drawing the form would end that. */
  get isInUse() {
    const active = document.activeElement;
    const typing = active instanceof HTMLInputElement && active.type === 'text' && this.box.contains(active);
    return this.pressed || (typing && active.value !== active.dataset.entered);
  }

  drawIfFree() {
    if (this.isInUse) return;
    this.redraw?.();
    this.redraw = null;
  }

  /** @param {WorldSpec} spec @param {Selection} selection */
  show(spec, selection) {
    this.redraw = () => this.draw(spec, selection);
    this.drawIfFree();
  }

  /** @param {WorldSpec} spec @param {Selection} selection */
  draw(spec, selection) {
    const held = /** @type {HTMLElement | null} */ (document.activeElement)?.id ?? '';
    this.path = selection.kind === 'world' ? [] : [selection.kind === 'place' ? 'affordances' : 'meters', selection.name];
    this.box.replaceChildren(this.tabs(spec, selection), ...this.fields(spec, selection));
    this.showErrors(this.errors);
    if (held.startsWith('field-')) document.getElementById(held)?.focus();
  }

  /** Show errors at the fields that they concern; the others of the selected place at the top. @param {import('./types.js').WorldError[]} errors */
  showErrors(errors) {
    this.errors = errors;
    for (const old of this.box.querySelectorAll('.field-error')) old.remove();
    for (const wrong of this.box.querySelectorAll('[aria-invalid]')) {
      wrong.removeAttribute('aria-invalid');
      wrong.removeAttribute('aria-describedby');
    }
    errors.forEach(({ path, what, fix }, k) => {
      const { length } = this.path;
      if (!path.length || this.path.some((part, at) => path[at] !== part)) return;
      const note = el('p', { class: 'field-error', id: `field-error-${k}`, text: sentence(fix ? `${what}: ${fix}` : what) });
      const field = [...this.box.querySelectorAll('.form-field')].find((one) => one instanceof HTMLElement && `${path.slice(length).join('.')}.`.startsWith(`${one.dataset.field}.`));
      if (field) field.append(note);
      else if (length) this.box.firstElementChild?.after(note);
      const control = field?.querySelector('input, select');
      control?.setAttribute('aria-invalid', 'true');
      control?.setAttribute('aria-describedby', note.id);
    });
  }

  /** @param {WorldSpec} spec @param {Selection} selection */
  tabs(spec, selection) {
    const choice = el('select', { id: 'field-selection', 'aria-label': 'What to edit' },
      el('option', { value: 'world:', text: 'The world' }),
      el('optgroup', { label: 'Meters' }, ...spec.meters.map((meter) => el('option', { value: `meter:${meter.name}`, text: humanize(meter.name) }))),
      el('optgroup', { label: 'Places' }, ...spec.affordances.map((place) => el('option', { value: `place:${place.name}`, text: humanize(place.name) }))));
    choice.value = selection.kind === 'world' ? 'world:' : `${selection.kind}:${selection.name}`;
    choice.addEventListener('change', () => {
      const [kind, name] = [choice.value.slice(0, 5), choice.value.slice(6)];
      this.select(kind === 'world' ? { kind } : { kind: /** @type {'place'} */ (kind), name });
    });
    const row = el('div', { class: 'form-head' }, choice);
    if (selection.kind === 'place') {
      const button = el('button', { type: 'button', text: 'Remove' });
      button.addEventListener('click', () => this.remove(selection.name));
      row.append(button);
    }
    return row;
  }

  /** @param {WorldSpec} spec @param {Selection} selection */
  fields(spec, selection) {
    if (selection.kind === 'world') return WORLD_FIELDS.map((field) => this.field(spec, field, spec, []));
    const [section, list, fields] = selection.kind === 'place' ? ['affordances', spec.affordances, PLACE_FIELDS] : ['meters', spec.meters, METER_FIELDS];
    const thing = /** @type {{name: string}[]} */ (list).find((one) => one.name === selection.name);
    if (!thing) return [el('p', { class: 'muted', text: 'It was removed.' })];
    return /** @type {Field[]} */ (fields).map((field) => this.field(spec, field, thing, [/** @type {string} */ (section), selection.name]));
  }

  /** @param {WorldSpec} spec @param {Field} field @param {any} thing @param {string[]} prefix */
  field(spec, field, thing, prefix) {
    const value = field.path.reduce((part, key) => part?.[key], thing);
    const path = [...prefix, ...field.path];
    const id = `field-${path.join('-').replace(/\W/g, '_')}`;
    const control = this.control(spec, field, value, path, id);
    const label = field.kind === 'effects' || field.kind === 'hours' ? el('h4', { text: field.label }) : el('label', { for: id, text: field.label });
    return el('div', { class: 'form-field', 'data-field': field.path.join('.') }, label, control, el('small', { text: field.help }));
  }

  /** @param {WorldSpec} spec @param {Field} field @param {any} value @param {string[]} path @param {string} id */
  control(spec, field, value, path, id) {
    switch (field.kind) {
      case 'switch': return this.switchControl(value, path, id);
      case 'text': return this.textControl(value, id, (text) => this.setValue(path, text || null), this.description);
      case 'name': return this.nameControl(value, id, path);
      case 'icon': return this.iconControl(value, path, id);
      case 'hours': return this.hoursControl(spec, value, path, id);
      case 'effects': return this.effectsControl(spec, field, value ?? {}, path, id);
      default: return this.slider(spec, field, Number(value ?? 0), path, id);
    }
  }

  /** @param {WorldSpec} spec @param {Field} field @param {number} value @param {string[]} path @param {string} id */
  slider(spec, field, value, path, id) {
    const { min = 0, max = 1, step = 0.01 } = field;
    const format = (/** @type {number} */ shown) => {
      if (field.kind === 'money') return spec.currency ? formatMoney(shown * spec.dollars) : formatNumber(shown);
      return field.kind === 'integer' ? String(shown) : shown === 0 || Math.abs(shown) >= 0.1 ? formatPercent(shown) : `${formatNumber(shown * 100, 2)}%`;
    };
    const range = el('input', { type: 'range', id, min: Math.min(min, value), max: Math.max(max, value), step, value });
    const text = el('output', { text: format(value) });
    range.addEventListener('input', () => setText(text, format(Number(range.value))));
    range.addEventListener('change', () => this.setValue(path, Number(range.value)));
    range.setAttribute('aria-valuetext', format(value));
    return el('div', { class: 'form-slider' }, range, text);
  }

  /** @param {boolean} value @param {string[]} path @param {string} id */
  switchControl(value, path, id) {
    const box = el('input', { type: 'checkbox', id, checked: value });
    box.addEventListener('change', () => this.setValue(path, box.checked));
    return box;
  }

  /** @param {string} value @param {string} id @param {(text: string) => void} change @param {string} [placeholder] */
  textControl(value, id, change, placeholder) {
    const input = el('input', { type: 'text', id, value, placeholder, maxlength: 200, 'data-entered': value });
    input.addEventListener('change', () => {
      input.dataset.entered = input.value;
      change(input.value.trim());
    });
    return input;
  }

  /** @param {string} value @param {string} id @param {string[]} path */
  nameControl(value, id, path) {
    const input = this.textControl(value, id, (text) => {
      const name = placeName(text);
      if (name) this.rename(value, name);
      else this.showErrors([{ line: 0, column: 0, path, what: 'a name needs a letter', fix: 'begin with one' }]);
      input.value = input.dataset.entered = name || value;
    });
    return input;
  }

  /** @param {string} value @param {string[]} path @param {string} id */
  iconControl(value, path, id) {
    const text = value.includes('\n') ? '' : value;
    const input = el('input', { type: 'text', id, value: text, maxlength: 8, placeholder: 'emoji', 'data-entered': text });
    const choices = ICONS.map(([icon, name]) => {
      const badge = el('span', { class: 'badge' }, affordanceIcon({ name, icon }, 18));
      badge.style.background = affordanceColor({ name, icon });
      const button = el('button', { type: 'button', class: 'icon-choice', 'aria-pressed': String(icon === value), 'aria-label': name, title: name }, badge);
      button.addEventListener('click', () => this.setValue(path, icon));
      return button;
    });
    input.addEventListener('change', () => {
      input.dataset.entered = input.value;
      this.setValue(path, input.value.trim());
    });
    this.iconPath = path;
    this.pixels.show(path[1], value);
    return el('div', { class: 'icon-field' }, el('div', { class: 'icon-choices' }, input, ...choices), this.pixels.box);
  }

  /** @param {WorldSpec} spec @param {[number, number] | null} value @param {string[]} path @param {string} id */
  hoursControl(spec, value, path, id) {
    const { day } = spec.clock;
    const always = el('input', { type: 'checkbox', id, checked: value === null });
    const [from, to] = [0, 1].map((k) => {
      const select = el('select', { 'aria-label': k ? 'Closes at' : 'Opens at', disabled: value === null },
        ...Array.from({ length: day }, (_, hour) => el('option', { value: hour + k, text: formatHour((hour + k) % day) })));
      select.value = String(value?.[k] ?? (k ? Math.min(day, 18) : Math.min(day - 1, 8)));
      return select;
    });
    const change = () => this.setValue(path, always.checked ? null : [Number(from.value), Number(to.value)]);
    for (const one of [always, from, to]) one.addEventListener('change', change);
    const closed = el('span', { class: 'form-hours' }, from, '–', to);
    closed.hidden = value === null;
    return el('div', { class: 'form-slider' }, el('label', {}, always, ' always open'), closed);
  }

  /** A slider for each meter that changes, and a list to add others. @param {WorldSpec} spec @param {Field} field @param {Record<string, number>} value @param {string[]} path @param {string} id */
  effectsControl(spec, field, value, path, id) {
    const rows = Object.entries(value).filter(([meter, by]) => by !== 0 && spec.meters.some((one) => one.name === meter)).map(([meter, by]) => {
      const kind = /** @type {'share'} */ ('share');
      return el('div', { class: 'form-effect' }, el('label', { for: `${id}-${meter}`, text: humanize(meter) }),
        this.slider(spec, { ...field, kind, min: Math.min(field.min ?? -0.5, by) }, by, [...path, meter], `${id}-${meter}`), this.dropEffect([...path, meter], meter));
    });
    const others = spec.meters.filter((meter) => !value[meter.name]);
    const add = el('select', { id: `${id}-add`, 'aria-label': `${field.label}: add a meter` }, el('option', { value: '', text: 'add a meter …' }),
      ...others.map((meter) => el('option', { value: meter.name, text: humanize(meter.name) })));
    add.addEventListener('change', () => { if (add.value) this.setValue([...path, add.value], 0.1); });
    return el('div', { class: 'form-effects' }, ...rows, others.length ? add : '');
  }

  /** @param {string[]} path @param {string} meter */
  dropEffect(path, meter) {
    const button = el('button', { type: 'button', class: 'icon-button', 'aria-label': `Remove the effect on ${humanize(meter)}`, text: '×' });
    button.addEventListener('click', () => this.setValue(path, 0));
    return button;
  }
}
