/** The conversation with the server: comes back by itself, and waits longer each time. */

import { toast } from './notices.js';

/** @typedef {import('./types.js').FromServer} FromServer */

const FIRST = 400; // milliseconds before the first new attempt
const LONGEST = 8000;
const FULL = 1013; // close code: the server has as many connections as it takes

/** A browser hides why a WebSocket was refused; a request shows it: the token may be stale. @param {string} me */
async function explain(me) {
  const answer = await fetch(me).catch(() => null);
  if (answer?.status === 401) toast('The server does not know the token of this page', 'Open the link that it printed at its start.');
}

/** @template [Message=FromServer] */
export class Connection {
  /**
   * @param {(message: Message) => void} heard
   * @param {(link: 'open' | 'away', attempt: number) => void} changed
   * @param {string} [path] of the server's side, beside the page
   * @param {string} [me] path that returns the role of this page
   */
  constructor(heard, changed, path = 'ws', me = 'api/me') {
    this.heard = heard;
    this.changed = changed;
    this.path = path;
    this.me = me;
    this.attempt = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    // A laptop that wakes up or a tab that is looked at again should not wait for the timer.
    addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.hurry(); });
  }

  open() {
    clearTimeout(this.timer);
    const address = new URL(this.path, location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    address.hash = address.search = '';
    const socket = new WebSocket(address);
    this.socket = socket;
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.changed('open', 0);
    };
    socket.onmessage = (event) => {
      this.attempt = 0; // not in onopen: a full server opens the connection only to refuse it, and retries must back off
      this.heard(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code === FULL) toast(event.reason || 'the server is full');
      this.attempt += 1;
      this.changed('away', this.attempt);
      if (!opened) explain(this.me);
      const wait = Math.min(LONGEST, FIRST * 2 ** (this.attempt - 1));
      this.timer = setTimeout(() => this.open(), wait * (0.75 + Math.random() / 2));
    };
  }

  hurry() {
    if (!this.socket && this.attempt) this.open();
  }

  /** Say something; while nobody listens it is dropped, since all is asked for anew on return. @param {object} message */
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
