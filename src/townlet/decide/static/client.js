// JavaScript client for games in a browser or in Node: reconnects automatically and resends unanswered messages.
//
//   import { Client } from "./client.js";
//   const client = new Client("ws://127.0.0.1:8780/ws", { token });
//   const decision = await client.request({ type: "observation_data", … });
//   await client.request({ type: "spawn_result", decisionId: decision.decisionId, success: true });
//
// Resending is safe: the same observation gets the same answer, and a report counts once. Answers arrive in the
// order of the messages.

const FIRST_DELAY = 50; // milliseconds between attempts to connect
const MAX_DELAY = 5000;
const MAX_UNANSWERED = 32; // messages
const TRY_AGAIN_LATER = 1013; // close code: too many games
const MAX_WAITING = 1000; // messages in the queue; further ones are rejected

/** 96 random bits. */
function randomId() {
  return Array.from(globalThis.crypto.getRandomValues(new Uint8Array(12)), (byte) =>
    byte.toString(16).padStart(2, '0')
  ).join('');
}

export class Client {
  /**
   * @param {string} url  WebSocket address of the service
   * @param {{token?: string, client?: string, timeout?: number, socket?: typeof WebSocket}} [options]
   *   token: access token of a game; client: key of the owner of territories: a game that restarts with the same key
   *   keeps them; timeout: milliseconds to wait for an answer
   */
  constructor(url, { token, client, timeout = 60000, socket = globalThis.WebSocket } = {}) {
    const query = new URLSearchParams({ ...(token && { token }), client: client || randomId() });
    this.url = `${url}${url.includes('?') ? '&' : '?'}${query}`;
    this.address = url.split('?')[0]; // for messages: the query may contain a token
    this.timeout = timeout;
    this.connections = 0;
    this.Socket = socket;
    this.waiting = []; // not sent yet, oldest first
    this.sent = []; // sent and not answered
    this.delay = FIRST_DELAY;
    this.closed = false;
    this.reconnecting = false;
    this.full = false; // the service had too many games
    this.connect();
  }

  /** Send a message and resolve with its answer, across reconnects; rejects after the timeout. */
  request(message) {
    return new Promise((resolve, reject) => {
      const request = { text: JSON.stringify(message), done: false, resolve: null, reject: null, timer: 0, socket: null };
      const settleOnce = (settle) => (value) => {
        if (request.done) return;
        request.done = true;
        clearTimeout(request.timer);
        settle(value);
      };
      request.resolve = settleOnce(resolve);
      request.reject = settleOnce(reject);
      if (this.closed) return request.reject(new Error('the client is closed'));
      this.waiting = this.waiting.filter((other) => !other.done); // drop those that timed out
      if (this.waiting.length >= MAX_WAITING) return request.reject(new Error(`${MAX_WAITING} messages are waiting; send fewer`));
      request.timer = setTimeout(() => this.expire(request), this.timeout);
      this.waiting.push(request);
      this.flush();
    });
  }

  /** Disconnect; unanswered requests are rejected. */
  close() {
    this.closed = true;
    this.socket?.close();
    for (const request of [...this.sent, ...this.waiting]) request.reject(new Error('the client is closed'));
    this.sent = this.waiting = [];
  }

  /** Reject a request that timed out. The connection it was sent on is probably dead, so reconnect. */
  expire(request) {
    request.reject(new Error(`${this.address} has not answered for ${this.timeout / 1000} s`));
    if (request.socket) this.reconnect(request.socket);
  }

  /** Abandon a connection and connect again after a delay. */
  reconnect(socket) {
    if (this.closed || socket !== this.socket || this.reconnecting) return;
    this.reconnecting = true;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    // Random, so that clients that were disconnected together do not all reconnect at once.
    setTimeout(() => this.closed || this.connect(), this.delay * (0.5 + Math.random() / 2));
    this.delay = Math.min(2 * this.delay, MAX_DELAY);
  }

  connect() {
    const socket = new this.Socket(this.url);
    this.socket = socket;
    this.reconnecting = false;
    socket.onopen = () => {
      this.connections += 1;
      if (!this.full) this.delay = FIRST_DELAY; // otherwise delays continue to grow
      // Unanswered messages are resent first, in order.
      this.waiting = [...this.sent.filter((request) => !request.done), ...this.waiting];
      this.sent = [];
      this.flush();
    };
    socket.onmessage = (event) => {
      this.sent.shift()?.resolve(JSON.parse(event.data));
      this.flush();
    };
    socket.onclose = (event) => {
      this.full = event.code === TRY_AGAIN_LATER;
      this.reconnect(socket);
    };
    socket.onerror = () => {}; // onclose follows
  }

  flush() {
    while (!this.reconnecting && this.socket.readyState === 1 && this.waiting.length && this.sent.length < MAX_UNANSWERED) {
      const request = this.waiting.shift();
      if (request.done) continue;
      request.socket = this.socket;
      this.sent.push(request);
      this.socket.send(request.text);
    }
  }
}
