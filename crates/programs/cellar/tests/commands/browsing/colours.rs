//! Checks that texts and lines have enough contrast with their background in light and dark: WCAG 2 contrasts
//! of the colours computed by the browser.

use super::browser::Browser;
use serde_json::{Value, json};

/// Minimum contrast for level AA: of text, and of graphics.
const TEXT_MIN: f64 = 4.5;
const LINE_MIN: f64 = 3.0;

const CONTRASTS: &str = r"
window.contrasts = () => {
  const parse = (words) => {
    const [r, g, b, alpha] = words.match(/-?[\d.]+/g).map(Number);
    const scale = words.startsWith('color(') ? 255 : 1;
    return [r * scale, g * scale, b * scale, alpha ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((channel) => channel / 255).map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (a, b) => { const [less, more] = [light(a), light(b)].sort((x, y) => x - y); return (more + 0.05) / (less + 0.05); };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const faint = (element) => { let all = 1; for (let at = element; at; at = at.parentElement) all *= Number(getComputedStyle(at).opacity); return all; };
  const told = [];
  const note = (kind, words, front, back, share) => told.push([kind, words.trim().slice(0, 40), ratio(over([...front.slice(0, 3), front[3] * share], back), back)]);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const words = walker.currentNode.textContent;
    if (!words.trim() || !element.checkVisibility() || element.closest('.unseen, .skip, noscript, :disabled')) continue;
    const style = getComputedStyle(element);
    const box = element.closest('svg') ? element.parentElement.querySelector('rect') : null;
    const what = `${element.tagName.toLowerCase()}.${element.getAttribute('class') ?? element.parentElement.className}`;
    if (box) note(`text ${what}`, words, parse(style.fill), parse(getComputedStyle(box).fill), 1);
    else note(`text ${what}`, words, parse(style.color), behind(element), faint(element));
  }
  const variable = (name) => { const probe = document.createElement('span'); probe.style.color = `var(${name})`; document.body.append(probe); const colour = parse(getComputedStyle(probe).color); probe.remove(); return colour; };
  for (const canvas of document.querySelectorAll('canvas')) {
    const back = behind(canvas);
    if (canvas.classList.contains('plot')) note('text on canvas', canvas.getAttribute('aria-label'), variable('--muted'), back, 1);
    if (!canvas.classList.contains('scale')) for (const name of ['--line-1', '--line-2']) note('line', name, variable(name), back, 1);
  }
  for (const bar of document.querySelectorAll('.parts i, .strip i, .key i')) note('line', bar.className || bar.parentElement.className, parse(getComputedStyle(bar).backgroundColor), behind(bar.parentElement), 1);
  return told;
};";

/// Views that may be empty in this cell: no audit is configured, no caller is rejected, and there may have
/// been no events.
const BARE: [&str; 4] = ["#/table/audit", "#/table/buckets", "#/table/events", "#/table/refusals"];

/// Checks every view in the navigation, and these.
pub(super) fn everything_can_be_read(browser: &mut Browser, views: &[&str]) {
    browser.evaluate(CONTRASTS);
    let links = "[...document.querySelectorAll('#nav a')].map((link) => link.getAttribute('href'))";
    let links: Vec<String> = serde_json::from_value(browser.evaluate(links)).unwrap();
    let mut poor: Vec<Value> = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for view in links.iter().map(String::as_str).chain(views.iter().copied()) {
            browser.evaluate(&format!("location.hash = '{view}'"));
            browser.wait_for("document.querySelector('main').innerText.length > 20");
            let is_bare = BARE.contains(&view);
            let nothing = if is_bare { ", main .empty:not([hidden])" } else { "" };
            browser.wait_for(&format!(
                "document.querySelector('main tbody tr, main canvas, main .panel{nothing}')"
            ));
            let reported: Vec<(String, String, f64)> =
                serde_json::from_value(browser.evaluate("contrasts()")).unwrap();
            assert!(reported.len() > 20, "{view}: {reported:?}");
            let is_poor = |(kind, _, ratio): &&(String, String, f64)| {
                *ratio < if kind.starts_with("text") { TEXT_MIN } else { LINE_MIN }
            };
            poor.extend(reported.iter().filter(is_poor).map(|reported| json!([scheme, view, reported])));
        }
    }
    browser.prefer("light");
    // Report each kind only once.
    poor.dedup_by_key(|reported| json!([reported[0], reported[2][0]]));
    assert_eq!(poor, Vec::<Value>::new());
}
