"""A second verifier, written from `schemas/` alone: h5py, BLAKE3 and JSON, and nothing of the package.

`python -m tests.independent_verifier RUN` prints what it finds and ends with 0 or 1.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from blake3 import blake3

BLOCK = 65536
LANES = {"complex32": 2, "complex64": 2, "complex128": 2}
NOT_IN_IDENTITY = ("sinks", "rules", "limits", "durability", "on_error", "tolerance")
TEXTS = {"spec", "resolved", "manifest", "closing", "gaps"}
VARIABLE = ("epoch", "microstep", "call", "backward")
LINE_KEYS = (
    "attempt bytes captures captures_root complete epoch epoch_root file file_blake3 format index previous rank reason segment supersedes"
)
FORMATS = {"ledger.v1": LINE_KEYS, "ledger.v2": " ".join(sorted([*LINE_KEYS.split(), "remarks", "series"]))}
BY_DESIGN = {"recompute", "filtered", "not reached", "no optimizer step"}


class Bad(Exception):
    """Something is not as it was sealed."""


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def rfc8785(value: Any) -> bytes:
    """The same with numbers as ECMAScript writes them: those of Python in another notation."""
    if isinstance(value, dict):
        rows = sorted(value.items(), key=lambda row: row[0].encode("utf-16-be"))
        return b"{" + b",".join(canonical(key) + b":" + rfc8785(one) for key, one in rows) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(rfc8785, value)) + b"]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return canonical(value)
    if float(value).is_integer() and abs(value) < 1e21:
        return b"%d" % value
    text = repr(float(value))
    if 1e-6 <= abs(value) < 1e-4:
        return format(value, f".{len(text.partition('e')[0].replace('-', '').replace('.', '')) + int(text[-1]) - 1}f").encode()
    return re.sub(r"e([+-])0", r"e\1", text).encode()


def digest(data: bytes) -> str:
    return blake3(data).hexdigest()


def require(condition: object, what: str) -> None:
    if not condition:
        raise Bad(what)


SHARED = ("format", "run_id", "spec")  # what the manifests of all ranks and attempts have in common; of the spec its identity


def verifies(run: Path) -> bool:
    try:
        check_run(run)
    except (Bad, OSError, KeyError, ValueError, TypeError, RuntimeError, IndexError, AttributeError, OverflowError):
        return False
    return True


NUMBER = "([0-9]{4,10})"
FILE = re.compile(rf"epoch-{NUMBER}(?:\.a([0-9]{{1,10}}))?(?:\.s{NUMBER})?(?:\.rank-{NUMBER})?\.h5")


def regular(path: Path) -> bytes:
    require(path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 28, f"{path.name}: a regular file")
    return path.read_bytes()


def place(name: str) -> dict[str, Any]:
    """What a file's name states; a number is not written with more zeros than it needs."""
    found = FILE.fullmatch(name)
    require(found, "the name of a file")
    assert found is not None
    epoch, attempt, segment, rank = (None if part is None else int(part) for part in found.groups())
    made = f"epoch-{epoch:04d}" + (f".a{attempt}" if attempt else "") + (f".s{segment:04d}" if segment else "")
    require(made + ("" if rank is None else f".rank-{rank:04d}") + ".h5" == name and attempt != 1, "the name of a file")
    ledger = "ledger.jsonl" if rank is None else f"ledger.rank-{rank:04d}.jsonl"
    return {"epoch": epoch, "attempt": attempt or 1, "segment": segment, "rank": rank or 0, "ledger": ledger, "alone": rank is None}


def launch_worlds(run: Path, manifests: dict[str, Any]) -> dict[int, int]:
    """The number of processes of each start that has a launch file, which all its manifests name."""
    worlds, digests = {}, {}
    run_id = next(iter(manifests.values()))["run_id"]
    for path in run.glob("launch*.json"):
        named = re.fullmatch(r"launch(?:\.a([1-9][0-9]*))?\.json", path.name)
        if named and named[1] != "1":
            text = regular(path)
            found = json.loads(text)
            require(canonical(found) + b"\n" == text, "the form of a launch file")
            require((found["format"], found["run_id"], found["attempt"]) == ("launch.v1", run_id, int(named[1] or 1)), "a launch file")
            worlds[found["attempt"]] = found["world"]
            digests[found["attempt"]] = hashlib.sha256(text).hexdigest()
    for name, manifest in manifests.items():
        require(manifest.get("launch") == digests.get(int((re.search(r"\.a(\d+)", name) or [0, 1])[1])), "the launch file of a manifest")
    return worlds


def ended_ranks(run: Path) -> dict[tuple[int, int], int]:
    """The last epoch (or -1) of the ranks whose note states the head of their ledger as it was at their end, by attempt and rank."""
    found = {}
    for path in run.glob("end*.json"):
        named = re.fullmatch(r"end(?:\.a([1-9][0-9]*))?\.rank-([0-9]{4,10})\.json", path.name)
        if named and named[1] != "1" and f"{int(named[2]):04d}" == named[2]:
            attempt, ledger = int(named[1] or 1), run / f"ledger.rank-{named[2]}.jsonl"
            lines = [line for line in ledger.read_bytes().split(b"\n")[:-1] if line] if ledger.exists() else []
            before = [line for line in lines if json.loads(line)["attempt"] <= attempt]
            try:
                stated = json.loads(regular(path))
            except ValueError:
                continue
            if isinstance(stated, dict) and stated.get("head") == (digest(before[-1]) if before else ""):
                of_attempt = [one["epoch"] for one in map(json.loads, before) if one["attempt"] == attempt]
                found[attempt, int(named[2])] = max(of_attempt, default=-1)
    return found


def check_launches(manifests: dict[str, Any], listed: set[str], launched: dict[int, int], ended: dict[tuple[int, int], int]) -> None:
    """Every start has the manifests of all its ranks, and files of no other ranks; one that was killed early sealed nothing."""
    worlds: dict[int, int] = {}
    for name, manifest in manifests.items():
        start, rank = int((re.search(r"\.a(\d+)", name) or [0, 1])[1]), int((re.search(r"rank-(\d+)", name) or [0, 0])[1])
        world = manifest["environment"]["world"]
        require(manifest["rank"] == rank < world and worlds.setdefault(start, world) == world, "the ranks of a launch")
    for start, world in worlds.items():
        again = f".a{start}" if start > 1 else ""
        require(launched.get(start, world) == world, "the processes of a launch")
        sealed = any(place(name)["attempt"] == start for name in listed)
        require(
            (launched and not sealed)
            or all(
                f"run{again}{f'.rank-{rank:04d}' if rank else ''}.json" in manifests or ended.get((start, rank)) == -1
                for rank in range(min(world, 9999))
            ),
            "a rank",
        )
    for stated in map(place, listed):
        world = worlds.get(stated["attempt"], 0)
        require(not world or (stated["alone"] == (world == 1) and stated["rank"] < world), "the rank of a file")


def check_run(run: Path) -> None:
    named = [path for path in run.glob("run*.json") if re.fullmatch(r"run(\.a[0-9]+)?(\.rank-[0-9]{4,})?\.json", path.name)]
    manifests = {path.name: manifest_of(path) for path in named}
    zero = (place(entry["file"]) for ledger in run.glob("ledger.rank-0000.jsonl") for entry in check_ledger(ledger))
    without = [*run.glob("launch*.json")] and not any(one["attempt"] == 1 for one in zero)  # rank 0 came late, or called no model
    manifest = manifests["run.json"] if not without else manifests.get("run.json") or manifests[min(manifests)]
    for other in manifests.values():
        require([part(other, name) for name in SHARED] == [part(manifest, name) for name in SHARED], "manifests of one run")
    of_zero = [name for name in manifests if ".rank-" not in name]
    if of_zero:  # rank 0 writes the spec, in its first start
        writer = manifests[min(of_zero, key=lambda name: int((re.search(r"\.a(\d+)", name) or [0, 1])[1]))]
        require(hashlib.sha256(regular(run / "spec.yaml")).hexdigest() == writer["spec"]["sha256"], "spec.yaml")
    diff = (manifest["code"]["git"] or {}).get("diff")
    if diff and "code.git.diff" not in manifest["unknown"]:
        require(hashlib.sha256((run / diff["name"]).read_bytes()).hexdigest() == diff["sha256"], diff["name"])
    for kept in (one["code"].get("sources") for one in manifests.values()):
        require(not kept or hashlib.sha256(regular(run / kept["name"])).hexdigest() == kept["sha256"], "the sources")
    listed: set[str] = set()
    places: set[tuple[Any, ...]] = set()
    cut: dict[Any, bool] = {}
    ends: dict[Any, int] = {}
    ranks: dict[int, dict[int, bool]] = {}
    worlds: dict[int, int] = {}
    attempts: dict[int, int] = {}
    started = {int((re.search(r"\.a(\d+)", name) or [0, 1])[1]): one["environment"]["world"] for name, one in manifests.items()}
    for ledger in sorted(path for path in run.glob("ledger*.jsonl") if re.fullmatch(r"ledger(\.rank-\d{4,})?\.jsonl", path.name)):
        for entry in check_ledger(ledger):
            require(entry["file"] not in listed, "two lines for one file")
            listed.add(entry["file"])
            attempt = entry["epoch"], entry["rank"], entry["attempt"]
            require((*attempt, entry["segment"]) not in places, "two files of one place")
            places.add((*attempt, entry["segment"]))
            require(cut.setdefault(attempt, entry["segment"] is None) == (entry["segment"] is None), "segments and a whole epoch")
            if entry["segment"] and entry["complete"]:
                ends.setdefault(attempt, entry["segment"])
            of_epoch = ranks.setdefault(entry["epoch"], {})
            of_epoch[entry["rank"]] = of_epoch.get(entry["rank"], False) or entry["complete"]
            worlds[entry["epoch"]] = max(worlds.get(entry["epoch"], 1), started.get(entry["attempt"], 1))
            attempts[entry["epoch"]] = max(attempts.get(entry["epoch"], 1), entry["attempt"])
            check_file(run / entry["file"], entry, manifests)
    ended = ended_ranks(run)
    for epoch, of_epoch in ranks.items():
        before = sum(rank not in of_epoch and last < epoch for (attempt, rank), last in ended.items() if attempt == attempts[epoch])
        whole = len(of_epoch) + before >= min(worlds[epoch], 9999)
        require(whole or not all(of_epoch.values()), "every rank has a file of a complete epoch")
    check_segments(places, ends)
    require(listed, "no file was sealed")
    check_launches(manifests, listed, launch_worlds(run, manifests), ended)
    require({path.name for path in run.glob("epoch-*.h5")} == listed, "files and ledger differ")
    require(not list(run.glob("epoch-*.journal")), "an epoch is not sealed")


def check_segments(places: set[tuple[Any, ...]], ends: dict[Any, int]) -> None:
    """No segment is missing in the attempt that counts, and none is behind the end of an epoch."""
    cut: dict[Any, set[int]] = {}
    for *attempt, segment in places:
        if segment is not None:
            cut.setdefault(tuple(attempt), set()).add(segment)
    for at, numbers in cut.items():
        require(max(numbers) <= ends.get(at, max(numbers)), "a segment behind the end of the epoch")
        later = [other for other in cut if other[:2] == at[:2] and other[2] > at[2]]
        require(later or numbers == {*range(1, max(numbers) + 1)}, "a segment is missing")


def manifest_of(path: Path) -> dict[str, Any]:
    text = regular(path)
    found: dict[str, Any] = json.loads(text)
    require((json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode() == text, "the form of a manifest")
    return found


def part(manifest: dict[str, Any], name: str) -> object:
    return manifest["spec"]["identity"] if name == "spec" else manifest[name]


def check_ledger(path: Path) -> list[dict[str, Any]]:
    previous, entries = "0" * 64, []
    whole = regular(path).split(b"\n")[:-1]
    if whole and b"\0" in whole[-1]:
        whole.pop()  # not all of it came to the device
    for index, line in enumerate(whole):
        entry = json.loads(line)
        require(canonical(entry) == line and " ".join(sorted(entry)) == FORMATS[entry["format"]], "a line of the ledger")
        require(all(type(entry[name]) is int for name in ("epoch", "attempt", "rank", "bytes", "captures", "index")), "a number")
        require(type(entry["complete"]) is bool, "a truth value")
        require((entry["index"], entry["previous"]) == (index, previous), "the chain of the ledger")
        stated = place(entry["file"])
        require(stated.pop("ledger") == path.name, "the ledger of a file")
        require({**entry, **stated, "alone": 0} == {**entry, "alone": 0}, "a line and the name of its file")
        previous = digest(line)
        entries.append(entry)
        if type(entry.get("series")) is int:
            require(entry["series"] < index and isinstance(entries[entry["series"]]["series"], list), "the series of a line")
    lists = [entry.get("series") for entry in entries]
    entries = [{**entry, "series": lists[one] if type(one) is int else one} for entry, one in zip(entries, lists, strict=True)]
    files = {entry["file"]: entry for entry in entries}
    for entry in entries:
        earlier = files.get(entry["supersedes"])
        places = [(one["epoch"], one["rank"]) for one in (entry, earlier) if one]
        require(entry["supersedes"] is None or (len(set(places)) == 1 and earlier and earlier["attempt"] < entry["attempt"]), "supersedes")
    return entries


def check_file(path: Path, entry: dict[str, Any], manifests: dict[str, Any]) -> None:
    require(path.is_file() and not path.is_symlink() and path.stat().st_size == entry["bytes"], "a regular file of that size")
    content = path.read_bytes()
    require(digest(content) == entry["file_blake3"], "the bytes of the file")
    with h5py.File(path, "r") as file:
        about = attributes(file)
        require(about["probes_format"] == "capture-file.v1" and about["digest_algorithm"] == "blake3", "the format")
        second = "proof" in about
        require(not second or about["proof"] == "proof.v2", "the version of the proof")
        require(set(file) - {"steps"} == TEXTS | {"captures"} | ({"file_root", "order"} if second else set()), "the objects of the root")
        require(not second or file["file_root"][()] == rest_of(file, content), "the rest of the file")
        texts = {name: bytes(file[name][()]) for name in TEXTS}
        mine = json.loads(texts["manifest"])
        late = json.loads(texts["closing"]).get("sources")
        require(not late or hashlib.sha256(regular(path.parent / late["name"])).hexdigest() == late["sha256"], "the later sources")
        start = f".a{about['attempt']}" if about["attempt"] > 1 else ""
        rank = f".rank-{about['rank']:04d}" if about["rank"] else ""
        require(canonical(mine) == canonical(manifests[f"run{start}{rank}.json"]), "the manifest")
        check_texts(texts, mine)
        rows, captures, outlines = [], 0, []
        for probe in file["captures"]:
            for name in file["captures"][probe]:
                row, count, outline = check_series(file["captures"][probe][name], about["rank"], about["epoch"])
                require(row[0] == unescaped(probe) and group_name(row) == name.partition("~")[0], "the name of a series")
                rows.append(row)
                outlines.append(outline)
                captures += count
        check_roots(about, texts, mine, rows, captures)
    facts = {name: about[name] for name in ("epoch", "attempt", "rank", "captures_root", "epoch_root", "reason")}
    facts |= {"complete": bool(about["complete"]), "segment": about["segment"] or None, "captures": captures}
    if entry["format"] != "ledger.v1":
        outlines.sort(key=lambda one: [one[name] for name in ("probe", "target", "leaf", "phase", "dtype")])
        facts |= {"series": outlines if entry["series"] is not None else None, "remarks": remarks(json.loads(texts["closing"]))}
    require(all(entry[name] == value for name, value in facts.items()), "the line of the file")


def remarks(closing: dict[str, Any]) -> bool:
    accounts = closing.get("accounts") or []
    reasons = [reason for one in accounts for reason in [*(one.get("skipped") or {}), *(row[1] for row in one.get("lost") or ())]]
    events = (closing.get("trigger") or {}).get("events")
    return bool(set(reasons) - BY_DESIGN or closing.get("rules") or events)


def outline_of(
    about: dict[str, Any], key: dict[str, str], shapes: list[tuple[int, ...]], size: int, epochs: Any, epoch: int
) -> dict[str, Any]:
    rank, dims = max(map(len, shapes)), about.get("dims")
    alike = all(len(shape) == rank for shape in shapes)
    own = sorted({int(one) for one in epochs})
    return {
        **key,
        "dtype": about["torch_dtype"],
        "captures": len(shapes),
        "shape": [axis[0] if len(set(axis)) == 1 else None for axis in zip(*shapes, strict=True)] if alike else None,
        "dims": dims if dims and len(dims) == rank else None,
        "bytes": size,
        "epochs": None if own == [epoch] else own,
    }


def rest_of(file: Any, content: bytes) -> bytes:
    """The digest of all bytes but those of payloads in one piece, and of the digest itself."""
    datasets = [file["file_root"], *(series["values"] for probe in file["captures"].values() for series in probe.values())]
    places = [(one.id.get_offset(), one.id.get_storage_size()) for one in datasets if not one.chunks and one.id.get_offset() is not None]
    out, at = b"", 0
    for start, size in sorted(places):
        out, at = out + content[at:start], start + size
    return digest(out + content[at:]).encode()


def check_texts(texts: dict[str, bytes], manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    require(hashlib.sha256(texts["spec"]).hexdigest() == spec["sha256"], "the spec")
    require(hashlib.sha256(texts["resolved"]).hexdigest() == spec["resolved_sha256"], "the resolved spec")
    structure, weights = {}, {}
    for model in manifest["models"]:
        modules = [[one["path"], one["type"], one["same_as"]] for one in model["modules"]]
        tensors = [[one[key] for key in ("name", "role", "dtype", "shape", "trained", "same_as")] for one in model["tensors"]]
        structure[model["name"]] = digest(canonical({"modules": modules, "tensors": tensors}))
        table = sorted([one["name"], one["dtype"], one["shape"], one["digest"]] for one in model["tensors"])
        weights[model["name"]] = digest(canonical(table))
    identity, git = manifest["identity"], manifest["code"]["git"] or {}
    code = {"script": manifest["code"]["sha256"], "commit": git.get("commit"), "diff": (git.get("diff") or {}).get("sha256")}
    if manifest["code"].get("modules") is not None:
        code["modules"] = [[one["name"], one["sha256"]] for one in manifest["code"]["modules"]]
    resolved = {key: value for key, value in json.loads(texts["resolved"]).items() if key not in NOT_IN_IDENTITY}
    resolved["probes"] = {name: {key: one for key, one in probe.items() if key != "sinks"} for name, probe in resolved["probes"].items()}
    form = canonical if manifest.get("proof", "proof.v1") == "proof.v1" else rfc8785
    require(identity["spec"] == spec["identity"] == digest(form(resolved)), "identity: spec")
    require(identity["structure"] == digest(canonical(structure)), "identity: structure")
    require(identity["weights"] in (None, digest(canonical(weights))), "identity: weights")
    require(identity["code"] == digest(canonical(code)), "identity: code")
    require(identity["environment"] == digest(canonical(manifest["environment"])), "identity: environment")


def weights_of(models: list[dict[str, Any]]) -> str | None:
    """The digest of the tables of a closing record, in which keys are left out that are null."""
    if any("digest" not in row and "same_as" not in row for model in models for row in model["tensors"]):
        return None
    tables = {one["name"]: sorted([row["name"], row["dtype"], row["shape"], row.get("digest")] for row in one["tensors"]) for one in models}
    return digest(canonical({name: digest(canonical(table)) for name, table in tables.items()}))


def check_roots(about: dict[str, Any], texts: dict[str, bytes], manifest: dict[str, Any], rows: list[list[str]], captures: int) -> None:
    gaps, closing = json.loads(texts["gaps"]), json.loads(texts["closing"])
    require(digest(canonical({"series": sorted(rows), "gaps": sorted(gaps)})) == about["captures_root"], "the captures root")
    facts = {name: manifest["identity"][name] for name in ("spec", "structure", "weights", "code", "environment")}
    facts["weights"] = closing.get("weights") or facts["weights"]
    if closing.get("models") is not None:
        require(closing.get("weights") == weights_of(closing["models"]), "the weights at the end of the epoch")
    counts = {"captures": captures, "steps": closing.get("steps")}
    facts |= {"captures_root": about["captures_root"], "counts": counts, "complete": bool(about["complete"])}
    require(digest(canonical(facts)) == about["epoch_root"], "the epoch root")


def check_series(group: Any, rank: int, epoch: int) -> tuple[list[str], int, dict[str, Any]]:
    about = attributes(group)
    count = len(group["step"])
    shapes = shapes_of(group, about, count)
    columns = {name: group[name][...] if name in group else np.full(count, about[name]) for name in VARIABLE}
    require(all(len(column) == count for column in columns.values()), "a column")
    if "variant" in group:
        text = about["variants"] if "variants" in about else group["variants"][()]
        variants = json.loads(text)
        require(len(group["variant"]) == count and max(group["variant"]) < len(variants), "the variants")
    require(("variant" in group) == ("variants" in about or "variants" in group), "the variants")
    rows = zip(columns["epoch"], group["step"][...], columns["microstep"], columns["call"], columns["backward"], strict=True)
    clocks = b"".join(struct.pack("<IIiIII", *map(int, row), rank) for row in rows)
    sizes = b"".join(struct.pack(f"<I{len(shape)}Q", len(shape), *shape) for shape in shapes)
    payload = (
        group["values"][...].tobytes() if group["values"].dtype.kind != "f" or not is_bfloat16(group["values"]) else raw(group["values"])
    )
    lengths = [int(np.prod(shape)) * LANES.get(about["torch_dtype"], 1) for shape in shapes]
    width = group["values"].id.get_type().get_size()
    blocks = digests(payload, [length * width for length in lengths])
    require(blocks == group["block_digest"][...].tobytes(), "the block digests")
    key = {name: about[name] for name in ("probe", "target", "leaf", "phase")}
    head = {**key, "dtype": about["torch_dtype"], "captures": count, "blocks": len(blocks) // 32}
    found = digest(canonical(head) + b"\n" + clocks + sizes + blocks)
    require(found == about["digest"], "the series digest")
    outline = outline_of(about, key, shapes, sum(lengths) * width, columns["epoch"], epoch)
    return [*key.values(), about["torch_dtype"], found], count, outline


def digests(payload: bytes, lengths: list[int]) -> bytes:
    """A block ends with the capture that brings it to 64 KiB; a capture of 64 KiB or more is a block of its own."""
    out, start, at, open_captures = b"", 0, 0, 0
    for length in lengths:
        if open_captures and length >= BLOCK:
            out += blake3(payload[start:at]).digest()
            start, open_captures = at, 0
        at += length
        open_captures += 1
        if at - start >= BLOCK:
            out += blake3(payload[start:at]).digest()
            start, open_captures = at, 0
    require(at == len(payload), "the number of bytes")
    return out + blake3(payload[start:at]).digest() if open_captures else out


def shapes_of(group: Any, about: dict[str, Any], count: int) -> list[tuple[int, ...]]:
    shape = group["values"].shape
    shape = shape[:-1] if about["torch_dtype"] in LANES else shape
    if about["layout"] == "stacked":
        require(shape[0] == count, "the number of captures")
        return [shape[1:]] * count
    if about["layout"] == "concatenated":
        return [(int(rows), *shape[1:]) for rows in group["row_size"][...]]
    return [tuple(int(size) for size in row if size >= 0) for row in group["shape"][...]]


def is_bfloat16(values: Any) -> bool:
    kind = values.id.get_type()
    return values.dtype.kind == "f" and kind.get_size() == 2 and kind.get_fields()[1:3] == (7, 8)


def raw(values: Any) -> bytes:
    """Bytes of a dataset whose type numpy does not have."""
    if values.chunks is None:
        content = Path(values.file.filename).read_bytes()
        start = values.id.get_offset() or 0
        return content[start : start + values.size * 2]
    out = np.empty(values.shape, "<u2")
    values.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=values.id.get_type())
    return out.tobytes()


def attributes(owner: Any) -> dict[str, Any]:
    found = {}
    for name in owner.attrs:
        value = owner.attrs[name]
        plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        if isinstance(plain, list):
            found[name] = [one.decode() if isinstance(one, bytes) else one for one in plain]
        else:
            found[name] = plain.decode() if isinstance(plain, bytes) else plain
    rest = {name: value for name, value in found.items() if name not in ("digest", "described")}
    form = rfc8785 if "proof" in owner.file.attrs else canonical
    require(digest(form(rest)) == found["described"], "the attributes")
    return found


def group_name(row: list[str]) -> str:
    _, target, leaf, phase = row[:4]
    return f"{escaped(target)}:{escaped(leaf)}" + (f"@{escaped(phase)}" if phase != "train" else "")


def escaped(text: str) -> str:
    if not text:
        return "%"
    dots = not text.strip(".")
    return "".join(
        "".join(f"%{byte:02X}" for byte in one.encode()) if dots or one in "/%:@~" or not one.isprintable() else one for one in text
    )


def unescaped(text: str) -> str:
    out, at = b"", 0
    while at < len(text):
        if text[at] == "%" and len(text) > 1:
            out, at = out + bytes.fromhex(text[at + 1 : at + 3]), at + 3
        else:
            out, at = out + text[at].encode(), at + 1
    return "" if text == "%" else out.decode()


if __name__ == "__main__":
    check_run(Path(sys.argv[1]))
    print("verifies")
