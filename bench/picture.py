"""picture.py - bars as SVG, for docs/img: plain text in, plain text out, nothing but the standard library."""
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
