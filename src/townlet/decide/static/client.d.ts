/** A message of a game. `/api/decide/schema` describes the messages of a domain. */
export interface Message {
  readonly type: string;
}

/** An answer of the service: its `type` and the fields of that type. */
export interface Answer {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A refused message; the connection remains usable. */
export interface ErrorAnswer {
  readonly type: 'error';
  /** such as `STALE_OBSERVATION` */
  readonly code: string;
  readonly message: string;
}

/** The parts of WebSocket that the client uses. */
export interface ClientSocket {
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror?: ((event: any) => void) | null;
  send(text: string): void;
  close(): void;
}

export interface ClientOptions {
  /** Access token of the role `game`. */
  token?: string;
  /** Key that owns territories: a game that restarts with the same key keeps them. Random by default. */
  client?: string;
  /** Milliseconds to wait for an answer; 60,000 by default. */
  timeout?: number;
  /** Another implementation of WebSocket. */
  socket?: new (url: string) => ClientSocket;
}

/** No answer arrived in time. The service may have received the message; it is safe to send it again. */
export class NoAnswer extends Error {
  name: string;
}

/** A session with a service, over as many connections as needed. Answers arrive in the order of the messages. */
export class Client {
  /** @param url WebSocket address of the service, such as `ws://127.0.0.1:8780/ws` */
  constructor(url: string, options?: ClientOptions);

  /** Number of connections so far. */
  connections: number;

  /** Milliseconds to wait for an answer. */
  timeout: number;

  /** Send a message and resolve with its answer, across reconnects; rejects with NoAnswer after the timeout. */
  request<Reply extends { readonly type: string } = Answer>(message: Message): Promise<Reply>;

  /** Disconnect; unanswered requests are rejected. */
  close(): void;
}
