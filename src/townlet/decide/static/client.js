// A client for games in a browser or in Node: it reconnects by itself, and what was not answered is said again.
//
//   import { Client } from "./client.js";
//   const service = new Client("ws://127.0.0.1:8780/ws");
//   const decision = await service.say({ type: "observation_data", … });
//   await service.say({ type: "spawn_result", decisionId: decision.decisionId, success: true });
//
// Saying something twice does no harm: the service gives the same answer to the same observation, and counts a report
// once. Answers come in the order of messages.

const FIRST_WAIT = 50; // milliseconds between attempts to connect
const LONGEST_WAIT = 5000;
const IN_FLIGHT = 32; // messages on their way

export class Client {
  /**
   * @param {string} url  where the service listens
   * @param {{token?: string, patience?: number, socket?: typeof WebSocket}} [options]
   *   patience: milliseconds that an answer may take
   */
  constructor(url, { token, patience = 60000, socket = globalThis.WebSocket } = {}) {
    this.url = token ? `${url}?token=${encodeURIComponent(token)}` : url;
    this.patience = patience;
    this.connections = 0;
    this.Socket = socket;
    this.waiting = []; // not sent yet, oldest first
    this.sent = []; // sent and not answered
    this.wait = FIRST_WAIT;
    this.closed = false;
    this.connect();
  }

  /** The answer to a message, however often the connection breaks; rejects when it takes too long. */
  say(message) {
    return new Promise((resolve, reject) => {
      const said = { text: JSON.stringify(message), done: false, answer: null, fail: null, timer: 0 };
      const over = (settle) => (value) => {
        if (said.done) return;
        said.done = true;
        clearTimeout(said.timer);
        settle(value);
      };
      said.answer = over(resolve);
      said.fail = over(reject);
      said.timer = setTimeout(() => said.fail(new Error(`${this.url} has not answered in time`)), this.patience);
      if (this.closed) return said.fail(new Error('the conversation was ended'));
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

  connect() {
    const link = new this.Socket(this.url);
    this.link = link;
    link.onopen = () => {
      this.connections += 1;
      this.wait = FIRST_WAIT;
      // What was sent and not answered goes first, in its order.
      this.waiting = [...this.sent.filter((said) => !said.done), ...this.waiting];
      this.sent = [];
      this.speak();
    };
    link.onmessage = (event) => {
      this.sent.shift()?.answer(JSON.parse(event.data));
      this.speak();
    };
    link.onclose = () => {
      if (this.closed) return;
      // Those who were thrown out together should not all come back at the same moment.
      setTimeout(() => this.closed || this.connect(), this.wait * (0.5 + Math.random() / 2));
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
    };
    link.onerror = () => {}; // onclose follows
  }

  speak() {
    while (this.link.readyState === 1 && this.waiting.length && this.sent.length < IN_FLIGHT) {
      const said = this.waiting.shift();
      if (said.done) continue;
      this.sent.push(said);
      this.link.send(said.text);
    }
  }
}
