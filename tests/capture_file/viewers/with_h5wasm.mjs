// Read every series of a capture file with h5wasm, the library of h5web, and print what it sees as JSON.
// Usage: node with_h5wasm.mjs FILE     Exit code 77: h5wasm is not installed.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const places = (process.env.NODE_PATH ?? "").split(":").map((folder) => join(folder, "h5wasm/dist/node/hdf5_hl.js"));
const place = places.find(existsSync);
if (!place) {
  console.log("`h5wasm` is not installed");
  process.exit(77);
}
const hdf5 = (await import(pathToFileURL(place))).default;
await hdf5.ready;

const plain = (value) => {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return Array.from(value, plain);
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  return value;
};
const nested = (flat, shape) => {
  if (shape.length < 2) return flat;
  const size = flat.length / (shape[0] || 1);
  return Array.from({ length: shape[0] }, (_, index) => nested(flat.slice(index * size, (index + 1) * size), shape.slice(1)));
};

const file = new hdf5.File(process.argv[2], "r");
const captures = file.get("captures");
const found = {};
for (const probe of captures.keys()) {
  const group = captures.get(probe);
  for (const name of group.keys()) {
    const series = group.get(name);
    const values = series.get("values");
    const axes = {};
    let numbers;
    try {
      numbers = nested(plain(values.value), values.shape);
    } catch (error) {
      numbers = error.message;  // it has no floats of 16 bits, and says so
    }
    for (const axis of plain(series.attrs["axes"].value)) {
      if (axis !== ".") axes[axis] = plain(series.get(axis).value);
    }
    found[`${probe}/${name}`] = { values: numbers, axes };
  }
}
console.log(JSON.stringify(found));
