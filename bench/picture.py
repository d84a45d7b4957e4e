"""picture.py - bars, and time against memory, as SVG for docs/img: plain text in, plain text out, nothing but the standard library.

    python3 bench/picture.py bench/results/DATE-MACHINE-full.json docs/img/overview.svg
"""
import json
import math
import sys
from xml.sax.saxutils import escape

ROW_PIXELS, LEFT_PIXELS, BAR_PIXELS, TITLE_PIXELS = 24, 110, 420, 34


def bars_svg(title, values, unit, limit=None):
    """Horizontal bars, smallest first; HAKMEM's stands out; `limit` is drawn as a line (what was promised)."""
    rows = sorted(values.items(), key=lambda item: item[1])
    scale = BAR_PIXELS / max(max(values.values()), limit or 0, 1e-9)
    height, width = TITLE_PIXELS + ROW_PIXELS * len(rows) + 12, LEFT_PIXELS + BAR_PIXELS + 90
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             f'<text x="10" y="21" font-weight="bold" fill="#222222">{escape(title)}</text>']
    for number, (name, value) in enumerate(rows):
        top = TITLE_PIXELS + number * ROW_PIXELS
        fill = "#1a7f5a" if name == "HAKMEM" else "#b4bcc6"
        weight = ' font-weight="bold"' if name == "HAKMEM" else ""
        length = max(value * scale, 1)
        lines += [f'<text x="{LEFT_PIXELS - 8}" y="{top + 15}" text-anchor="end" fill="#222222"{weight}>{escape(name)}'
                  '</text>',
                  f'<rect x="{LEFT_PIXELS}" y="{top + 3}" width="{length:.1f}" height="{ROW_PIXELS - 8}" '
                  f'fill="{fill}"/>',
                  f'<text x="{LEFT_PIXELS + length + 6:.1f}" y="{top + 15}" fill="#222222"{weight}>{value:,.0f} '
                  f'{escape(unit)}</text>']
    if limit:
        at = LEFT_PIXELS + limit * scale
        lines.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TITLE_PIXELS - 4}" y2="{height - 8}" stroke="#c0392b" '
                     'stroke-dasharray="4 3"/>')
    return "\n".join(lines + ["</svg>"]) + "\n"


def overview_svg(record):
    """Each allocator of a result of record: time against peak memory, geometric means over the rows' best, on logarithmic axes."""
    width, height, left, right, top, bottom = 700, 430, 70, 90, 60, 56
    points = [(row["allocator"], row["time_over_best"], row["peak_over_best"]) for row in record["summary"]
              if row.get("time_over_best") and row.get("peak_over_best")]
    most_time, most_peak = max(p[1] for p in points) * 1.22, max(p[2] for p in points) * 1.1
    def x(value): return left + math.log(value) / math.log(most_time) * (width - left - right)
    def y(value): return height - bottom - math.log(value) / math.log(most_peak) * (height - top - bottom)
    date, rows = record["started"][:10], len(record["rows"])
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             f'<text x="10" y="21" font-weight="bold" fill="#222222">Time and peak memory over {rows} programs, as multiples of each one\'s best</text>',
             f'<text x="10" y="40" fill="#667080">geometric means, one interleaved run, {escape(date)}; down and to the left is better</text>']
    for axis, most in (("x", most_time), ("y", most_peak)):
        for tick in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10):
            if tick > most: break
            if axis == "x":
                lines += [f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{height - bottom}" stroke="#e3e7ec"/>',
                          f'<text x="{x(tick):.1f}" y="{height - bottom + 18}" text-anchor="middle" fill="#667080">{tick:g}</text>']
            else:
                lines += [f'<line x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e3e7ec"/>',
                          f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#667080">{tick:g}</text>']
    lines += [f'<text x="{(left + width - right) / 2:.0f}" y="{height - 12}" text-anchor="middle" fill="#222222">time</text>',
              f'<text x="18" y="{(top + height - bottom) / 2:.0f}" text-anchor="middle" fill="#222222" '
              f'transform="rotate(-90 18 {(top + height - bottom) / 2:.0f})">peak memory</text>']
    for name, time, peak in sorted(points, key=lambda p: p[0] == "hakmem"):
        is_ours = name == "hakmem"
        is_crowded = any(0 < x(other[1]) - x(time) < 170 and abs(y(other[2]) - y(peak)) < 14 for other in points)
        label = f'x="{x(time) - 10:.1f}" text-anchor="end"' if is_crowded else f'x="{x(time) + 10:.1f}"'
        fill, weight = ("#1a7f5a", ' font-weight="bold"') if is_ours else ("#8b95a1", "")
        lines += [f'<circle cx="{x(time):.1f}" cy="{y(peak):.1f}" r="{7 if is_ours else 5}" fill="{fill}"/>',
                  f'<text {label} y="{y(peak) + 4:.1f}" fill="#222222"{weight}>{escape("HAKMEM" if is_ours else name)}  {time:.2f}, {peak:.2f}</text>']
    return "\n".join(lines + ["</svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: picture.py RESULT.json OUT.svg")
    try:
        with open(sys.argv[1], encoding="utf-8") as source:
            drawn = overview_svg(json.load(source))
        with open(sys.argv[2], "w", encoding="utf-8") as target:
            target.write(drawn)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"picture.py: {sys.argv[1]}: {error}")
