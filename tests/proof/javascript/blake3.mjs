// BLAKE3 with 32 bytes of output, after the paper of its authors (section 2); no keys, no contexts.

const IV = new Uint32Array([0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19]);
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const [CHUNK_START, CHUNK_END, PARENT, ROOT] = [1, 2, 4, 8];
const CHUNK = 1024, BLOCK = 64;

// The words of the message in each of the seven rounds.
const SCHEDULE = [[...Array(16).keys()]];
for (let round = 1; round < 7; round++) SCHEDULE.push(PERMUTATION.map((from) => SCHEDULE[round - 1][from]));

const state = new Uint32Array(16);

function mix(a, b, c, d, x, y) {
  state[a] = state[a] + state[b] + x;
  let t = state[d] ^ state[a];
  state[d] = (t >>> 16) | (t << 16);
  state[c] = state[c] + state[d];
  t = state[b] ^ state[c];
  state[b] = (t >>> 12) | (t << 20);
  state[a] = state[a] + state[b] + y;
  t = state[d] ^ state[a];
  state[d] = (t >>> 8) | (t << 24);
  state[c] = state[c] + state[d];
  t = state[b] ^ state[c];
  state[b] = (t >>> 7) | (t << 25);
}

// The chaining value of one block: `words` are 16 words of the message.
function compress(chaining, words, counter, length, flags) {
  state.set(chaining, 0);
  state.set(IV.subarray(0, 4), 8);
  state[12] = counter >>> 0;
  state[13] = Math.floor(counter / 0x100000000);
  state[14] = length;
  state[15] = flags;
  for (const at of SCHEDULE) {
    mix(0, 4, 8, 12, words[at[0]], words[at[1]]);
    mix(1, 5, 9, 13, words[at[2]], words[at[3]]);
    mix(2, 6, 10, 14, words[at[4]], words[at[5]]);
    mix(3, 7, 11, 15, words[at[6]], words[at[7]]);
    mix(0, 5, 10, 15, words[at[8]], words[at[9]]);
    mix(1, 6, 11, 12, words[at[10]], words[at[11]]);
    mix(2, 7, 8, 13, words[at[12]], words[at[13]]);
    mix(3, 4, 9, 14, words[at[14]], words[at[15]]);
  }
  const out = new Uint32Array(8);
  for (let i = 0; i < 8; i++) out[i] = state[i] ^ state[i + 8];
  return out;
}

const words = new Uint32Array(16);

function block(data, at, end) {
  const bytes = new Uint8Array(words.buffer);
  bytes.fill(0);
  bytes.set(data.subarray(at, end));
  return words;
}

function chunk(data, at, end, counter, root) {
  let chaining = IV;
  let flags = CHUNK_START;
  do {
    const stop = Math.min(at + BLOCK, end);
    if (stop === end) flags |= CHUNK_END | (root ? ROOT : 0);
    chaining = compress(chaining, block(data, at, stop), counter, stop - at, flags);
    flags = 0;
    at = stop;
  } while (at < end);
  return chaining;
}

function tree(data, at, end, counter, root) {
  if (end - at <= CHUNK) return chunk(data, at, end, counter, root);
  let left = CHUNK;
  while (left * 2 < end - at) left *= 2;
  const message = new Uint32Array(16);
  message.set(tree(data, at, at + left, counter, false), 0);
  message.set(tree(data, at + left, end, counter + left / CHUNK, false), 8);
  return compress(IV, message, 0, BLOCK, PARENT | (root ? ROOT : 0));
}

export function blake3(data) {
  const out = tree(data, 0, data.length, 0, true);
  return Buffer.from(out.buffer, out.byteOffset, 32);
}

export const hex = (data) => blake3(typeof data === 'string' ? Buffer.from(data) : data).toString('hex');
