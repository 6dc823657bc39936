"""Read every series of a capture file with one library alone, and print what it sees as JSON.

Usage: python with_python.py VIEWER FILE     Exit code 77: the library is not installed.
"""

import json
import sys


def plain(array):
    """An array as nested lists of numbers and texts; complex numbers of a viewer become pairs."""
    import numpy

    found = numpy.ma.getdata(numpy.asarray(array) if not isinstance(array, numpy.ma.MaskedArray) else array)
    if found.dtype.kind == "c":
        found = numpy.stack([found.real, found.imag], -1)
    if found.dtype.kind == "S":
        found = numpy.char.decode(found, "utf-8")
    if found.dtype.kind in "fiub":
        return found.astype("f8").tolist()
    return [one.decode() if isinstance(one, bytes) else one for one in found.tolist()]


def seen(values, axes):
    return {"values": plain(values), "axes": {name: plain(found) for name, found in axes.items()}}


def h5py(path):
    import h5py

    def texts(scale):
        return scale.asstr()[...] if h5py.check_string_dtype(scale.dtype) else scale[...]

    with h5py.File(path) as file:
        for probe, group in file["captures"].items():
            for name, series in group.items():
                scales = {axis[0].name.rpartition("/")[2]: axis[0] for axis in series["values"].dims}
                yield f"{probe}/{name}", seen(series["values"][...], {axis: texts(scale) for axis, scale in scales.items()})


def netcdf4(path):
    import netCDF4

    with netCDF4.Dataset(path) as file:
        for probe, group in file["captures"].groups.items():
            for name, series in group.groups.items():
                values = series["values"]
                axes = {axis: series[axis][...] for axis in values.dimensions if axis in series.variables}
                yield f"{probe}/{name}", seen(values[...], axes)


def h5netcdf(path):
    import h5netcdf

    with h5netcdf.File(path) as file:
        for probe, group in file["captures"].groups.items():
            for name, series in group.groups.items():
                values = series["values"]
                axes = {axis: series[axis][...] for axis in values.dimensions if axis in series.variables}
                yield f"{probe}/{name}", seen(values[...], axes)


def of_xarray(engine):
    def read(path):
        import xarray

        __import__("netCDF4" if engine == "netcdf4" else engine)
        with xarray.open_datatree(path, engine=engine) as tree:
            for probe, group in tree["captures"].children.items():
                for name, series in group.children.items():
                    values = series["values"]
                    yield (
                        f"{probe}/{name}",
                        seen(values.values, {axis: values[axis].values for axis in values.dims if axis in values.coords}),
                    )

    return read


def pandas(path):
    """The columns that xarray makes of each series opened alone, with the labels as levels of the index."""
    import h5py
    import pandas
    import xarray

    with h5py.File(path) as file:
        names = [f"{probe}/{name}" for probe, group in file["captures"].items() for name in group]
    for name in names:
        with xarray.open_dataset(path, engine="h5netcdf", group=f"captures/{name}") as series:
            values = series["values"]
            if not values.size:
                yield name, seen(values.values, {axis: values[axis].values for axis in values.dims if axis in values.coords})
                continue
            column = values.to_series()
            assert isinstance(column, pandas.Series)
            levels = {str(level): column.index.get_level_values(level) for level in column.index.names if level in values.coords}
            axes = {level: list(dict.fromkeys(found)) for level, found in levels.items()}
            yield name, seen(column.to_numpy().reshape(values.shape), axes)


def silx(path):
    import h5py
    from silx.io import nxdata

    with h5py.File(path) as file:
        plot = nxdata.get_default(file)
        assert plot is not None, "no `default` leads to a plot"
        assert plot.is_valid, plot.issues
        assert not plot.issues, plot.issues
        yield "default", {"values": plot.group.name, "axes": {}}
        for probe, group in file["captures"].items():
            for name, series in group.items():
                found = nxdata.NXdata(series)
                assert found.is_valid, (name, found.issues)
                axes = {axis: scale[...] for axis, scale in zip(found.axes_dataset_names, found.axes, strict=True) if scale is not None}
                yield f"{probe}/{name}", seen(found.signal[...], axes)


VIEWERS = {
    "h5py": h5py,
    "netCDF4": netcdf4,
    "h5netcdf": h5netcdf,
    "xarray-netcdf4": of_xarray("netcdf4"),
    "xarray-h5netcdf": of_xarray("h5netcdf"),
    "pandas": pandas,
    "silx": silx,
}

if __name__ == "__main__":
    try:
        print(json.dumps(dict(VIEWERS[sys.argv[1]](sys.argv[2]))))
    except ModuleNotFoundError as error:
        print(f"`{error.name}` is not installed")
        sys.exit(77)
