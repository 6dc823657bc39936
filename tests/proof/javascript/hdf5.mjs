// The part of HDF5 that capture files use, after the file format specification of The HDF Group, version 3: superblock 0, object headers 1,
// symbol tables, contiguous, compact and chunked storage. Anything else is refused.

import { inflateSync } from 'node:zlib';
import { Numeral } from './json.mjs';

const UNDEFINED = 0xffffffffffffffffn;
export const SCALES = new Set(['DIMENSION_LIST', 'REFERENCE_LIST']);

export class Refused extends Error {}

const refuse = (what) => {
  throw new Refused(what);
};

export class File {
  constructor(bytes) {
    this.bytes = bytes;
    if (bytes.subarray(0, 8).toString('latin1') !== '\x89HDF\r\n\x1a\n') refuse('not an HDF5 file');
    if (bytes[8] !== 0 || bytes[13] !== 8 || bytes[14] !== 8) refuse('another superblock');
    if (this.number(40) > bytes.length) refuse('truncated');
    this.root = this.object(this.number(64));
  }

  number(at) {
    const found = this.bytes.readBigUInt64LE(at);
    if (found === UNDEFINED) return -1;
    return found < 1n << 52n ? Number(found) : refuse('a number beyond the file');
  }

  object(address) {
    const messages = [];
    const blocks = [[address + 16, this.bytes.readUInt32LE(address + 8)]];
    if (this.bytes[address] !== 1) refuse('another object header');
    let left = this.bytes.readUInt16LE(address + 2);
    for (const [start, size] of blocks) {
      let at = start;
      while (at + 8 <= start + size && left > 0) {
        const type = this.bytes.readUInt16LE(at), length = this.bytes.readUInt16LE(at + 2);
        if (this.bytes[at + 4] & 2) refuse('a shared message');
        if (type === 0x10) blocks.push([this.number(at + 8), this.number(at + 16)]);
        else messages.push({ type, at: at + 8, length });
        at += 8 + length;
        left--;
      }
    }
    return new Node(this, messages);
  }

  // Names and addresses of the members of a group.
  members(tree, heap) {
    if (this.bytes.toString('latin1', heap, heap + 4) !== 'HEAP') refuse('a group without names');
    const names = this.number(heap + 24);
    const found = new Map();
    const visit = (at, depth) => {
      if (depth > 8 || this.bytes.toString('latin1', at, at + 4) !== 'TREE' || this.bytes[at + 4] !== 0) refuse('a damaged group');
      const level = this.bytes[at + 5], used = this.bytes.readUInt16LE(at + 6);
      for (let i = 0; i < used; i++) {
        const child = this.number(at + 32 + 16 * i);
        if (level > 0) visit(child, depth + 1);
        else this.leaf(child, names, found);
      }
    };
    visit(tree, 0);
    return found;
  }

  leaf(at, names, found) {
    if (this.bytes.toString('latin1', at, at + 4) !== 'SNOD') refuse('a damaged group');
    for (let i = 0; i < this.bytes.readUInt16LE(at + 6); i++) {
      const entry = at + 8 + 40 * i;
      const start = names + this.number(entry);
      const name = this.bytes.toString('utf8', start, this.bytes.indexOf(0, start));
      if (this.bytes.readUInt32LE(entry + 16) === 2 || found.has(name)) refuse(`a soft link or a second "${name}"`);
      found.set(name, this.number(entry + 8));
    }
  }
}

// A data type: text and numbers of a fixed size.
function typeAt(bytes, at) {
  const family = bytes[at] & 15, bits = bytes.readUIntLE(at + 1, 3), size = bytes.readUInt32LE(at + 4);
  if (family === 3) return { kind: 'text', size };
  if (family !== 0 && family !== 1) return { kind: 'other', size };
  if (bits & 1 || ![1, 2, 4, 8].includes(size)) refuse('numbers that are not little-endian');
  if (family === 0) return { kind: bits & 8 ? 'int' : 'uint', size };
  const fields = [...bytes.subarray(at + 12, at + 16), bytes.readUInt32LE(at + 16)];
  return { kind: 'float', size, bfloat16: size === 2 && fields.join() === '7,8,0,7,127' };
}

function spaceAt(bytes, at) {
  const version = bytes[at], rank = bytes[at + 1], start = at + (version === 1 ? 8 : 4);
  if (version === 2 && bytes[at + 3] === 2) refuse('no shape');
  return Array.from({ length: rank }, (_, axis) => Number(bytes.readBigUInt64LE(start + 8 * axis)));
}

const product = (sizes) => sizes.reduce((all, one) => all * one, 1);

function scalar(bytes, at, { kind, size, bfloat16 }) {
  if (kind === 'text') return bytes.toString('utf8', at, at + size).replace(/\0+$/, '');
  if (kind === 'float') {
    if (size < 4 || bfloat16) refuse('an attribute of half precision');
    return new Numeral(pythonFloat(size === 8 ? bytes.readDoubleLE(at) : bytes.readFloatLE(at)));
  }
  const text = kind === 'int' ? bytes.readBigInt64LE : bytes.readBigUInt64LE;
  const small = kind === 'int' ? 'readIntLE' : 'readUIntLE';
  return new Numeral(String(size === 8 ? text.call(bytes, at) : bytes[small](at, size)));
}

// The text of proof.v1: the shortest digits, with a fraction or an exponent of at least two digits.
function pythonFloat(value) {
  if (!Number.isFinite(value)) refuse('a number that is not finite');
  if (Object.is(value, -0)) return '-0.0';
  const [digits, exponent] = value.toExponential().split('e');
  if (Number(exponent) >= -4 && Number(exponent) < 16) {
    const text = Math.abs(value) < 1e-6 || !String(value).includes('e') ? String(value) : value.toFixed(30).replace(/0+$/, '');
    return text.includes('.') ? text : `${text}.0`;
  }
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, '0')}`;
}

class Node {
  constructor(file, messages) {
    this.file = file;
    this.messages = messages;
  }

  one(type) {
    return this.messages.find((message) => message.type === type);
  }

  get isGroup() {
    return this.one(0x11) !== undefined;
  }

  get children() {
    const table = this.one(0x11) ?? refuse('not a group');
    if (this._children) return this._children;
    const found = this.file.members(this.file.number(table.at), this.file.number(table.at + 8));
    this._children = new Map([...found].map(([name, address]) => [name, this.file.object(address)]));
    return this._children;
  }

  child(...path) {
    return path.reduce((node, name) => node.children.get(name) ?? refuse(`there is no "${name}"`), this);
  }

  // Attributes by name; those that dimension scales bring are left out.
  get attributes() {
    const found = new Map();
    const bytes = this.file.bytes;
    for (const { at } of this.messages.filter((message) => message.type === 0xc)) {
      if (bytes[at] !== 1) refuse('another attribute');
      const padded = (size) => (size + 7) & ~7;
      const [name, type, space] = [2, 4, 6].map((offset) => bytes.readUInt16LE(at + offset));
      const start = at + 8 + padded(name);
      const key = bytes.toString('utf8', at + 8, at + 8 + name).replace(/\0+$/, '');
      if (SCALES.has(key)) continue;
      const kind = typeAt(bytes, start), shape = spaceAt(bytes, start + padded(type));
      if (kind.kind === 'other') refuse(`the type of @${key}`);
      const data = start + padded(type) + padded(space);
      const values = Array.from({ length: product(shape) }, (_, i) => scalar(bytes, data + i * kind.size, kind));
      if (found.has(key) || shape.length > 1) refuse(`@${key}`);
      found.set(key, shape.length ? values : values[0]);
    }
    return found;
  }

  get shape() {
    return spaceAt(this.file.bytes, (this.one(1) ?? refuse('not a dataset')).at);
  }

  get type() {
    return typeAt(this.file.bytes, (this.one(3) ?? refuse('not a dataset')).at);
  }

  get size() {
    return product(this.shape) * this.type.size;
  }

  // Where the bytes are, if they are in one piece.
  get extent() {
    const { at } = this.one(8) ?? refuse('not a dataset');
    if (this.file.bytes[at] !== 3) refuse('another layout');
    if (this.file.bytes[at + 1] !== 1) return null;
    const start = this.file.number(at + 2);
    return start < 0 ? null : [start, start + this.size];
  }


  // The content, in C order and without filters.
  get content() {
    const { bytes } = this.file, { at } = this.one(8) ?? refuse('not a dataset');
    if (bytes[at + 1] === 0) return bytes.subarray(at + 4, at + 4 + this.size);
    if (bytes[at + 1] === 2) return this.chunks(at);
    const [start, end] = this.extent ?? [0, 0];
    if (end > bytes.length || end - start < this.size) refuse('a dataset that is not stored');
    return bytes.subarray(start, end);
  }

  get text() {
    return new TextDecoder('utf8', { fatal: true }).decode(this.raw);
  }

  get raw() {
    if (this.type.kind !== 'text' || this.shape.length) refuse('not a text');
    const found = this.content;
    let end = found.length;
    while (end && !found[end - 1]) end--;
    return found.subarray(0, end);
  }

  // All numbers; 64-bit ones as BigInt.
  get numbers() {
    const { kind, size } = this.type, data = Buffer.from(this.content);
    const name = `read${size === 8 ? 'Big' : ''}${kind === 'int' ? 'Int' : 'UInt'}${size * 8}${size > 1 ? 'LE' : ''}`;
    return Array.from({ length: product(this.shape) }, (_, i) => data[name](i * size));
  }

  chunks(at) {
    const { file, shape, type } = this, { bytes } = file, rank = shape.length;
    const chunk = Array.from({ length: rank }, (_, axis) => bytes.readUInt32LE(at + 11 + 4 * axis));
    const out = Buffer.alloc(this.size), filters = this.filters;
    let stored = 0;
    const visit = (node, depth) => {
      if (depth > 8 || bytes.toString('latin1', node, node + 4) !== 'TREE' || bytes[node + 4] !== 1) refuse('damaged chunks');
      const width = 8 + 8 * (rank + 1);
      for (let i = 0; i < bytes.readUInt16LE(node + 6); i++) {
        const key = node + 24 + i * (width + 8), child = file.number(key + width);
        if (bytes[node + 5] > 0) visit(child, depth + 1);
        else {
          const corner = Array.from({ length: rank }, (_, axis) => file.number(key + 8 + 8 * axis));
          const data = decoded(bytes.subarray(child, child + bytes.readUInt32LE(key)), filters, bytes.readUInt32LE(key + 4), type.size);
          place(out, shape, data, chunk, corner, type.size);
          stored++;
        }
      }
    };
    visit(file.number(at + 3), 0);
    if (stored !== product(shape.map((size, axis) => Math.ceil(size / chunk[axis])))) refuse('chunks that are not stored');
    return out;
  }

  get filters() {
    const message = this.one(0xb), { bytes } = this.file, found = [];
    if (!message) return found;
    let at = message.at + 8;
    for (let i = 0; i < bytes[message.at + 1]; i++) {
      const [id, name, , values] = [0, 2, 4, 6].map((offset) => bytes.readUInt16LE(at + offset));
      found.push(id);
      at += 8 + ((name + 7) & ~7) + 4 * (values + (values % 2));
    }
    return found;
  }
}

function decoded(data, filters, mask, width) {
  for (let i = filters.length - 1; i >= 0; i--) {
    if ((mask >> i) & 1) continue;
    if (filters[i] === 1) data = inflateSync(data);
    else if (filters[i] === 2) data = unshuffled(data, width);
    else refuse(`the compression ${filters[i]}, which this program does not have`);
  }
  return data;
}

function unshuffled(data, width) {
  const out = Buffer.alloc(data.length), count = Math.floor(data.length / width);
  for (let byte = 0; byte < width; byte++) for (let i = 0; i < count; i++) out[i * width + byte] = data[byte * count + i];
  return out;
}

function place(out, shape, data, chunk, corner, width) {
  const rows = product(chunk.slice(0, -1)), last = shape.length - 1;
  const run = Math.min(chunk[last], shape[last] - corner[last]) * width;
  for (let row = 0; row < rows; row++) {
    let rest = row, target = 0, stride = shape[last], inside = true;
    for (let axis = last - 1; axis >= 0; axis--) {
      const at = corner[axis] + (rest % chunk[axis]);
      rest = Math.floor(rest / chunk[axis]);
      inside &&= at < shape[axis];
      target += at * stride;
      stride *= shape[axis];
    }
    if (inside) data.copy(out, (target + corner[last]) * width, row * chunk[last] * width, row * chunk[last] * width + run);
  }
}
