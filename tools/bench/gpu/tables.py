"""What a comparison found, as Markdown and as a figure."""

import math
import statistics


def slower(rows, name):
    return ", ".join(row["graph"] for row in rows if row["over_baseline"][name] < 0.97) or "none"


def results(rows):
    lines = ["| graph | tier | s | launches | baseline us | modelled us | quern us | hot | best peer us | hot | peer | ratio | hot | "
             "launch us a kernel | error (eager's) |", "|---" * 15 + "|"]
    for row in rows:
        times, best = row["times"], row["best"]
        cells = [row["graph"], row["tiers"]["quern"], f"{row['seconds']:.0f}", str(row["launches"]["quern"]), f"{times['baseline'][0]:.1f}",
                 f"{times['modelled'][0]:.1f}", f"{times['quern'][0]:.1f}", f"{times['quern'][1]:.1f}", f"{times[best][0]:.1f}",
                 f"{times[best][1]:.1f}", best, f"{row['ratio']:.2f}", f"{row['ratio_hot']:.2f}", f"{row['launch_us']:.1f}",
                 f"{row['errors']['quern']:.1e} ({row['errors'].get('eager', math.nan):.1e})"]
        lines.append("| " + " | ".join(cells) + " |")
    ratios = [row["ratio"] for row in rows]
    regret = [row["times"]["modelled"][0] / row["times"]["quern"][0] for row in rows]
    lines += ["", f"Geometric mean of the ratio: {statistics.geometric_mean(ratios):.2f} over {len(rows)} graphs, "
              f"{sum(ratio < 1 for ratio in ratios)} below 1. Slower than their baseline by more than 3 %: {slower(rows, 'quern')}; "
              f"of what the model chose: {slower(rows, 'modelled')}. What the model chose over the best: {statistics.geometric_mean(regret):.2f}."]
    return "\n".join(lines) + "\n"


def all_peers(rows):
    """Every peer of every graph, the fastest first."""
    lines = ["| graph | quern us | peers: us, cold (over quern's) |", "|---" * 3 + "|"]
    for row in rows:
        quern = row["times"]["quern"][0]
        peers = sorted((cold, name) for name, (cold, _) in row["times"].items() if name not in row["tiers"])
        lines.append(f"| {row['graph']} | {quern:.1f} | " + "; ".join(f"{name} {cold:.1f} ({cold / quern:.2f})" for cold, name in peers) + " |")
    return "\n".join(lines) + "\n"


def floors(rows):
    """Times over those of a kernel that only reads and writes as much, and over those of the same bytes in large copies."""
    lines = ["| graph | read MB | written MB | floor us | a kernel's us | quern us | over the floor | over the kernel's | best peer over the kernel's |",
             "|---" * 9 + "|"]
    for row in rows:
        if row["floors"]:
            (read, written), floor, kernel = row["bytes"], row["floors"]["speed"], row["floors"]["kernel"]
            quern, peer = row["times"]["quern"][0], row["times"][row["best"]][0]
            lines.append(f"| {row['graph']} | {read / 1e6:.2f} | {written / 1e6:.2f} | {floor:.1f} | {kernel:.1f} | {quern:.1f} | {quern / floor:.2f} | "
                         f"{quern / kernel:.2f} | {peer / kernel:.2f} |")
    return "\n".join(lines) + "\n"


def table(rows):
    return "\n".join((results(rows), all_peers(rows), floors(rows)))


def figure(rows):
    """Bars of the best peer over Quern, on a logarithmic axis with 1 in the middle."""
    height, left, half = 18, 190, 260
    reach = max(2.0, *(max(row["ratio"], 1 / row["ratio"]) for row in rows))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 2 * half + 70}" height="{height * (len(rows) + 2)}" '
             'font-family="sans-serif" font-size="12">', f'<text x="{left + half}" y="13" text-anchor="middle">Best peer / Quern, cold L2</text>']
    for i, row in enumerate(sorted(rows, key=lambda row: -row["ratio"])):
        y, length = height * (i + 1), half * math.log(row["ratio"]) / math.log(reach)
        x = left + half + min(0, length)
        parts.append(f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{row["graph"]}</text><rect x="{x:.1f}" y="{y + 3}" '
                     f'width="{abs(length):.1f}" height="{height - 5}" fill="{"#2a7" if length >= 0 else "#c53"}"/>'
                     f'<text x="{left + 2 * half + 8}" y="{y + 13}">{row["ratio"]:.2f}</text>')
    parts.append(f'<line x1="{left + half}" x2="{left + half}" y1="{height}" y2="{height * (len(rows) + 1)}" stroke="black"/></svg>')
    return "\n".join(parts)
