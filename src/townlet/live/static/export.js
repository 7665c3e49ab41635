/** Exports of the watched episode: CSV and video. */

/** Save a file. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * Download all received timesteps as CSV.
 * @param {import('./types.js').World} world
 * @param {import('./playback.js').Playback} playback
 * @param {string} run
 */
export function downloadCsv(world, playback, run) {
  const kind = playback.start?.output_kind === 'probabilities' ? 'probability' : 'value';
  const head = ['age', 'cell', 'hour', 'using', 'progress', ...world.meters.map((m) => m.name), 'action', 'reward',
    ...world.rewards.map((name) => `reward ${name}`), ...world.actions.map((name) => `${kind} ${name}`), 'why'];
  const lines = playback.all().map((m) => [
    m.age, m.cell, m.hour, world.affordances[m.using]?.name ?? '', m.progress, ...m.meters,
    m.action === null ? '' : world.actions[m.action], m.reward ?? '',
    ...world.rewards.map((_, k) => m.components?.[k] ?? ''), ...world.actions.map((_, k) => m.outputs?.[k] ?? ''), m.why ?? '',
  ]);
  const text = [head, ...lines].map((line) => line.map(csvField).join(',')).join('\r\n');
  download(new Blob([text, '\r\n'], { type: 'text/csv' }), `${run}-episode-${playback.start?.episode ?? 0}.csv`);
}

/** @param {string | number} value */
function csvField(value) {
  const text = String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export class VideoRecorder {
  /** @param {() => HTMLCanvasElement} canvas @param {() => void} changed */
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    /** @type {MediaRecorder | null} */
    this.recorder = null;
  }

  get running() {
    return this.recorder !== null;
  }

  /** Start recording, or stop and download. @param {string} run */
  toggle(run) {
    if (this.recorder) {
      this.recorder.stop();
      return;
    }
    const stream = this.canvas().captureStream(30);
    const type = ['video/webm;codecs=vp9', 'video/webm;codecs=vp8', 'video/webm', 'video/mp4'].find((one) => MediaRecorder.isTypeSupported(one));
    /** @type {Blob[]} */
    const parts = [];
    const recorder = new MediaRecorder(stream, { mimeType: type, videoBitsPerSecond: 4_000_000 });
    recorder.ondataavailable = (event) => { if (event.data.size) parts.push(event.data); };
    recorder.onstop = () => {
      for (const track of stream.getTracks()) track.stop();
      this.recorder = null;
      this.changed();
      if (parts.length) download(new Blob(parts, { type }), `${run}.${type?.includes('mp4') ? 'mp4' : 'webm'}`);
    };
    recorder.start(500);
    this.recorder = recorder;
    this.changed();
  }
}
