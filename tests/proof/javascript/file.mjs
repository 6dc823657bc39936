// One capture file against its own digests: `schemas/capture-file.v1.md`, `proof.v1.md` and `proof.v2.md`.

import { createHash } from 'node:crypto';
import { blake3, hex } from './blake3.mjs';
import { File } from './hdf5.mjs';
import { canonical, parse } from './json.mjs';

export class Bad extends Error {}

export function require(condition, what) {
  if (!condition) throw new Bad(what);
}

const BLOCK = 65536;
const LANES = { complex32: 2, complex64: 2, complex128: 2 };
const TEXTS = ['closing', 'gaps', 'manifest', 'resolved', 'spec'];
const NOT_IN_IDENTITY = ['sinks', 'rules', 'limits', 'durability', 'on_error', 'tolerance'];
const BESIDES = new Set(['digest', 'described']);
const KEY = ['probe', 'target', 'leaf', 'phase'];
const VARIABLE = ['epoch', 'microstep', 'call', 'backward'];

export const sha256 = (data) => createHash('sha256').update(data).digest('hex');
export const same = (a, b) => canonical['proof.v1'](a) === canonical['proof.v1'](b);
const exactly = (found, wanted, what) => require([...found].sort().join('\n') === [...wanted].sort().join('\n'), what);

// Everything that a line of the ledger repeats, and the manifest.
export function checkFile(bytes) {
  const file = new File(bytes);
  const { root } = file, about = described(root, null);
  const proof = about.get('proof') ?? 'proof.v1', form = canonical[proof];
  require(about.get('probes_format') === 'capture-file.v1' && about.get('digest_algorithm') === 'blake3' && form, 'the format');
  const names = [...root.children.keys()].filter((name) => name !== 'steps');
  exactly(names, [...TEXTS, 'captures', ...(proof === 'proof.v1' ? [] : ['file_root', 'order'])], 'the objects of the root');
  const texts = Object.fromEntries(TEXTS.map((name) => [name, root.child(name).raw]));
  const json = (name) => parse(new TextDecoder('utf8', { fatal: true }).decode(texts[name]));
  const manifest = json('manifest');
  checkOrigin(texts, manifest, json('resolved'));
  const rows = [], payloads = [], outlines = [];
  let captures = 0;
  for (const [probe, group] of root.child('captures').children) {
    for (const [name, series] of group.children) {
      const [row, count, outline] = checkSeries(series, number(about, 'rank'), form, number(about, 'epoch'));
      require(row[0] === unescaped(probe) && groupName(row) === name.split('~')[0], 'the name of a series');
      rows.push(row);
      outlines.push(outline);
      captures += count;
      payloads.push(series.child('values'));
    }
  }
  if (proof !== 'proof.v1') checkFileRoot(bytes, root.child('file_root'), payloads);
  const closing = json('closing');
  checkRoots(about, json('gaps'), closing, manifest, rows, captures);
  return { about, manifest, captures, sources: closing.get('sources') ?? null, series: statedSeries(outlines), remarks: hasRemarks(closing) };
}

// What a line of `ledger.v2` states of the series of its file, and of its closing record.
function statedSeries(outlines) {
  const order = [...KEY, 'dtype'];
  const compare = (a, b) => order.reduce((found, name) => found || points(a[name], b[name]), 0);
  return [...outlines].sort(compare);
}

const BY_DESIGN = ['recompute', 'filtered', 'not reached', 'no optimizer step'];

function hasRemarks(closing) {
  const reasons = (account) => [...(account.get('skipped') ?? new Map()).keys(), ...(account.get('lost') ?? []).map((row) => row[1])];
  const missing = (closing.get('accounts') ?? []).flatMap(reasons).some((reason) => !BY_DESIGN.includes(reason));
  const events = closing.get('trigger')?.get('events') ?? [];
  return missing || (closing.get('rules') ?? []).length > 0 || events.length > 0;
}

function outlineOf(about, key, dtype, count, shapes, lengths, epochs, epoch) {
  const rank = Math.max(...shapes.map((shape) => shape.length)), named = about.get('dims') ?? [];
  const alike = shapes.every((shape) => shape.length === rank);
  const shape = alike ? shapes[0].map((size, axis) => (shapes.every((one) => one[axis] === size) ? size : null)) : null;
  const others = [...new Set(epochs.map(Number))].sort((a, b) => a - b);
  return {
    ...Object.fromEntries(KEY.map((name, i) => [name, key[i]])), dtype, captures: count, shape,
    dims: named.length === rank && rank ? named : null, bytes: lengths.reduce((all, one) => all + one, 0),
    epochs: others.length === 1 && others[0] === epoch ? null : others,
  };
}

export const number = (about, name) => Number(about.get(name));

// The attributes of an object that has the digest of them.
function described(node, form) {
  const found = node.attributes;
  const used = form ?? canonical[found.get('proof') ?? 'proof.v1'] ?? canonical['proof.v2'];
  const rest = new Map([...found].filter(([name]) => !BESIDES.has(name)));
  require(hex(used(rest)) === found.get('described'), 'the attributes');
  return found;
}

function checkFileRoot(bytes, own, payloads) {
  const places = [own, ...payloads].map((one) => one.extent).filter((place) => place);
  places.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const pieces = [];
  let at = 0;
  for (const [start, end] of places) {
    if (start > at) pieces.push(bytes.subarray(at, start));
    at = Math.max(at, end);
  }
  require(hex(Buffer.concat([...pieces, bytes.subarray(at)])) === own.raw.toString('latin1'), 'the file root');
}

function checkOrigin(texts, manifest, resolved) {
  const spec = manifest.get('spec'), identity = manifest.get('identity'), code = manifest.get('code');
  require(sha256(texts.spec) === spec.get('sha256'), 'the spec');
  require(sha256(texts.resolved) === spec.get('resolved_sha256'), 'the resolved spec');
  const form = canonical['proof.v1'];
  const row = (one, ...keys) => keys.map((key) => one.get(key));
  const structure = new Map(), weights = new Map();
  let whole = true;
  for (const model of manifest.get('models')) {
    const modules = model.get('modules').map((one) => row(one, 'path', 'type', 'same_as'));
    const tensors = model.get('tensors').map((one) => row(one, 'name', 'role', 'dtype', 'shape', 'trained', 'same_as'));
    structure.set(model.get('name'), hex(form({ modules, tensors })));
    const table = model.get('tensors').map((one) => row(one, 'name', 'dtype', 'shape', 'digest'));
    weights.set(model.get('name'), hex(form(sorted(table))));
    whole &&= model.get('tensors').every((one) => one.get('digest') !== null || one.get('same_as') !== null);
  }
  const git = code.get('git') ?? new Map();
  const ran = { script: code.get('sha256'), commit: git.get('commit') ?? null, diff: git.get('diff')?.get('sha256') ?? null };
  if (code.get('modules') ?? null) ran.modules = code.get('modules').map((one) => row(one, 'name', 'sha256'));
  require(identity.get('structure') === hex(form(structure)), 'identity: structure');
  require(identity.get('weights') === (whole ? hex(form(weights)) : null), 'identity: weights');
  require(identity.get('code') === hex(form(ran)), 'identity: code');
  require(identity.get('environment') === hex(form(manifest.get('environment'))), 'identity: environment');
  const kept = new Map([...resolved].filter(([key]) => !NOT_IN_IDENTITY.includes(key)));
  const probes = [...kept.get('probes')].map(([name, probe]) => [name, new Map([...probe].filter(([key]) => key !== 'sinks'))]);
  kept.set('probes', new Map(probes));
  const found = hex(canonical[manifest.get('proof') ?? 'proof.v1'](kept));
  require(found === identity.get('spec') && found === spec.get('identity'), 'identity: spec');
}

// Rows by their texts; where these are equal, as Python orders what follows.
function sorted(rows) {
  const text = (row) => row.map((one) => (typeof one === 'string' ? one : canonical['proof.v1'](one)));
  const less = (a, b) => {
    const [x, y] = [text(a), text(b)];
    for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return points(x[i], y[i]);
    return 0;
  };
  return [...rows].sort(less);
}

function points(a, b) {
  return Buffer.compare(Buffer.from(a), Buffer.from(b)); // UTF-8 sorts as code points do
}

function checkRoots(about, gaps, closing, manifest, rows, captures) {
  const form = canonical['proof.v1'], identity = manifest.get('identity');
  require(hex(form({ series: sorted(rows), gaps: sorted(gaps) })) === about.get('captures_root'), 'the captures root');
  const facts = Object.fromEntries(['spec', 'structure', 'weights', 'code', 'environment'].map((name) => [name, identity.get(name) ?? null]));
  const weights = closing.get('weights') ?? null;
  if (weights !== null && weights !== '') facts.weights = weights;
  if (closing.get('models') ?? null) {
    const whole = closing.get('models').every((model) => model.get('tensors').every((one) => one.has('digest') || one.has('same_as')));
    const rows = (model) => model.get('tensors').map((one) => ['name', 'dtype', 'shape', 'digest'].map((key) => one.get(key) ?? null));
    const tables = new Map(closing.get('models').map((model) => [model.get('name'), hex(form(sorted(rows(model))))]));
    require(weights === (whole ? hex(form(tables)) : null), 'the weights at the end of the epoch');
  }
  facts.counts = { captures, steps: closing.get('steps') ?? null };
  facts.captures_root = about.get('captures_root');
  facts.complete = number(about, 'complete') !== 0;
  require(hex(form(facts)) === about.get('epoch_root'), 'the epoch root');
}

function checkSeries(group, rank, form, epoch) {
  const about = described(group, form), dtype = about.get('torch_dtype'), lanes = LANES[dtype] ?? 1;
  const steps = group.child('step').numbers, count = steps.length, values = group.child('values');
  const column = (name) => {
    const found = group.children.has(name) ? group.child(name).numbers : Array(count).fill(number(about, name));
    require(found.length === count, `the column ${name}`);
    return found;
  };
  const columns = Object.fromEntries(VARIABLE.map((name) => [name, column(name)]));
  const clocks = Buffer.alloc(24 * count);
  steps.forEach((step, i) => {
    [columns.epoch[i], step, null, columns.call[i], columns.backward[i], rank].forEach((value, k) => value !== null && clocks.writeUInt32LE(Number(value), 24 * i + 4 * k));
    clocks.writeInt32LE(Number(columns.microstep[i]), 24 * i + 8);
  });
  const shapes = shapesOf(group, about, values.shape.slice(0, lanes > 1 ? -1 : undefined), count);
  const table = Buffer.concat(shapes.map(shapeRow));
  const lengths = shapes.map((shape) => shape.reduce((all, one) => all * one, 1) * lanes * values.type.size);
  const blocks = blockDigests(values.content, lengths);
  require(blocks.equals(group.child('block_digest').content), 'the block digests');
  checkRest(group, about, count, lengths, lanes * values.type.size);
  const key = KEY.map((name) => about.get(name));
  const head = canonical['proof.v1']({ ...Object.fromEntries(KEY.map((name, i) => [name, key[i]])), dtype, captures: count, blocks: blocks.length / 32 });
  const found = hex(Buffer.concat([Buffer.from(`${head}\n`), clocks, table, blocks]));
  require(found === about.get('digest'), 'the series digest');
  return [[...key, dtype, found], count, outlineOf(about, key, dtype, count, shapes, lengths, columns.epoch, epoch)];
}

// Columns that are in the file for other readers.
function checkRest(group, about, count, lengths, width) {
  require(group.child('global_step').numbers.length === count, 'the global steps');
  const variants = about.get('variants') ?? (group.children.has('variants') ? group.child('variants').raw.toString('utf8') : null);
  require((variants !== null) === group.children.has('variant'), 'the variants');
  if (variants !== null) {
    const of = group.child('variant').numbers, several = parse(variants).length;
    require(of.length === count && of.every((one) => Number(one) < several), 'the variants');
  }
  if (!group.children.has('offset')) return;
  let at = 0;
  group.child('offset').numbers.forEach((offset, i) => {
    require(Number(offset) === at / width, 'an offset');
    at += lengths[i];
  });
}

function shapesOf(group, about, shape, count) {
  if (about.get('layout') === 'stacked') {
    require(shape[0] === count, 'the number of captures');
    return Array(count).fill(shape.slice(1));
  }
  if (about.get('layout') === 'concatenated') return group.child('row_size').numbers.map((rows) => [Number(rows), ...shape.slice(1)]);
  require(about.get('layout') === 'ragged', 'the layout');
  const sizes = group.child('shape').numbers.map(Number), rank = group.child('shape').shape[1];
  return Array.from({ length: count }, (_, i) => sizes.slice(i * rank, (i + 1) * rank).filter((size) => size >= 0));
}

function shapeRow(shape) {
  const row = Buffer.alloc(4 + 8 * shape.length);
  row.writeUInt32LE(shape.length);
  shape.forEach((size, axis) => row.writeBigUInt64LE(BigInt(size), 4 + 8 * axis));
  return row;
}

// A block ends with the capture that brings it to 64 KiB; a capture of 64 KiB or more is a block of its own.
function blockDigests(payload, lengths) {
  const out = [];
  let start = 0, at = 0, open = 0;
  const close = () => {
    out.push(blake3(payload.subarray(start, at)));
    [start, open] = [at, 0];
  };
  for (const length of lengths) {
    if (open && length >= BLOCK) close();
    at += length;
    open++;
    if (at - start >= BLOCK) close();
  }
  require(at === payload.length, 'the number of bytes');
  if (open) close();
  return Buffer.concat(out);
}

const groupName = ([, target, leaf, phase]) => `${escaped(target)}:${escaped(leaf)}${phase === 'train' ? '' : `@${escaped(phase)}`}`;

function escaped(text) {
  if (!text) return '%';
  const dots = /^\.+$/.test(text);
  const bytes = (one) => [...Buffer.from(one)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
  return [...text].map((one) => (dots || '/%:@~'.includes(one) || (one !== ' ' && /[\p{C}\p{Z}]/u.test(one)) ? bytes(one) : one)).join('');
}

function unescaped(text) {
  if (text === '%') return '';
  const parts = text.split(/(%[0-9A-F]{2})/).map((part) => (/^%[0-9A-F]{2}$/.test(part) ? Buffer.from(part.slice(1), 'hex') : Buffer.from(part)));
  return Buffer.concat(parts).toString('utf8');
}

