/** Short tones for the events of the story; off until a person turns them on. */

import { eventKind } from './story-panel.js';

/** Frequencies in Hz of the tones of an event, one after another. */
const TONES = { end: [220, 165], danger: [330, 330], good: [523, 659, 784], first: [440, 554] };
const TONE_SECONDS = 0.12;
const VOLUME = 0.08;

/** @type {AudioContext | null} */
let audio = null;

/** Play the tones of an event. @param {string} text */
export function playEvent(text) {
  audio ??= new AudioContext();
  const begin = audio.currentTime + 0.01;
  TONES[eventKind(text)].forEach((frequency, k) => {
    const context = /** @type {AudioContext} */ (audio);
    const tone = context.createOscillator(), gain = context.createGain();
    const from = begin + k * TONE_SECONDS;
    tone.frequency.value = frequency;
    gain.gain.setValueAtTime(VOLUME, from);
    gain.gain.exponentialRampToValueAtTime(0.001, from + TONE_SECONDS * 1.6);
    tone.connect(gain).connect(context.destination);
    tone.start(from);
    tone.stop(from + TONE_SECONDS * 1.7);
  });
}
