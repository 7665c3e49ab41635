/**
 * Connects the example with the service that serves this page.
 *
 * The token of the role `game` comes from the fragment of the link, which browsers do not send to servers, or from the
 * form. It is kept for this tab only. The operator's cookie is not used: it may do more than a game needs.
 */

import { Client } from '../client.js';

const KEY = 'townlet-game-token';
const COMMAND = 'townlet decide serve rank --folder penalties learning.interval=0.2 learning.samples_per_insert=64';
const byId = (id) => document.getElementById(id);

/** A client, once there is a token for a service that ranks. */
export async function connect() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) history.replaceState(null, '', location.pathname); // out of the address bar
  addEventListener('hashchange', () => location.reload()); // the link was opened once more
  for (let token = given ?? savedToken(); ; token = await enteredToken()) {
    const answer = await schema(token);
    if (answer?.status === 401 || answer?.status === 403) {
      explain(token ? 'This token is not valid' : 'A token is needed', 'Open the link of the example that this command prints, or enter the token that it stored in tokens.json:', COMMAND, true);
    } else if (!answer?.ok) {
      explain('The service does not answer', 'Check that it runs, then reload this page.', COMMAND);
    } else if (!('rank_request' in await answer.json())) {
      explain('This service does not rank', 'The example needs a service with the domain “rank”. Start one, and open the link of the example that it prints:', COMMAND);
    } else {
      try { sessionStorage.setItem(KEY, token); } catch { /* storage disabled */ }
      explain('');
      const path = new URL('../ws', location.href).href.replace(/^http/, 'ws');
      return new Client(path, { token, timeout: 5000 });
    }
  }
}

/** Show why the game cannot be played; an empty title hides it. */
export function explain(title, text = '', command = '', form = false) {
  byId('connect').hidden = !title;
  byId('connect-title').textContent = title;
  byId('connect-text').textContent = text;
  byId('connect-command').replaceChildren(...command.split(' ').flatMap((word) => [unbroken(word), ' ']));
  byId('connect-command').hidden = !command;
  byId('connect-form').hidden = !form;
}

/** A word that is not broken at its hyphens. */
function unbroken(word) {
  const span = document.createElement('span');
  span.textContent = word;
  return span;
}

function savedToken() {
  try {
    return sessionStorage.getItem(KEY) ?? '';
  } catch {
    return ''; // storage disabled
  }
}

/** The messages of the service: readable for games, so it shows whether the token is valid. */
function schema(token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch('../api/decide/schema', { headers, credentials: 'omit' }).catch(() => null);
}

function enteredToken() {
  return new Promise((resolve) => {
    byId('connect-form').addEventListener('submit', (event) => {
      event.preventDefault();
      resolve(byId('token').value.trim());
    }, { once: true });
  });
}
