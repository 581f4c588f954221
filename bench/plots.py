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
MARKERS = "xsv^<>P*Dd"
# How the names of the peers of this library begin.
OURS = ("bloscpack", "no digests", "dataset", "superchunk", "one .blp file")


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
            axes[i][-1].set(title="ratio, %s" % name, ylim=(0, None))
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
    """Draw ratio by speed: one row of panels for writing and one for reading."""
    rows = result["rows"]
    names = unique(rows, "data")
    figure, axes = panels(2, len(names), height=3.5)
    for i, speed in enumerate(("write", "read")):
        for j, name in enumerate(names):
            axis = axes[i][j]
            mine = where(rows, data=name)
            for k, row in enumerate(mine):
                ours = row["peer"].startswith("bloscpack")
                marker = "o" if ours else MARKERS[k % len(MARKERS)]
                axis.plot(row[speed], row["ratio"], marker, label=row["peer"])
            top = 1.2 * max(row["ratio"] for row in mine)
            wide = "log" if top > 10 else "linear"
            axis.set(xscale="log", yscale=wide, ylim=(0.9, top))
            axis.set(title=name, xlabel="%s MB/s" % speed, ylabel="ratio")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
            axis.yaxis.set_minor_formatter("")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def summary(result: dict) -> Any:
    """Draw one line for each peer: speed of writing and reading, and ratio.

    Each value is the geometric mean over the data sets. An empty circle marks a peer
    that does not notice a changed bit.
    """
    from matplotlib.ticker import LogLocator

    rows = result["rows"]
    means = {
        peer: {
            key: statistics.geometric_mean(row[key] for row in where(rows, peer=peer))
            for key in SUMMARY
        }
        for peer in unique(rows, "peer")
    }
    peers = sorted(means, key=lambda peer: means[peer]["read"])
    figure, axes = panels(1, len(SUMMARY), width=3.2, height=3.6)
    for axis, (key, title) in zip(axes[0], SUMMARY.items(), strict=True):
        for y, peer in enumerate(peers):
            colour = "tab:blue" if peer.startswith("bloscpack") else "0.4"
            verifies = where(rows, peer=peer)[0]["verifies"]
            face = colour if verifies else "white"
            axis.hlines(y, 0, means[peer][key], color=colour, linewidth=1, alpha=0.4)
            axis.plot(means[peer][key], y, "o", color=colour, markerfacecolor=face)
        axis.set(title=title, yticks=range(len(peers)), yticklabels=[])
        axis.set(xscale="log", xlim=(0.8 * min(m[key] for m in means.values()), None))
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
        axis.tick_params(axis="x", labelsize=7.5)
    axes[0][0].set_yticklabels(peers)
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

# Column of the results → title of the panel.
SUMMARY = {"write": "write, MB/s", "read": "read, MB/s", "ratio": "compression ratio"}

# Name of the plot → its results and the function that draws it.
PLOTS: dict[str, tuple[str, Callable[[dict], Any]]] = {
    "pipeline": ("pipeline", pipeline),
    "chunk_size": ("chunk_size", chunk_size),
    "scaling": ("scaling", scaling),
    "peers": ("peers", peers),
    "summary": ("peers", summary),
    "access": ("access", access),
    "dataset": ("dataset", access),
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
