"""The style sheet of a page, for phones, desktop screens and print."""

SHADES = 10  # levels of a shaded cell
_LEVELS = "\n".join(f".shade{n} {{ background: rgba(0, 114, 178, {0.06 * n:.2f}); }}" for n in range(1, SHADES + 1))

STYLE = (
    """
:root { --ink: #1d2733; --quiet: #55616d; --line: #d9dee2; --paper: #fdfdfb; --tint: #f3f5f6; --link: #00598c;
  --ground: var(--paper); }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.6rem 0 .6rem;
  padding-top: .9rem; border-top: 1px solid var(--line); }
section:first-of-type > h2 { border-top: 0; padding-top: 0; margin-top: 1.2rem; }
h3 { font-size: 1.08rem; line-height: 1.35; margin: 1.9rem 0 .4rem; }
p { margin: .5rem 0 .9rem; max-width: 44rem; }
.intro { color: var(--quiet); }
a { color: var(--link); text-underline-offset: .15em; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .6rem 0; }
.warning { background: #fff6e0; border-left: 4px solid #b87700; padding: .55rem .8rem; }
.table { margin: 1.1rem 0 1.4rem; }
.scroll { overflow-x: auto; }
.tall { max-height: 80vh; overflow: auto; border-bottom: 1px solid var(--line); }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: .93rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 5rem); }
th, td { text-align: left; vertical-align: top; padding: .28rem 1.1rem .28rem 0; border-bottom: 1px solid var(--line);
  font-weight: 400; }
td.long { overflow-wrap: anywhere; min-width: 9rem; white-space: normal; }
th:last-child, td:last-child { padding-right: .3rem; }
thead th { color: var(--quiet); font-size: .85rem; border-bottom: 1.5px solid var(--quiet); vertical-align: bottom;
  max-width: 11rem; }
th[scope=row], thead th:first-child { position: sticky; left: 0; z-index: 1; background: var(--ground); }
.tall thead th { position: sticky; top: 0; z-index: 2; background: var(--ground); }
.tall thead th:first-child { z-index: 3; }
.group th { padding-top: .8rem; font-size: .9rem; }
.group span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 5rem); }
tbody th { font-weight: 600; }
.best td.number { font-weight: 600; }
.number { text-align: right; }
td { white-space: nowrap; }
td.wide { white-space: normal; min-width: 16rem; }
th.wide, th.long { min-width: 9rem; }
th.long { overflow-wrap: anywhere; }
[class*=shade] { padding-left: .5rem; padding-right: .5rem; }
.dotted { display: flex; align-items: baseline; gap: .5em; }
.dotted i { flex: none; width: .7em; height: .7em; border-radius: 50%; }
.dotted span { min-width: 0; }
.note, figcaption { color: var(--quiet); font-size: .87rem; line-height: 1.45; margin: .45rem 0 0; max-width: 44rem; }
.plots, .panels { display: grid; margin: 1rem 0; gap: 1.4rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); }
.panels { gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 14.5rem), 1fr)); }
figure { margin: 0; min-width: 0; max-width: 36rem; }
svg { display: block; width: 100%; height: auto; font-family: "DejaVu Sans", Verdana, Arial, sans-serif; }
details { --ground: var(--tint); margin: .9rem 0; padding: 0 .9rem;
  border: 1px solid var(--line); border-radius: 6px; background: var(--tint); }
details[open] { padding-bottom: .6rem; }
summary { cursor: pointer; padding: .6rem 0; font-weight: 600; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); color: var(--quiet); font-size: .87rem; }
@media print {
  @page { margin: 16mm; }
  html { font-size: 10pt; }
  body { background: #fff; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  .scroll, .tall { overflow: visible; max-height: none; }
  thead th, th[scope=row] { position: static; }
  h2, h3 { break-after: avoid; }
  figure, tr, .warning { break-inside: avoid; }
  details { border: 0; padding: 0; background: none; }
  details > *, details::details-content { display: block; content-visibility: visible; }
  table { font-size: 8.5pt; max-width: 100%; }
  th, td { padding-right: .7rem; }
  td, td.wide { white-space: normal; min-width: 0; }
  .long { overflow-wrap: anywhere; }
  .plots { grid-template-columns: 1fr 1fr; }
  .panels { grid-template-columns: repeat(3, 1fr); }
  a { color: inherit; text-decoration: none; }
}
"""
    + _LEVELS
    + "\n"
)
