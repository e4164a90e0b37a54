// The style sheet of the report page.
#pragma once

#include <string_view>

namespace tensorgrad::tools {

inline constexpr std::string_view report_style = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #1d1d1b; --soft: #62625d; --rule: #e3e3df;
  --train: #2a6fdb; --test: #d9581f; --right: 28 84 178; --wrong: 224 96 36; --strong: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161615; --card: #20201e; --ink: #ecece8; --soft: #a3a39c; --rule: #383835;
    --train: #6ea3f5; --test: #f08a55; --right: 52 108 200; --wrong: 215 95 40;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 20px 16px 48px; }
h1 { font-size: 24px; line-height: 1.2; margin: 4px 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 8px; }
header, section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 16px; margin-bottom: 16px; }
.figures { display: flex; flex-wrap: wrap; gap: 12px 32px; }
.figure { display: flex; flex-direction: column; }
.figure span { color: var(--soft); font-size: 13px; }
.figure strong { font-size: 24px; font-weight: 600; line-height: 1.25; }
.figure small { color: var(--soft); font-size: 12px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px 16px;
  margin: 16px 0 0; padding-top: 12px; border-top: 1px solid var(--rule); font-size: 13px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr));
  gap: 0 16px; }
.note { color: var(--soft); font-size: 13px; margin: 0 0 12px; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.train { --colour: var(--train); }
.test { --colour: var(--test); }
.line { stroke: var(--colour); }
.dot { fill: var(--colour); stroke: var(--card); stroke-width: 1.5; }
.hit { fill: transparent; }
.dot:hover, .hit:hover { fill: var(--colour); stroke: var(--ink); }
summary { cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
.epochs { margin-top: 12px; }
.epochs th, .epochs td { padding: 4px 12px 4px 0; text-align: right; white-space: nowrap; }
.epochs th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--rule); }
.confusion { border-collapse: separate; border-spacing: 2px; }
.confusion th { color: var(--soft); font-weight: 500; }
.confusion thead th { vertical-align: bottom; padding-bottom: 4px; }
.confusion thead span { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; }
.confusion tbody th { text-align: right; padding-right: 8px; white-space: nowrap;
  position: sticky; left: 0; background: var(--card); }
.confusion td { min-width: 46px; height: 32px; text-align: center; border-radius: 4px; }
.confusion thead td { min-width: 0; }
.right { background: rgb(var(--right) / var(--a)); }
.wrong { background: rgb(var(--wrong) / var(--a)); }
.strong { color: var(--strong); }
.zero { color: var(--soft); opacity: 0.5; }
.recall { color: var(--soft); padding-left: 8px; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(100px, 1fr)); gap: 16px 8px; }
figure { margin: 0; text-align: center; }
figure img { image-rendering: pixelated; border-radius: 4px; background: #000000; }
figcaption { display: flex; flex-direction: column; font-size: 12px; line-height: 1.35; }
figcaption b { font-weight: 500; }
figcaption i { font-style: normal; color: var(--test); }
figcaption small { color: var(--soft); }
@media (max-width: 520px) {
  main { padding: 8px 8px 32px; }
  header, section { padding: 12px; }
  .figures { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; }
  dl { grid-template-columns: 1fr 1fr; }
  .confusion { font-size: 11px; border-spacing: 1px; }
  .confusion td { min-width: 24px; height: 26px; padding: 0; }
  .confusion tbody th { padding-right: 4px; }
  .confusion .recall { padding-left: 3px; }
  .sheet { grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); }
}
)css";

}  // namespace tensorgrad::tools
