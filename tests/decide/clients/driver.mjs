// Driver of the JavaScript client. test_vectors.py describes input and output.
import { readFileSync } from 'node:fs';
import { Client } from './client.mjs';

const [url, token, timeout, ...lines] = readFileSync(0, 'utf8').split('\n');
const client = new Client(url, { token, timeout: Number(timeout) });
const send = (line) => client.request(JSON.parse(line)).then(JSON.stringify, (error) => `! ${error.message}`);
let step = [];
for (const line of lines) {
  if (line) {
    step.push(line);
  } else {
    for (const answer of await Promise.all(step.map(send))) console.log(answer);
    step = [];
  }
}
client.close();
console.log(await send('{"type": "ping"}'));
console.log(`connections ${client.connections}`);
