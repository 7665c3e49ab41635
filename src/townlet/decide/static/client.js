// A client for games in a browser or in Node: it reconnects by itself, and what was not answered is said again.
//
//   import { Client } from "./client.js";
//   const service = new Client("ws://127.0.0.1:8780/ws", { token });
//   const decision = await service.say({ type: "observation_data", … });
//   await service.say({ type: "spawn_result", decisionId: decision.decisionId, success: true });
//
// Saying something twice does no harm: the service gives the same answer to the same observation, and counts a report
// once. Answers come in the order of messages.

const FIRST_WAIT = 50; // milliseconds between attempts to connect
const LONGEST_WAIT = 5000;
const IN_FLIGHT = 32; // messages on their way
const FULL = 1013; // of a link that is closed: too many games, try again later
const WAITING = 1000; // messages that may wait for their turn; more are turned away at once

/** 96 random bits. */
function randomId() {
  return Array.from(globalThis.crypto.getRandomValues(new Uint8Array(12)), (byte) =>
    byte.toString(16).padStart(2, '0')
  ).join('');
}

export class Client {
  /**
   * @param {string} url  where the service listens
   * @param {{token?: string, client?: string, patience?: number, socket?: typeof WebSocket}} [options]
   *   token: the access token of a game; client: key of the owner of territories: a game that restarts with the same key
   *   keeps them; patience: milliseconds to wait for an answer
   */
  constructor(url, { token, client, patience = 60000, socket = globalThis.WebSocket } = {}) {
    const query = new URLSearchParams({ ...(token && { token }), client: client || randomId() });
    this.url = `${url}${url.includes('?') ? '&' : '?'}${query}`;
    this.address = url.split('?')[0]; // to be told: what follows may be a token
    this.patience = patience;
    this.connections = 0;
    this.Socket = socket;
    this.waiting = []; // not sent yet, oldest first
    this.sent = []; // sent and not answered
    this.wait = FIRST_WAIT;
    this.closed = false;
    this.away = false; // between two links
    this.full = false; // too many games were there before us
    this.connect();
  }

  /** The answer to a message, however often the connection breaks; rejects when it takes too long. */
  say(message) {
    return new Promise((resolve, reject) => {
      const said = { text: JSON.stringify(message), done: false, answer: null, fail: null, timer: 0, link: null };
      const over = (settle) => (value) => {
        if (said.done) return;
        said.done = true;
        clearTimeout(said.timer);
        settle(value);
      };
      said.answer = over(resolve);
      said.fail = over(reject);
      if (this.closed) return said.fail(new Error('the conversation was ended'));
      this.waiting = this.waiting.filter((one) => !one.done); // nobody waits for these any more
      if (this.waiting.length >= WAITING) return said.fail(new Error(`${WAITING} messages wait already; say less, or later`));
      said.timer = setTimeout(() => this.giveUp(said), this.patience);
      this.waiting.push(said);
      this.speak();
    });
  }

  /** Leave; whoever still waits for an answer is told. */
  close() {
    this.closed = true;
    this.link?.close();
    for (const said of [...this.sent, ...this.waiting]) said.fail(new Error('the conversation was ended'));
    this.sent = this.waiting = [];
  }

  /** Nobody waits for this any more. A link on which it was sent has died without a word, so another is made. */
  giveUp(said) {
    said.fail(new Error(`${this.address} has not answered for ${this.patience / 1000} s`));
    if (said.link) this.leave(said.link);
  }

  /** Let go of a link, whether it notices or not, and come back. */
  leave(link) {
    if (this.closed || link !== this.link || this.away) return;
    this.away = true;
    link.onopen = link.onmessage = link.onclose = null;
    link.close();
    // Those who were thrown out together should not all come back at the same moment.
    setTimeout(() => this.closed || this.connect(), this.wait * (0.5 + Math.random() / 2));
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  connect() {
    const link = new this.Socket(this.url);
    this.link = link;
    this.away = false;
    link.onopen = () => {
      this.connections += 1;
      if (!this.full) this.wait = FIRST_WAIT; // else waits go on growing
      // What was sent and not answered goes first, in its order.
      this.waiting = [...this.sent.filter((said) => !said.done), ...this.waiting];
      this.sent = [];
      this.speak();
    };
    link.onmessage = (event) => {
      this.sent.shift()?.answer(JSON.parse(event.data));
      this.speak();
    };
    link.onclose = (event) => {
      this.full = event.code === FULL;
      this.leave(link);
    };
    link.onerror = () => {}; // onclose follows
  }

  speak() {
    while (!this.away && this.link.readyState === 1 && this.waiting.length && this.sent.length < IN_FLIGHT) {
      const said = this.waiting.shift();
      if (said.done) continue;
      said.link = this.link;
      this.sent.push(said);
      this.link.send(said.text);
    }
  }
}
