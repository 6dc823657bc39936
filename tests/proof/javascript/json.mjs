// JSON whose numbers keep their text, and the canonical forms of proof.v1 and proof.v2.

export class Numeral {
  constructor(text) {
    this.text = text;
  }
  get integer() {
    return /^-?[0-9]+$/.test(this.text);
  }
  valueOf() {
    return Number(this.text);
  }
}

const NUMBER = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y;
const DEEPEST = 64;

export function parse(text) {
  let at = 0;
  const fail = () => {
    throw new Error(`not JSON at ${at}`);
  };
  const space = () => {
    while (' \t\n\r'.includes(text[at] ?? '-')) at++;
  };
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text) ?? fail();
    at += found[0].length;
    return found[0];
  };
  const expect = (character) => (text[at] === character ? at++ : fail());
  const members = (close, one) => {
    at++;
    space();
    if (text[at] === close) return void at++;
    for (;;) {
      one();
      space();
      if (text[at] === close) return void at++;
      expect(',');
      space();
    }
  };
  const value = (depth) => {
    if (depth > DEEPEST) fail();
    space();
    if (text[at] === '{') {
      const found = new Map();
      members('}', () => {
        const key = JSON.parse(take(TEXT));
        space();
        expect(':');
        if (found.has(key)) fail();
        found.set(key, value(depth + 1));
      });
      return found;
    }
    if (text[at] === '[') {
      const found = [];
      members(']', () => found.push(value(depth + 1)));
      return found;
    }
    if (text[at] === '"') return JSON.parse(take(TEXT));
    for (const [word, meaning] of [['true', true], ['false', false], ['null', null]]) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    return new Numeral(take(NUMBER));
  };
  const found = value(0);
  space();
  if (at < text.length) fail();
  return found;
}

const points = (a, b) => {
  const [x, y] = [[...a], [...b]];
  for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i].codePointAt(0) - y[i].codePointAt(0);
  return x.length - y.length;
};
const units = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function quoted(text) {
  if (/\p{Surrogate}/u.test(text)) throw new Error('half of a surrogate pair');
  return JSON.stringify(text);
}

// Plain objects and Maps are both objects; numbers of the program itself are integers.
function written(value, order, number, break_ = null, depth = 1) {
  const rows = (open, close, items) => {
    if (break_ === null || !items.length) return open + items.join(',') + close;
    return `${open}\n${' '.repeat(depth)}${items.join(`,\n${' '.repeat(depth)}`)}\n${' '.repeat(depth - 1)}${close}`;
  };
  const inner = (one) => written(one, order, number, break_, depth + 1);
  if (value instanceof Numeral) return number(value);
  if (Array.isArray(value)) return rows('[', ']', value.map(inner));
  if (value !== null && typeof value === 'object') {
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    entries.sort((a, b) => order(a[0], b[0]));
    return rows('{', '}', entries.map(([key, one]) => `${quoted(key)}:${break_ === null ? '' : ' '}${inner(one)}`));
  }
  return typeof value === 'string' ? quoted(value) : String(value);
}

export const canonical = {
  'proof.v1': (value) => written(value, points, (one) => one.text),
  'proof.v2': (value) => written(value, units, (one) => String(Number(one.text))),
};
export const manifestText = (value) => `${written(value, points, (one) => one.text, '\n')}\n`;
