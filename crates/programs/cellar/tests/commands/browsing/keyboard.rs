//! Uses the page with Tab, Enter and arrow keys, without a pointer.

use super::browser::Browser;
use super::no_wider_than_the_screen;
use serde_json::{Value, json};

/// Maximum number of Tab key presses before an element counts as unreachable.
const STOPS_MAX: usize = 400;

/// Presses Tab until the element has the focus.
fn reach(browser: &mut Browser, selector: &str) {
    for _ in 0..STOPS_MAX {
        browser.key("Tab");
        if browser.evaluate(&format!("document.activeElement.matches({})", json!(selector))) == true {
            let seen = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'");
            assert_eq!(seen, true, "{selector}: who looks does not see where the keyboard is");
            return;
        }
    }
    panic!("Tab does not lead to {selector}");
}

fn press(browser: &mut Browser, selector: &str) {
    reach(browser, selector);
    browser.key("Enter");
}

/// Opens a view through its link.
fn go(browser: &mut Browser, route: &str, until: &str) {
    press(browser, &format!("#nav a[href=\"#{route}\"]"));
    browser.wait_for(&format!("location.hash === '#{route}'"));
    browser.wait_for(until);
}

fn type_in(browser: &mut Browser, text: &str) {
    text.chars().for_each(|letter| browser.key(&letter.to_string()));
}

pub(super) fn all_of_the_page_is_used(browser: &mut Browser, volume: &str) {
    browser.evaluate("location.hash = '#/'");
    browser.wait_for("document.querySelector('.heat canvas')");
    browser.evaluate("document.activeElement.blur(); scrollTo(0, 0)");
    press(browser, "a.skip");
    browser.wait_for("document.activeElement.id === 'main'");
    assert_eq!(
        browser.evaluate("Boolean(document.querySelector('.heat canvas'))"),
        true,
        "the view is still there"
    );

    go(browser, "/table/calls", "document.querySelector('table[data-table=calls] tbody tr')");
    columns_are_sorted_by(browser);
    press(browser, "button.span");
    browser.wait_for("document.querySelector('.span').getAttribute('aria-pressed') === 'false'");
    browser.key("Enter");
    browser.wait_for("document.querySelector('.span').getAttribute('aria-pressed') === 'true'");

    go(browser, "/table/volumes", "document.querySelector('table[data-table=volumes] tbody tr')");
    reach(browser, "input[type=search]");
    type_in(browser, volume);
    browser.wait_for("document.querySelectorAll('main tbody tr').length === 1");
    reach(browser, "main tbody tr");
    browser.key("Enter");
    browser.wait_for(&format!("location.hash === '#/volume/{volume}'"));
    press(browser, "main a[href=\"#/table/volumes\"]");
    browser.wait_for("document.querySelectorAll('table[data-table=volumes] tbody tr').length > 1");
    rows_are_walked_through(browser);

    themes_and_pause(browser);
    a_profile_is_begun_and_ended(browser);
    no_wider_than_the_screen(browser, "after all that");
}

fn columns_are_sorted_by(browser: &mut Browser) {
    let values = |browser: &mut Browser| -> Vec<u64> {
        let values = browser.evaluate(
            "[...document.querySelectorAll('main tbody td[data-figure=received]')].map((cell) => Number(cell.dataset.value))",
        );
        serde_json::from_value(values).unwrap()
    };
    let column = browser.evaluate("[...document.querySelectorAll('thead button')].find((it) => it.textContent.startsWith('received')).dataset.column");
    let heading = format!("thead button[data-column=\"{}\"]", column.as_str().unwrap());
    let order = format!("document.querySelector('{heading}').closest('th').getAttribute('aria-sort')");
    press(browser, &heading);
    browser.wait_for(&format!("{order} === 'descending'"));
    let down = values(browser);
    assert!(down.len() > 2 && down.is_sorted_by(|a, b| a >= b), "{down:?}");
    // The heading was redrawn and still has the focus.
    browser.key("Enter");
    browser.wait_for(&format!("{order} === 'ascending'"));
    let up = values(browser);
    assert!(up.is_sorted() && up != down, "{up:?}");
}

fn rows_are_walked_through(browser: &mut Browser) {
    let place = "[...document.querySelectorAll('main tbody tr')].indexOf(document.activeElement)";
    reach(browser, "main tbody tr");
    let first = browser.evaluate(place).as_i64().unwrap();
    browser.key("ArrowDown");
    assert_eq!(browser.evaluate(place), first + 1);
    browser.key("ArrowUp");
    assert_eq!(browser.evaluate(place), first);
}

fn themes_and_pause(browser: &mut Browser) {
    let theme = "document.documentElement.dataset.theme ?? 'auto'";
    reach(browser, "#theme");
    let mut themes = Vec::<Value>::new();
    for key in ["Enter", " ", "Enter"] {
        browser.key(key);
        themes.push(browser.evaluate(theme));
    }
    assert_eq!(themes, ["light", "dark", "auto"]);
    press(browser, "#pause");
    browser.wait_for("document.querySelector('#state').dataset.state === 'paused'");
    browser.key("Enter");
    browser.wait_for("document.querySelector('#state').dataset.state === 'live'");
    press(browser, "#help");
    browser.wait_for("document.querySelector('#keys').open");
    browser.key("Enter");
    browser.wait_for("!document.querySelector('#keys').open");
}

fn a_profile_is_begun_and_ended(browser: &mut Browser) {
    go(browser, "/profile", "document.querySelector('button[data-kind=cpu]:not(:disabled)')");
    reach(browser, "button[data-kind=waits]");
    reach(browser, "input.seconds");
    // One more than before.
    browser.key("ArrowUp");
    assert_eq!(browser.evaluate("document.querySelector('input.seconds').value"), "11");
    press(browser, "button[data-kind=waits]");
    browser.wait_for("!document.querySelector('button[data-act=end]').disabled");
    press(browser, "button[data-act=end]");
    browser.wait_for("document.querySelector('button[data-kind=waits]:not(:disabled)')");
    browser.wait_for("document.querySelector('main [role=status]').textContent.startsWith('Waiting: ')");
}
