"""Plot the results in results/ as PNG files; needs matplotlib."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).absolute().parent
# contestant → the column with its time in multiples of the time of this version
SIDES = {"limit": "against_limit", "this": "", "0.16.0": "against_old"}
# How the names of the peers of this library begin.
OURS = ("bloscpack", ".blp", "dataset", "superchunk")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", default=str(HERE / "results"))
    parser.add_argument("names", nargs="*", default=list(PLOTS), help="which plots")
    return parser.parse_args()


def panels(rows: int, columns: int, width: float = 4, height: float = 3):
    """Return a figure and a grid of axes."""
    import matplotlib

    matplotlib.use("Agg")  # draws without a display
    from matplotlib import pyplot

    return pyplot.subplots(
        rows,
        columns,
        squeeze=False,
        figsize=(width * columns, height * rows),
        layout="constrained",
    )


def unique(rows: list[dict], key: str) -> list:
    """Return the distinct values of a column in order of appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def where(rows: list[dict], **values: object) -> list[dict]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[k] == v for k, v in values.items())]


def pipeline(result: dict) -> Any:
    """Draw the throughput beside the limit: one panel per data set and action."""
    rows = result["rows"]
    actions, names = unique(rows, "action"), unique(rows, "data")
    figure, axes = panels(len(actions), len(names), height=2.2)
    for i, action in enumerate(actions):
        for j, name in enumerate(names):
            mine = where(rows, action=action, data=name)
            gigabytes = result["mib"] * 2**20 / 1e9
            axis = axes[i][j]
            for k, (label, key) in enumerate(SIDES.items()):
                places = [x + 0.27 * (k - 1) for x in range(len(mine))]
                seconds = [row["seconds"] * row.get(key, 1) for row in mine]
                speeds = [gigabytes / each for each in seconds]
                axis.bar(places, speeds, 0.25, label=label)
            axis.set_xticks(range(len(mine)), [row["codec"] for row in mine])
            axis.set_title("%s, %s" % (action, name), fontsize=8)
            axis.set_ylabel("GB/s")
    axes[0][0].legend(fontsize=7)
    return figure


def chunk_size(result: dict) -> Any:
    """Draw speeds and ratio by chunk size: one row of panels per data set."""
    rows = result["rows"]
    names, actions = unique(rows, "data"), unique(rows, "action")
    figure, axes = panels(len(names), len(actions) + 1)
    for i, name in enumerate(names):
        for codec in unique(rows, "codec"):
            for j, action in enumerate(actions):
                mine = where(rows, data=name, codec=codec, action=action)
                chunks = [row["chunk"] for row in mine]
                speeds = [row["speed"] for row in mine]
                line = axes[i][j].plot(chunks, speeds, "o-", label=codec)[0]
                axes[i][j].plot(
                    chunks,
                    [row["old_speed"] for row in mine],
                    "x--",
                    color=line.get_color(),
                    label=codec + ", 0.16.0",
                )
                axes[i][j].set(title="%s, %s" % (action, name), ylabel="MB/s")
            ratios = [row["ratio"] for row in mine]
            axes[i][-1].plot(chunks, ratios, "o-", label=codec)
            axes[i][-1].set(title="ratio, %s" % name)
        # When all lines are there: limits end the automatic scale.
        top = axes[i][-1].get_ylim()[1]
        if top > 50:
            axes[i][-1].set_yscale("log")
            axes[i][-1].yaxis.set_major_formatter("{x:g}")
        else:
            axes[i][-1].set_ylim(0, top)
        for axis in axes[i]:
            axis.set_xlabel("chunk size")
            axis.title.set_fontsize(8)
    axes[0][0].legend(fontsize=7)
    return figure


def scaling(result: dict) -> Any:
    """Draw the speed by threads beside the limit: one panel per data set and action."""
    rows = result["rows"]
    names, actions = unique(rows, "data"), unique(rows, "action")
    figure, axes = panels(len(names), len(actions))
    for i, name in enumerate(names):
        for j, action in enumerate(actions):
            axis = axes[i][j]
            for codec in unique(rows, "codec"):
                mine = where(rows, data=name, codec=codec, action=action)
                threads = [row["threads"] for row in mine]
                speeds = [row["speed"] for row in mine]
                limits = [row["speed"] / row["against_limit"] for row in mine]
                line = axis.plot(threads, speeds, "o-", label=codec)[0]
                color = line.get_color()
                axis.plot(threads, limits, ":", color=color, label=codec + ", limit")
            axis.set_title("%s, %s" % (action, name), fontsize=8)
            axis.set(xlabel="threads", ylabel="MB/s", xticks=threads)
    axes[0][0].legend(fontsize=7)
    return figure


def peers(result: dict) -> Any:
    """Draw ratio by speed: a row of panels for writing and one for reading.

    The programs that use Blosc, at equal settings, have a colour each and a marker for
    each codec. Bloscpack has rings, in which another marker is seen. Others are grey.
    """
    rows = where_equal(result["rows"])
    names = unique(rows, "data")
    families = unique([r for r in map(styled, rows) if r["codec"]], "family")
    others = unique([r for r in map(styled, rows) if not r["codec"]], "family")
    figure, axes = panels(2, len(names), height=3.5)
    for i, speed in enumerate(("write", "read")):
        for j, name in enumerate(names):
            axis = axes[i][j]
            mine = where(rows, data=name)
            for row in map(styled, mine):
                if row["codec"]:
                    colour = "C%d" % families.index(row["family"])
                    marker = CODECS[row["codec"]]
                else:
                    colour, marker = "0.45", MARKERS[others.index(row["family"])]
                ring = row["family"] == "bloscpack"
                axis.plot(
                    *(row[speed], row["ratio"], marker),
                    color=colour,
                    fillstyle="none" if ring else "full",
                    markersize=12 if ring else 7,
                    markeredgewidth=2 if ring else 0,
                    label=row["peer"],
                )
            top = max(row["ratio"] for row in mine)
            axis.set(xscale="log", yscale="log" if top > 10 else "linear")
            axis.set_ylim(0.9, 1.5 * top if top > 10 else max(1.2 * top, 2))
            axis.set(title=name, xlabel="%s MB/s" % speed, ylabel="ratio")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
            axis.yaxis.set_minor_formatter("")
            axis.grid(color="0.93")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def styled(row: dict) -> dict:
    """Return a row with the codec of Blosc in the name of the peer, and the rest."""
    name, _, last = row["peer"].rpartition(" ")
    known = name and last in CODECS  # there is a command with the name lz4, too
    family = {"family": name if known else row["peer"], "codec": last if known else ""}
    return {**row, **family}


def where_equal(rows: list[dict]) -> list[dict]:
    """Leave out the codecs that were not measured with all programs that use Blosc."""
    found = [*map(styled, rows)]
    families = unique([row for row in found if row["codec"]], "family")
    measured = unique(rows, "peer")
    return [
        row
        for row in found
        if not row["codec"]
        or all("%s %s" % (each, row["codec"]) in measured for each in families)
    ]


def summary(result: dict) -> Any:
    """Draw a bar for each program: speed of writing and reading an array, and ratio.

    Each value is the geometric mean over the data sets but ``linspace``, whose ratio of
    100 no measured data have. All programs with Blosc use the codec lz4.
    """
    rows = [row for row in result["rows"] if row["data"] != "linspace"]
    means = {}
    for peer, label in FRONT.items():
        mine = where(rows, peer=peer)
        if mine:
            both = [1 / (1 / row["write"] + 1 / row["read"]) for row in mine]
            ratios = [row["ratio"] for row in mine]
            mark = "" if mine[0]["verifies"] else " *"
            means[label + mark] = (mean_of(both), mean_of(ratios))
    labels = sorted(means, key=lambda label: means[label][0])
    figure, axes = panels(1, 2, width=4.2, height=3.2)
    titles = "write and read, MB/s", "compression ratio"
    for k, (axis, title) in enumerate(zip(axes[0], titles, strict=True)):
        values = [means[label][k] for label in labels]
        colours = ["C0" if "Bloscpack" in label else "0.75" for label in labels]
        bars = axis.barh(labels, values, color=colours)
        axis.bar_label(bars, fmt="%.0f" if k == 0 else "%.2g", padding=3)
        axis.set_title(title, fontsize=11, loc="left")
        axis.margins(x=0.15)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.tick_params(left=False, bottom=False, labelbottom=False)
        axis.set_yticks(range(len(labels)), labels if k == 0 else [])
    figure.supxlabel(
        "mean of three arrays of %d MiB: noise, time stamps, random bytes; %d cores\n"
        "* returns wrong data if a bit of the file changes"
        % (result["mib"], result["machine"]["cpus"]),
        fontsize=8,
    )
    return figure


def access(result: dict) -> Any:
    """Draw the times of actions: a row for each place, a column for each action.

    The grey line marks the fastest compressed format. np.memmap is not compressed.
    """
    from matplotlib.ticker import LogLocator

    rows = result["rows"]
    places = list(dict.fromkeys((row["place"], row["chunk"]) for row in rows))
    actions, peers = unique(rows, "action"), unique(rows, "peer")[::-1]
    figure, axes = panels(len(places), len(actions), width=2.4, height=2.3)
    for i, (place, chunk) in enumerate(places):
        for j, action in enumerate(actions):
            axis = axes[i][j]
            found = where(rows, place=place, chunk=chunk, action=action)
            if not found:  # nothing is appended over HTTP
                axis.set_visible(False)
                continue
            for row in found:
                y, value = peers.index(row["peer"]), 1000 * row["best"]
                ours = row["peer"].startswith(OURS)
                colour = "tab:blue" if ours else "0.4"
                face = colour if row["compressed"] else "white"
                axis.plot(value, y, "o", color=colour, markerfacecolor=face)
            fastest = min(row["best"] for row in found if row["compressed"])
            axis.axvline(1000 * fastest, color="0.8", linewidth=1, zorder=0)
            axis.set(xscale="log", ylim=(-0.7, len(peers) - 0.3))
            axis.set(yticks=range(len(peers)), yticklabels=[] if j else peers)
            axis.set_title("%s, ms" % action, fontsize=9)
            ends = axis.get_xlim()
            subs = (1, 2, 5) if ends[1] < 100 * ends[0] else (1,)
            axis.xaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8)
        label = "%s\nchunks of %d KiB" % (place, chunk // 1024)
        axes[i][0].set_ylabel(label, fontsize=9)
    return figure


def bigfile(result: dict) -> Any:
    """Draw the time of each action for each side: one panel per action."""
    rows = result["rows"]
    titles = {
        "write": "write %(mib)d MiB" % result,
        "read": "read %(mib)d MiB" % result,
        "rows": "read %(count)d random rows" % result,
    }
    sides = unique(rows, "side")[::-1]
    figure, axes = panels(1, len(titles), width=3.2, height=2)
    for axis, (action, title) in zip(axes[0], titles.items(), strict=True):
        for row in where(rows, action=action):
            y, value = sides.index(row["side"]), 1000 * row["best"]
            colour = "0.4" if row["side"] == "bigfile" else "tab:blue"
            axis.plot(value, y, "o", color=colour)
            text = "%.0f" % value if value > 99 else "%.3g" % value
            axis.annotate(text, (value, y + 0.2), ha="center", fontsize=8)
        axis.set(title=title, xlabel="ms", xscale="log", ylim=(-0.5, len(sides) - 0.3))
        axis.set(yticks=range(len(sides)), yticklabels=[SHOWN[s] for s in sides])
        axis.margins(x=0.2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(9)
    return figure


# Side of the comparison with BigFile → its label.
SHOWN = {
    "this": "this version",
    "bigfile": "bigfile 0.1.52",
    "dataset": "dataset, compressed",
}

# Codec of the programs that use Blosc → its marker.
CODECS = {"blosclz": "D", "lz4": "o", "zstd": "^"}
MARKERS = "Xvs*P"  # of the other programs

# Peer → its label in the chart on the front page.
FRONT = {
    "bloscpack lz4": "Bloscpack",
    "h5py, Blosc lz4": "HDF5 with Blosc",
    "zarr 3, Blosc lz4": "Zarr 3 with Blosc",
    "blosc2 lz4": "Blosc2",
    "zstd -T0": "zstd",
    "np.savez_compressed": "np.savez_compressed",
    "np.save": "np.save, uncompressed",
}

mean_of = statistics.geometric_mean

# Name of the plot → its results and the function that draws it.
PLOTS: dict[str, tuple[str, Callable[[dict], Any]]] = {
    "pipeline": ("pipeline", pipeline),
    "chunk_size": ("chunk_size", chunk_size),
    "scaling": ("scaling", scaling),
    "peers": ("peers", peers),
    "summary": ("peers", summary),
    "access": ("access", access),
    "bigfile": ("bigfile", bigfile),
}


def main() -> None:
    """Draw every plot for which results exist."""
    args = parse()
    for name in args.names:
        results, draw = PLOTS[name]
        source = Path(args.results) / (results + ".json")
        if not source.exists():
            print("skipped: no %s" % source.name)
            continue
        target = source.with_name(name + ".png")
        draw(json.loads(source.read_text())).savefig(target, dpi=120)
        print(target)


if __name__ == "__main__":
    main()
