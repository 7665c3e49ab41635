/** HTTP requests and the WebSocket connection. */

import { toast } from './notifications.js';

export class ApiError extends Error {
  /** @param {string} what @param {string} fix */
  constructor(what, fix) {
    super(what);
    this.fix = fix;
  }
}

/** @param {string} text @returns {any} */
function parseJson(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/**
 * GET a JSON document, or POST `body` and return the JSON answer.
 * @param {string} path @param {object} [body]
 * @returns {Promise<any>}
 */
export async function request(path, body) {
  const options = body && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(path, options || undefined);
  const text = await answer.text();
  const data = parseJson(text);
  if (answer.ok) return data;
  // Errors of the server may be plain text; a proxy may answer with an HTML page.
  const plain = answer.headers.get('Content-Type')?.startsWith('text/plain') ? text.trim().slice(0, 200) : '';
  throw new ApiError(data.what ?? (plain || `the server answered with status ${answer.status}`), data.fix ?? '');
}

/** @typedef {import('./types.js').ServerMessage} ServerMessage */

const FIRST_RETRY = 400; // milliseconds until the first attempt to reconnect
const MAX_RETRY = 8000;
const CHECK_INTERVAL = 10_000; // between checks whether the server still answers
const CHECK_TIMEOUT = 8000;
const SILENCE = 20_000; // without a message, after which the server is checked
const TRY_AGAIN_LATER = 1013; // close code: the server has no free connections

/** @template [Message=ServerMessage] */
export class Connection {
  /**
   * @param {(message: Message) => void} onMessage
   * @param {(link: 'open' | 'away', attempt: number) => void} onStateChange
   * @param {string} [path] of the WebSocket, relative to the page
   * @param {string} [identityPath] path that returns the role of this page
   */
  constructor(onMessage, onStateChange, path = 'ws', identityPath = 'api/me') {
    this.onMessage = onMessage;
    this.onStateChange = onStateChange;
    this.path = path;
    this.identityPath = identityPath;
    this.attempt = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    this.lastMessage = 0; // time of the last message
    /** Called if the server answers, but no longer accepts the token of this page. */
    this.onExpired = () => toast('The token of this page is no longer valid', 'Open the link that the server printed when it started.');
    setInterval(() => void this.check(), CHECK_INTERVAL);
    // After waking up or returning to the tab, do not wait for the timer.
    addEventListener('online', () => this.reconnectNow());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.reconnectNow(); });
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
      this.lastMessage = performance.now();
      this.onStateChange('open', 0);
    };
    socket.onmessage = (event) => {
      this.attempt = 0; // not in onopen: a full server accepts a connection only to close it, and retries must back off
      this.lastMessage = performance.now();
      this.onMessage(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      if (event.code === TRY_AGAIN_LATER) toast(event.reason || 'the server has no free connections');
      this.lose();
      if (!opened) void this.checkToken();
    };
  }

  /** The connection is lost: try again after a while. */
  lose() {
    this.socket = null;
    this.attempt += 1;
    this.onStateChange('away', this.attempt);
    const wait = Math.min(MAX_RETRY, FIRST_RETRY * 2 ** (this.attempt - 1));
    this.timer = setTimeout(() => this.open(), wait * (0.75 + Math.random() / 2));
  }

  /** Browsers hide why a WebSocket was refused; an HTTP request reveals a stale token. */
  async checkToken() {
    const answer = await fetch(this.identityPath).catch(() => null);
    if (answer?.status === 401) this.onExpired();
  }

  /** A connection that broke without being closed, as when a laptop slept, stays open for minutes: check a silent one. */
  async check() {
    const { socket } = this;
    if (document.hidden || socket?.readyState !== WebSocket.OPEN || performance.now() - this.lastMessage < SILENCE) return;
    const answers = await fetch(this.identityPath, { signal: AbortSignal.timeout(CHECK_TIMEOUT) }).then(() => true, () => false);
    if (answers || this.socket !== socket) return;
    this.lose();
    socket.close();
  }

  reconnectNow() {
    if (!this.socket && this.attempt) this.open();
  }

  /** Send a message; dropped while disconnected, because everything is requested again on reconnect. @param {object} message */
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
