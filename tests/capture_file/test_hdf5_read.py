import ast
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

import probes
from probes.capture_file import hdf5_read
from probes.capture_file.hdf5_read import open_file
from probes.capture_file.hdf5_storage import FileContent
from probes.capture_file.read import SealedFile
from probes.errors import FileRefused, StorageError
from tests.descriptors import open_below
from tests.journal import handmade

Craft = Callable[[h5py.File, Path], None]


def read_everything(path: Path) -> None:
    file = SealedFile(path)
    for address in file.addresses:
        part = file.part(address)
        part.elements(0, len(part.clocks))
    file.document("manifest")


def replaced(name: str, make: Callable[[h5py.Group, str, Path], object]) -> Craft:
    def craft(file: h5py.File, folder: Path) -> None:
        del file[name]
        make(file[str(Path(name).parent)], Path(name).name, folder)

    return craft


def secret(folder: Path) -> Path:
    path = folder / "secret"
    path.write_bytes(b"root:x:0:0" * 100)
    return path


def other(folder: Path) -> Path:
    return handmade.write(folder / "other.h5")


def virtual(group: h5py.Group, name: str, folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 2, 3), "<f4")
    layout[...] = h5py.VirtualSource(str(other(folder)), f"{handmade.SERIES}/values", (4, 2, 3))
    group.create_virtual_dataset(name, layout)


def shape_bomb(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, (4, 1 << 36), "<f4")


def chunked_bomb(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, (4, 1 << 36), "<f4", chunks=(1, 1 << 14), compression="gzip")


def huge_chunk(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, data=np.zeros((4, 1 << 20), "<f4"), chunks=(1, 1 << 20), compression="gzip")


def deflate_bomb(group: h5py.Group, name: str, folder: Path) -> None:
    values = group.create_dataset(name, (4, 2, 3), "<f4", chunks=(4, 2, 3), compression="gzip")
    values.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(1 << 24)))


def szip_like(group: h5py.Group, name: str, folder: Path) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4, 2, 3))
    properties.set_filter(31999, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((4, 2, 3))
    values = h5py.h5d.create(group.id, name.encode(), h5py.h5t.IEEE_F32LE, space, properties)
    values.write_direct_chunk((0, 0, 0), bytes(96))


def committed(group: h5py.Group, name: str, folder: Path) -> None:
    group.file["kind"] = np.dtype("<f4")
    group.create_dataset(name, (4, 2, 3), group.file["kind"])


def cycle(group: h5py.Group, name: str, folder: Path) -> None:
    group[name] = group


def external_link(group: h5py.Group, name: str, folder: Path) -> None:
    group[name] = h5py.ExternalLink(str(other(folder)), handmade.SERIES)


def external_group(file: h5py.File, folder: Path) -> None:
    del file["captures"]
    file["captures"] = h5py.ExternalLink(str(other(folder)), "/captures")


def vlen_attribute(file: h5py.File, folder: Path) -> None:
    file[handmade.SERIES].attrs["note"] = "a Python str is variable-length"


def reference_attribute(file: h5py.File, folder: Path) -> None:
    file[handmade.SERIES].attrs["note"] = file.ref


def opaque_attribute_in_disguise(file: h5py.File, folder: Path) -> None:
    file[handmade.SERIES].attrs["DIMENSION_LIST"] = np.void(b"opaque")


def renamed(file: h5py.File, folder: Path) -> None:
    file.move(handmade.SERIES, "captures/acts/fc2:output")


def values_of(dtype: object) -> Craft:
    return replaced(f"{handmade.SERIES}/values", lambda group, name, folder: group.create_dataset(name, (4, 2, 3), dtype))


def compressed_column(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, data=np.zeros(1 << 23, "<u4"), chunks=(1 << 16,), compression="gzip")


def attributes_without_end(file: h5py.File, folder: Path) -> None:
    for number in range(300):
        file[handmade.SERIES].attrs[f"a{number}"] = number


HOSTILE: dict[str, tuple[str, Craft]] = {
    "external storage": (
        "external-storage",
        replaced(
            f"{handmade.SERIES}/values",
            lambda group, name, folder: group.create_dataset(name, (4, 2, 3), "<f4", external=[(str(secret(folder)), 0, 96)]),
        ),
    ),
    "an external link to a series": (
        "external-link",
        replaced(
            handmade.SERIES, lambda group, name, folder: group.__setitem__(name, h5py.ExternalLink(str(other(folder)), handmade.SERIES))
        ),
    ),
    "an external link on the way": ("external-link", external_group),
    "a virtual dataset": ("virtual-dataset", replaced(f"{handmade.SERIES}/values", virtual)),
    "a soft link": (
        "soft-link",
        replaced(f"{handmade.SERIES}/step", lambda group, name, folder: group.__setitem__(name, h5py.SoftLink("/manifest"))),
    ),
    "a shape without bytes": ("shape-bomb", replaced(f"{handmade.SERIES}/values", shape_bomb)),
    "chunks without bytes": ("shape-bomb", replaced(f"{handmade.SERIES}/values", chunked_bomb)),
    "one huge chunk": ("shape-bomb", replaced(f"{handmade.SERIES}/values", huge_chunk)),
    "a chunk that expands": ("shape-bomb", replaced(f"{handmade.SERIES}/values", deflate_bomb)),
    "a compressed column": ("shape-bomb", replaced(f"{handmade.SERIES}/step", compressed_column)),
    "attributes without end": ("oversized", attributes_without_end),
    "an unknown filter": ("unknown-filter", replaced(f"{handmade.SERIES}/values", szip_like)),
    "variable-length text": ("unsafe-type", values_of(h5py.string_dtype())),
    "references": ("unsafe-type", values_of(h5py.ref_dtype)),
    "opaque bytes": ("unsafe-type", values_of(np.dtype("V4"))),
    "a compound": ("unsafe-type", values_of(np.dtype([("a", "<f4")]))),
    "an enum": ("unsafe-type", values_of(np.bool_)),
    "an array type": ("unsafe-type", values_of(np.dtype(("<f4", (2,))))),
    "big-endian numbers": ("unsafe-type", values_of(">f4")),
    "a committed type": ("unsafe-type", replaced(f"{handmade.SERIES}/values", committed)),
    "a group where a dataset belongs": (
        "unsafe-type",
        replaced(f"{handmade.SERIES}/values", lambda group, name, folder: group.create_group(name)),
    ),
    "a hard-link cycle": ("extra-object", replaced(f"{handmade.SERIES}/values", cycle)),
    "a variable-length attribute": ("unsafe-type", vlen_attribute),
    "a reference in an attribute": ("unsafe-type", reference_attribute),
    "opaque bytes under the name of a scale's attribute": ("unsafe-type", opaque_attribute_in_disguise),
    "a series under the name of another": ("series-renamed", renamed),
    "another dtype than it says": (
        "dtype-changed",
        replaced(f"{handmade.SERIES}/values", lambda group, name, folder: group.create_dataset(name, data=np.zeros((4, 2, 3)))),
    ),
    "fewer elements than its captures have": (
        "damaged",
        replaced(f"{handmade.SERIES}/values", lambda group, name, folder: group.create_dataset(name, data=np.zeros((3, 2, 3), "<f4"))),
    ),
    "no values": ("damaged", lambda file, folder: file[handmade.SERIES].__delitem__("values")),
    "a group that is no series": ("not-a-capture-file", lambda file, folder: file["captures/acts"].create_group("fc1") and None),
}


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    read_everything(handmade.write(tmp_path / "epoch-0000.h5"))


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_hostile_file_is_refused_and_no_other_file_is_opened(trick: str, tmp_path: Path) -> None:
    code, craft = HOSTILE[trick]
    path = handmade.write(tmp_path / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        craft(file, tmp_path)
    with pytest.raises(FileRefused) as refused:
        read_everything(path)
    assert refused.value.code == code
    assert refused.value.exit_code == 1


def test_every_kind_of_refusal_has_a_hostile_file() -> None:
    codes = {code for code, _ in HOSTILE.values()}
    wanted = {"external-storage", "external-link", "virtual-dataset", "soft-link", "shape-bomb", "unknown-filter", "unsafe-type", "damaged"}
    assert codes >= wanted


TRACE = """
import os, sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from probes.errors import FileRefused
from tests.capture_file.test_hdf5_read import read_everything
path = Path(sys.argv[1])
del opened[:]
try:
    read_everything(path)
except FileRefused as refused:
    print("refused", refused.code)
print([name for name in opened if name.startswith(str(path.parent)) and name != str(path)])
"""


@pytest.mark.parametrize("trick", ["external storage", "an external link to a series", "an external link on the way", "a virtual dataset"])
def test_the_system_calls_of_a_refusal_name_no_other_file(trick: str, tmp_path: Path) -> None:
    """Python's audit hook does not see what the HDF5 library opens, so the bait is a pipe: opening it would wait forever."""
    _, craft = HOSTILE[trick]
    path = handmade.write(tmp_path / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        craft(file, tmp_path)
    for bait in ("secret", "other.h5"):
        (tmp_path / bait).unlink(missing_ok=True)
        os.mkfifo(tmp_path / bait)
    done = subprocess.run([sys.executable, "-c", TRACE, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[0] == "refused"
    assert done.stdout.splitlines()[-1] == "[]"


CANARY = """
#include <stdio.h>
__attribute__((constructor)) static void sing(void) { FILE *f = fopen("%s", "w"); if (f) fclose(f); }
"""


def test_no_plugin_of_the_hdf5_library_is_run_while_an_unknown_filter_is_refused(tmp_path: Path) -> None:
    plugins, song = tmp_path / "plugins", tmp_path / "song"
    plugins.mkdir()
    (tmp_path / "canary.c").write_text(CANARY % song)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", plugins / "libcanary.so", tmp_path / "canary.c"], check=True)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")
    path = handmade.write(tmp_path / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        HOSTILE["an unknown filter"][1](file, tmp_path)
    environment = os.environ | {"HDF5_PLUGIN_PATH": str(plugins)}

    def run(program: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, env=environment, check=False
        ).stdout

    assert "refused unknown-filter" in run(TRACE)
    assert not song.exists()
    run(f"import h5py, sys; h5py.File(sys.argv[1])['{handmade.SERIES}/values'][...]")
    assert song.exists(), "the canary does not sing, so its silence proves nothing"


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "not-hdf5"), (b"PK\x03\x04 not HDF5", "not-hdf5"), (b"\x89HDF\r\n\x1a\n" + bytes(100), "damaged")],
)
def test_bytes_that_are_not_an_hdf5_file_are_refused(content: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / "epoch-0000.h5"
    path.write_bytes(content)
    with pytest.raises(FileRefused) as refused:
        open_file(path)
    assert refused.value.code == code


def test_a_file_that_was_cut_short_is_refused_as_truncated(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(FileRefused) as refused:
        read_everything(path)
    assert refused.value.code == "truncated"


def test_parts_of_a_file_are_the_same_in_any_order_and_small_ones_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = np.random.default_rng(0).integers(0, 1 << 30, 200_000)
    with h5py.File(tmp_path / "some.h5", "w") as file:
        file["values"] = stored
    reads: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *given: reads.append(given[2]) or preadv(*given))
    with h5py.File(tmp_path / "some.h5") as file:
        content, offset = FileContent(tmp_path / "some.h5", file.id), file["values"].id.get_offset()
        places = [
            (start, count) for start in (0, 3, 4_000, 100_000, 199_990) for count in (1, 10, 512, 513, 9_000) if start + count <= 200_000
        ]
        for start, count in (*places, *reversed(places), *np.random.default_rng(1).permutation(places).tolist()):
            assert (content.array(stored.dtype, count, offset + 8 * start) == stored[start : start + count]).all()
        with pytest.raises(FileRefused, match="and had"):
            content.array(stored.dtype, 2, content.size - 8)
        reads.clear()
        assert [int(content.array(stored.dtype, 1, offset + 8 * place)[0]) for place in range(20_000)] == stored[:20_000].tolist()
    assert len(reads) < 10


def test_a_file_that_is_cut_off_after_it_was_opened_is_refused_and_does_not_end_the_process(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    file = SealedFile(path)
    part = file.part(next(iter(file.addresses)))
    os.truncate(path, 0)  # `cp` over a file begins so
    with pytest.raises(FileRefused, match="and had") as refused:
        part.elements(0, 1)
    assert refused.value.code == "truncated"


def test_a_file_that_is_replaced_while_it_is_opened_is_read_from_one_of_the_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, longer = handmade.write(tmp_path / "epoch-0000.h5"), handmade.write(tmp_path / "other.h5", note="x" * 5000)
    with h5py.File(longer, "r+") as other:
        other[handmade.SERIES]["values"][...] = 7
    monkeypatch.setattr(hdf5_read, "refuse_holes", lambda *_: longer.replace(path))
    file = SealedFile(path)
    assert (file.part(next(iter(file.addresses))).elements(0, 4) == 7).all()


def test_a_file_is_not_called_damaged_because_memory_is_too_small(tmp_path: Path) -> None:
    file = open_file(handmade.write(tmp_path / "epoch-0000.h5"))
    with pytest.raises(MemoryError), file.checking():
        raise MemoryError


def test_an_open_file_takes_one_descriptor(tmp_path: Path) -> None:
    files = [open_file(handmade.write(tmp_path / f"epoch-000{epoch}.h5")) for epoch in range(3)]
    assert open_below(tmp_path) == len(files)


@pytest.mark.parametrize(("found", "code"), [("capture-file.v2", "newer-format"), ("photo", "not-a-capture-file")])
def test_another_format_is_refused(found: str, code: str, tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5", probes_format=found)
    with pytest.raises(FileRefused) as refused:
        open_file(path)
    assert refused.value.code == code


def test_any_hdf5_file_is_not_a_capture_file(tmp_path: Path) -> None:
    h5py.File(tmp_path / "any.h5", "w").close()
    with pytest.raises(FileRefused) as refused:
        open_file(tmp_path / "any.h5")
    assert refused.value.code == "not-a-capture-file"


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "epoch-0000.h5")
    with pytest.raises(FileRefused) as refused:
        open_file(tmp_path / "epoch-0000.h5")
    assert refused.value.code == "not-regular"


def test_a_missing_file_is_an_error_of_the_environment(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.h5"):
        open_file(tmp_path / "none.h5")


def test_flipped_bytes_are_refused_or_read_but_never_raise_anything_else(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    sound = path.read_bytes()
    random = np.random.default_rng(0)
    for position in random.integers(8, len(sound), 150):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with suppress(FileRefused):
            read_everything(path)


def test_a_file_is_closed_when_it_is_dropped(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    held = SealedFile(path)
    one = open_below(tmp_path)
    assert one > 0
    for _ in range(20):
        SealedFile(path)
    assert open_below(tmp_path) == one
    del held
    assert open_below(tmp_path) == 0


def test_one_module_alone_opens_hdf5_files_for_reading() -> None:
    for path in Path(probes.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "hdf5_read.py" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                modes = [ast.unparse(argument) for argument in [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]]
                creates = any(mode in ("'w'", "'x'", "'w-'") for mode in modes)
                assert called not in ("h5py.h5f.open", "h5f.open"), f"{path}:{node.lineno}"
                assert called != "h5py.File" or creates, f"{path}:{node.lineno}"
