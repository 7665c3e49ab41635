// JavaScript client for games in a browser or in Node 20 and later: reconnects automatically and resends unanswered
// messages. For Node, save it as client.mjs; it needs no package.
//
//   import { Client } from "./client.js";
//   const client = new Client("ws://127.0.0.1:8780/ws", { token });
//   const decision = await client.request({ type: "observation_data", … });
//   await client.request({ type: "spawn_result", decisionId: decision.decisionId, success: true });
//
// Resending is safe: the same observation gets the same answer, and a report counts once. Answers arrive in the
// order of the messages. Types for TypeScript are in client.d.ts.

const FIRST_DELAY = 50; // milliseconds between attempts to connect
const MAX_DELAY = 5000;
const MAX_UNANSWERED = 32; // messages
const TRY_AGAIN_LATER = 1013; // close code: too many games
const MAX_WAITING = 1000; // messages in the queue; further ones are rejected
const MAX_MESSAGE = 1 << 17; // bytes; the service closes the connection of a longer one
const MAX_ANSWER = 1 << 20; // bytes
const [CONNECTING, OPEN, CLOSED] = [0, 1, 3]; // values of readyState
const [TEXT, CLOSE, PING, PONG] = [1, 8, 9, 10]; // opcodes of frames
const [NO_STATUS, ABNORMAL] = [1005, 1006]; // close codes of a connection that ended without one
const ACCEPT_SUFFIX = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'; // from RFC 6455

/** 96 random bits. */
function randomId() {
  return Array.from(globalThis.crypto.getRandomValues(new Uint8Array(12)), (byte) =>
    byte.toString(16).padStart(2, '0')
  ).join('');
}

/** The JSON object in a text; undefined if there is none. */
function parseAnswer(text) {
  try {
    const answer = JSON.parse(text);
    return answer && typeof answer === 'object' && !Array.isArray(answer) ? answer : undefined;
  } catch {
    return undefined;
  }
}

/** Minimal WebSocket client (RFC 6455) for Node 20, which has no built-in WebSocket. */
class NodeWebSocket {
  constructor(url) {
    this.readyState = CONNECTING;
    this.onopen = this.onmessage = this.onclose = null;
    this.received = Buffer.alloc(0); // bytes that are not a complete frame yet
    this.fragments = []; // of a message that is not complete yet
    this.open(url.replace(/^ws/, 'http')).catch(() => this.end(ABNORMAL));
  }

  async open(url) {
    const { request } = await import(url.startsWith('https:') ? 'node:https' : 'node:http');
    const { createHash, randomBytes } = await import('node:crypto');
    if (this.readyState === CLOSED) return;
    const key = randomBytes(16).toString('base64');
    const accept = createHash('sha1').update(key + ACCEPT_SUFFIX).digest('base64');
    const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': key, 'Sec-WebSocket-Version': 13 };
    this.handshake = request(url, { headers });
    this.handshake.on('error', () => this.end(ABNORMAL));
    this.handshake.on('response', () => this.end(ABNORMAL)); // refused
    this.handshake.on('upgrade', (response, connection, first) => {
      this.connection = connection;
      connection.on('error', () => this.end(ABNORMAL));
      connection.on('close', () => this.end(ABNORMAL));
      if (this.readyState === CLOSED || response.headers['sec-websocket-accept'] !== accept) return connection.destroy();
      connection.setNoDelay(true);
      connection.on('data', (data) => this.receive(data));
      this.readyState = OPEN;
      this.onopen?.();
      this.receive(first);
    });
    this.handshake.end();
  }

  /** Decode the frames that are complete; those of a server are not masked. */
  receive(data) {
    this.received = Buffer.concat([this.received, data]);
    while (this.readyState === OPEN && this.received.length >= 2) {
      const short = this.received[1] & 127;
      const start = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (this.received.length < start) return;
      const length = short < 126 ? short : short === 126 ? this.received.readUInt16BE(2) : Number(this.received.readBigUInt64BE(2));
      if (length > MAX_ANSWER || this.received[1] & 128) return this.end(ABNORMAL);
      if (this.received.length < start + length) return;
      const payload = this.received.subarray(start, start + length);
      const [opcode, last] = [this.received[0] & 15, this.received[0] & 128];
      this.received = this.received.subarray(start + length);
      if (opcode === CLOSE) {
        this.write(CLOSE, payload);
        this.end(length < 2 ? NO_STATUS : payload.readUInt16BE(0));
      } else if (opcode === PING) {
        this.write(PONG, payload);
      } else if (opcode < CLOSE) {
        this.fragments.push(payload);
        if (!last) continue;
        const text = Buffer.concat(this.fragments).toString();
        this.fragments = [];
        this.onmessage?.({ data: text });
      }
    }
  }

  send(text) {
    this.write(TEXT, text);
  }

  /** Write one frame, masked as a client has to. */
  write(opcode, content) {
    const payload = Buffer.from(content);
    const short = payload.length < 126 ? payload.length : payload.length < 65536 ? 126 : 127;
    const head = Buffer.alloc(short < 126 ? 2 : short === 126 ? 4 : 10);
    head[0] = 128 | opcode;
    head[1] = 128 | short;
    if (short === 126) head.writeUInt16BE(payload.length, 2);
    if (short === 127) head.writeBigUInt64BE(BigInt(payload.length), 2);
    const mask = globalThis.crypto.getRandomValues(new Uint8Array(4));
    for (let at = 0; at < payload.length; at += 1) payload[at] ^= mask[at & 3];
    this.connection.write(Buffer.concat([head, mask, payload]));
  }

  close() {
    if (this.readyState === OPEN) this.write(CLOSE, []);
    this.end(NO_STATUS);
  }

  end(code) {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    if (this.connection) this.connection.destroySoon(); // after everything is written
    else this.handshake?.destroy();
    this.onclose?.({ code });
  }
}

/** No answer arrived in time. The service may have received the message; it is safe to send it again. */
export class NoAnswer extends Error {
  name = 'NoAnswer';
}

export class Client {
  /**
   * @param {string} url  WebSocket address of the service
   * @param {{token?: string, client?: string, timeout?: number, socket?: typeof WebSocket}} [options]
   *   token: access token of a game; client: key of the owner of territories: a game that restarts with the same key
   *   keeps them; timeout: milliseconds to wait for an answer; socket: another implementation of WebSocket
   */
  constructor(url, { token, client, timeout = 60000, socket = globalThis.WebSocket ?? NodeWebSocket } = {}) {
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
      const size = new TextEncoder().encode(request.text).length;
      if (size > MAX_MESSAGE) return request.reject(new RangeError(`the message has ${size} bytes; the service accepts ${MAX_MESSAGE}`));
      if (this.closed) return request.reject(new NoAnswer('the client is closed'));
      if (this.waiting.length >= MAX_WAITING) this.waiting = this.waiting.filter((other) => !other.done); // drop those that timed out
      if (this.waiting.length >= MAX_WAITING) return request.reject(new NoAnswer(`${MAX_WAITING} messages are waiting; send fewer`));
      request.timer = setTimeout(() => this.expire(request), this.timeout);
      this.waiting.push(request);
      this.flush();
    });
  }

  /** Disconnect; unanswered requests are rejected. */
  close() {
    this.closed = true;
    this.socket?.close();
    for (const request of [...this.sent, ...this.waiting]) request.reject(new NoAnswer('the client is closed'));
    this.sent = this.waiting = [];
  }

  /** Reject a request that timed out. The connection it was sent on is probably dead, so reconnect. */
  expire(request) {
    request.reject(new NoAnswer(`no answer from ${this.address} for ${this.timeout / 1000} s`));
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
      const answer = parseAnswer(event.data);
      if (!answer || !this.sent.length) return this.reconnect(socket); // not a decision service
      this.sent.shift().resolve(answer);
      this.flush();
    };
    socket.onclose = (event) => {
      this.full = event.code === TRY_AGAIN_LATER;
      this.reconnect(socket);
    };
    socket.onerror = () => {}; // onclose follows
  }

  flush() {
    while (!this.reconnecting && this.socket.readyState === OPEN && this.waiting.length && this.sent.length < MAX_UNANSWERED) {
      const request = this.waiting.shift();
      if (request.done) continue;
      request.socket = this.socket;
      this.sent.push(request);
      this.socket.send(request.text);
    }
  }
}
